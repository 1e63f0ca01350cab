"""Who reaches the daemon over TCP, and what a listener on the wire sees."""
import os
import shutil
import subprocess
import time
import unittest
from unittest import mock

from harness import JOB_STOPPED, PATIENCE, SUCCESS, UNREACHABLE, USAGE, TestCase, program, records, wait_until
from test_systemd import NotifySocket

LENETD_USAGE = 2


@unittest.skipUnless(shutil.which("openssl"), "needs openssl")
class TlsTest(TestCase):
    """Certificates of two authorities, "ours" and "theirs"."""

    NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")

    def setUp(self):
        super().setUp()
        for authority in ("ours", "theirs"):
            self.openssl("req", "-x509", *self.NEW_KEY, "-days", 2, "-subj", f"/CN={authority}", "-keyout",
                         f"{authority}.key", "-out", f"{authority}.pem")
            for name in ("server", "client"):
                self.certify(authority, f"{authority}-{name}")
        self.install("ours-server")

    def openssl(self, *arguments):
        subprocess.run(["openssl", *map(str, arguments)], cwd=self.folder, check=True, capture_output=True)

    def certify(self, authority, name, names="IP:127.0.0.1,DNS:localhost"):
        (self.folder / "names").write_text(f"subjectAltName={names}")
        self.openssl("req", *self.NEW_KEY, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", "request")
        self.openssl("x509", "-req", "-in", "request", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
                     "-CAcreateserial", "-days", 2, "-extfile", "names", "-out", f"{name}.pem")

    def install(self, name):
        """Makes it the server's certificate; its key comes with it at once."""
        folder = self.folder / f"{name}-{time.monotonic_ns()}"
        folder.mkdir()
        shutil.copy(self.folder / f"{name}.pem", folder / "cert.pem")
        shutil.copy(self.folder / f"{name}.key", folder / "key.pem")
        (self.folder / "next").symlink_to(folder)
        (self.folder / "next").rename(self.folder / "tls")

    def serve(self, *arguments):
        self.start_daemon("--tls-cert", self.folder / "tls/cert.pem", "--tls-key", self.folder / "tls/key.pem",
                          *arguments)

    def info(self, *arguments):
        return self.lenetctl("--timeout", 3, "info", *arguments)

    def ca(self, authority):
        return ("--ca", self.folder / f"{authority}.pem")

    def client(self, authority):
        return ("--cert", self.folder / f"{authority}-client.pem", "--key", self.folder / f"{authority}-client.key")

    def assert_unreachable(self, result, hint):
        self.assertEqual((result.code, result.out), (UNREACHABLE, ""))
        self.assertIn(hint, result.err)
        self.assertEqual(len(result.err.splitlines()), 2)

    def test_jobs_run_over_tls_and_who_does_not_know_the_server_gets_nothing(self):
        self.serve()
        result = self.lenetctl("submit", "--max-steps", 3, *self.ca("ours"))
        self.assertEqual(result.code, SUCCESS, result.err)
        self.assert_unreachable(self.info(), "It may serve with TLS alone: --tls or --ca.")
        self.assert_unreachable(self.info(*self.ca("theirs")), "leads to none of the roots")
        self.assert_unreachable(self.info("--tls"), "leads to none of the roots")

    def test_a_certificate_for_another_name_is_none(self):
        self.certify("ours", "elsewhere", "DNS:elsewhere.example")
        self.install("elsewhere")
        self.serve()
        self.assert_unreachable(self.info(*self.ca("ours")), "is for other names")

    def test_clients_need_a_certificate_where_the_server_asks_for_one(self):
        self.serve("--tls-client-ca", self.folder / "ours.pem")
        self.assertEqual(self.info(*self.ca("ours"), *self.client("ours")).code, SUCCESS)
        mixed = (*self.client("ours")[:2], *self.client("theirs")[2:])
        self.assert_unreachable(self.info(*self.ca("ours"), *mixed), "the key is not the certificate's")
        hint = "It may ask for a certificate that it knows: --cert and --key."
        self.assert_unreachable(self.info(*self.ca("ours")), hint)
        self.assert_unreachable(self.info(*self.ca("ours"), *self.client("theirs")), hint)

    def outdate(self, authority, name):
        """Certifies again what was certified last, for no time."""
        self.openssl("x509", "-req", "-in", "request", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-days",
                     0, "-extfile", "names", "-out", f"{name}.pem")

    def test_certificates_that_are_out_of_date_are_none(self):
        self.certify("ours", "late-client")
        self.outdate("ours", "late-client")
        self.serve("--tls-client-ca", self.folder / "ours.pem")
        late = ("--cert", self.folder / "late-client.pem", "--key", self.folder / "late-client.key")
        self.assert_unreachable(self.info(*self.ca("ours"), *late), "It may ask for a certificate that it knows")
        known = (*self.ca("ours"), *self.client("ours"))
        self.assertEqual(self.info(*known).code, SUCCESS)
        # One that the server takes up while it runs helps no client.
        self.certify("ours", "late-server")
        self.outdate("ours", "late-server")
        self.install("late-server")
        wait_until(lambda: self.info(*known).code == UNREACHABLE, "the new certificate is used")
        self.assert_unreachable(self.info(*known), "or is out of date")

    def test_an_old_root_among_others_does_no_harm(self):
        self.outdate("ours", "old")
        bundle = self.folder / "bundle.pem"
        bundle.write_text((self.folder / "old.pem").read_text() + (self.folder / "ours.pem").read_text())
        self.serve("--tls-client-ca", bundle)
        self.assertEqual(self.info(*self.ca("ours"), *self.client("ours")).code, SUCCESS)

    def test_certificates_may_have_roles(self):
        rules = self.folder / "rules"
        rules.write_text("certificate ours-client viewer\n")
        self.certify("ours", "other")
        self.serve("--tls-client-ca", self.folder / "ours.pem", "--access-file", rules)
        known = (*self.ca("ours"), *self.client("ours"))
        self.assertEqual(self.info(*known).code, SUCCESS)
        submit = self.lenetctl("submit", "--dataset", "small", "--max-steps", 3, *known)
        self.assertIn('"ours-client" has the role viewer', submit.err)
        other = self.info(*self.ca("ours"), "--cert", self.folder / "other.pem", "--key", self.folder / "other.key")
        self.assertIn("no rule for the certificate", other.err)

    def test_old_versions_of_tls_are_refused(self):
        self.serve()
        for version, allowed in (("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)):
            with self.subTest(version=version):
                # With all ciphers on, so that it is the version that fails.
                done = subprocess.run(["openssl", "s_client", "-connect", self.daemon.address, version, "-cipher",
                                       "ALL:@SECLEVEL=0", "-alpn", "h2", "-CAfile", self.folder / "ours.pem"],
                                      stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                                      timeout=PATIENCE)
                if allowed:
                    self.assertIn("Verify return code: 0 (ok)", done.stdout)
                    self.assertNotIn("Cipher is (NONE)", done.stdout)
                else:
                    # The server's doing, not that of a client which cannot speak it.
                    self.assertRegex(done.stderr, "alert protocol version|unexpected eof while reading")

    def test_new_certificates_are_taken_while_it_runs_and_jobs_go_on(self):
        self.serve()
        watcher = self.follow("submit", "--json", "--epochs", 10**6, "--evaluate-every", 0, *self.ca("ours"))
        watcher.wait_for(lambda line: "step_losses" in line)
        self.install("theirs-server")
        wait_until(lambda: self.info(*self.ca("theirs")).code == SUCCESS, "the new certificate is used")
        self.assertEqual(self.info(*self.ca("ours")).code, UNREACHABLE)
        seen = len(watcher.lines)
        wait_until(lambda: len(watcher.lines) > seen, "the stream that was open goes on")

    def served(self):
        """The certificate that new connections see."""
        done = subprocess.run(["openssl", "s_client", "-connect", self.daemon.address, "-alpn", "h2"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                              timeout=PATIENCE)
        return done.stdout.partition("-----BEGIN CERTIFICATE-----")[2].partition("-----END")[0].split()

    def test_certificates_are_swapped_under_load_without_a_lost_stream(self):
        self.certify("ours", "second")
        self.serve()
        job = self.lenetctl("submit", "--detach", "--epochs", 10**6, "--evaluate-every", 0, "--batch-size", 256,
                            *self.ca("ours")).out.strip()
        watch = ("watch", job, "--json", "--reconnect", 0, *self.ca("ours"))
        watchers = [self.follow(*watch) for _ in range(8)]
        for watcher in watchers:
            watcher.wait_for(lambda line: "step_losses" in line)
        calls = 0
        for name in ("second", "ours-server"):
            before = self.served()
            self.install(name)
            deadline = time.monotonic() + PATIENCE
            while self.served() == before:
                self.assertLess(time.monotonic(), deadline, f"{name} is not taken up")
                result = self.info(*self.ca("ours"))
                self.assertEqual(result.code, SUCCESS, result.err)
                calls += 1
        self.assertGreater(calls, 0)
        self.assertEqual(self.lenetctl("stop", job, "--wait", *self.ca("ours")).code, SUCCESS)
        for watcher in watchers:
            result = watcher.finish()
            self.assertEqual((result.code, result.err), (JOB_STOPPED, ""))
            self.assert_whole(records(result.out))

    def test_files_that_cannot_be_used_are_named(self):
        cert, key = self.folder / "tls/cert.pem", self.folder / "tls/key.pem"
        self.outdate("ours", "outdated")
        damaged = self.folder / "damaged.pem"
        damaged.write_text(cert.read_text() + cert.read_text()[:200])
        for arguments, reasons in (
                (("--tls-cert", cert), ["--tls-key is needed"]),
                (("--tls-key", key), ["--tls-cert is needed"]),
                (("--tls-cert", self.folder / "nosuch", "--tls-key", key), ["--tls-cert", "nosuch"]),
                (("--tls-cert", key, "--tls-key", key), ["--tls-cert", "no certificate"]),
                (("--tls-cert", damaged, "--tls-key", key), ["--tls-cert", "damaged.pem", "behind certificate 1"]),
                (("--tls-cert", cert, "--tls-key", cert), ["--tls-key", "no private key"]),
                (("--tls-cert", cert, "--tls-key", self.folder / "ours-client.key"),
                 ["--tls-key", "is not the key of"]),
                (("--tls-cert", self.folder / "outdated.pem", "--tls-key", self.folder / "theirs-client.key"),
                 ["--tls-cert", "outdated.pem", "out of date since"]),
                (("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", key),
                 ["--tls-client-ca", "no certificate"])):
            with self.subTest(arguments=arguments):
                code, err = self.fail_to_start("127.0.0.1:0", *arguments)
                self.assertEqual(code, LENETD_USAGE)
                for reason in reasons:
                    self.assertIn(reason, err)
        self.start_daemon()
        for arguments, reason in ((("--ca", "/nosuch"), "--ca: '/nosuch': No such file"),
                                  (("--ca", key), "no CERTIFICATE"),
                                  (("--cert", cert), "--cert and --key go together"),
                                  (("--ca", self.folder), f"--ca: '{self.folder}': Is a directory")):
            with self.subTest(arguments=arguments):
                result = self.info(*arguments)
                self.assertEqual(result.code, USAGE)
                self.assertIn(reason, result.err)

    def fail_to_start(self, listen, *arguments):
        result = subprocess.run([program("LENETD"), "--state-dir", self.folder / "other", "--listen", listen,
                                 "--metrics-listen", "off", *map(str, arguments)], capture_output=True, text=True,
                                timeout=PATIENCE)
        return result.returncode, result.stderr

    def test_without_tls_it_serves_no_other_machine_unless_that_is_asked_for(self):
        for listen in ("0.0.0.0:0", "[::]:0", "127.example.invalid:0"):
            code, err = self.fail_to_start(listen)
            self.assertEqual(code, LENETD_USAGE)
            self.assertIn(f"--listen {listen}", err)
            self.assertIn("--insecure", err)
        self.start_daemon("--insecure", listen="0.0.0.0:0")
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(), 0)
        self.start_daemon("--tls-cert", self.folder / "tls/cert.pem", "--tls-key", self.folder / "tls/key.pem",
                          listen="0.0.0.0:0")

    def test_the_watchdog_needs_no_certificate(self):
        name = str(self.folder / "notify")
        manager = NotifySocket(name)
        self.addCleanup(manager.close)
        with mock.patch.dict(os.environ, NOTIFY_SOCKET=name, WATCHDOG_USEC="1000000"):
            self.serve("--tls-client-ca", self.folder / "ours.pem")
        manager.receive_to("READY=1")
        lines = [line for _, message in manager.receive_for(4) for line in message]
        self.assertGreaterEqual(lines.count("WATCHDOG=1"), 5)
        self.assertNotIn("STATUS=gRPC stands still", lines)


if __name__ == "__main__":
    unittest.main()
