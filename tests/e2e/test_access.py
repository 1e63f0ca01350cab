"""Who may do what."""
import signal
import stat
import subprocess
import unittest

from api_harness import ApiTestCase, grpc
from harness import ERROR, PATIENCE, SUCCESS, USAGE, TestCase, program, wait_until

LENETD_FAILURE, LENETD_USAGE = 1, 2


class AccessTest(TestCase):

    def setUp(self):
        super().setUp()
        self.rules = self.folder / "rules"
        self.tokens = {}
        for name, role in (("vera", "viewer"), ("sam", "submitter"), ("sue", "submitter"), ("ada", "admin")):
            self.make_token(name, role)

    def lenetd(self, *arguments):
        return subprocess.run([program("LENETD"), *map(str, arguments)], capture_output=True, text=True,
                              timeout=PATIENCE)

    def make_token(self, name, role):
        made = self.lenetd("token", "add", name, "--role", role, "--access-file", self.rules)
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        self.tokens[name] = made.stdout.strip()
        (self.folder / name).write_text(made.stdout)

    def serve(self, **options):
        self.log = open(self.folder / "log", "w", encoding="utf-8")
        self.addCleanup(self.log.close)
        self.start_daemon("--access-file", self.rules, stderr=self.log, **options)

    def as_(self, name, *arguments):
        return self.lenetctl(*(("--token-file", self.folder / name) if name else ()), *arguments)

    def assert_refused(self, result, code):
        self.assertEqual((result.code, result.out), (ERROR, ""))
        self.assertIn(code, result.err)

    def endless(self, name):
        return self.as_(name, "submit", "--detach", "--epochs", 10**6, "--evaluate-every", 0).out.strip()

    def test_roles_bound_what_a_caller_may_do(self):
        self.serve()
        for command in (("info",), ("list",), ("datasets",),
                        ("submit", "--dataset", "small", "--max-steps", 3)):
            self.assert_refused(self.as_("", *command), "UNAUTHENTICATED")
        for command in (("info",), ("list",), ("datasets",)):
            self.assertEqual(self.as_("vera", *command).code, SUCCESS)
        self.assert_refused(self.as_("vera", "submit", "--dataset", "small", "--max-steps", 3), "PERMISSION_DENIED")
        job = self.endless("sam")
        self.assertEqual(self.as_("vera", "show", job).code, SUCCESS)
        self.assertIn('"client":"sam"', self.as_("vera", "show", job, "--json").out.replace(" ", ""))
        for name in ("vera", "sue"):
            for command in ("stop", "pause", "resume", "rm"):
                self.assert_refused(self.as_(name, command, job), "PERMISSION_DENIED")
        self.assertEqual(self.as_("sam", "pause", job).code, SUCCESS)
        self.assertEqual(self.as_("sam", "resume", job).code, SUCCESS)
        self.assertEqual(self.as_("sam", "stop", job, "--wait").code, SUCCESS)
        self.assertEqual(self.as_("vera", "watch", job).code, 4)
        self.assertEqual(self.as_("ada", "rm", job).code, SUCCESS)
        log = (self.folder / "log").read_text()
        for line in ("audit: sam (submitter): Start of job", f"audit: sam (submitter): Pause of job {job}: OK",
                     f"Stop of job {job}: PERMISSION_DENIED", f"audit: ada (admin): DeleteJob of job {job}: OK",
                     "audit: 127.0.0.1: Start: UNAUTHENTICATED"):
            self.assertIn(line, log)
        for token in self.tokens.values():
            self.assertNotIn(token, log + self.rules.read_text())

    def test_the_streams_ask_too(self):
        self.serve()
        job = self.endless("sam")
        self.assert_refused(self.as_("", "watch", job), "UNAUTHENTICATED")
        (self.folder / "stranger").write_text("lenet_" + "A" * 43)
        self.assert_refused(self.as_("stranger", "watch", job), "UNAUTHENTICATED")

    def test_the_unix_socket_is_its_owners_unless_a_rule_says_otherwise(self):
        self.serve(listen=f"unix:{self.folder}/socket")
        self.assertEqual(self.as_("", "submit", "--dataset", "small", "--max-steps", 3).code, SUCCESS)
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(), 0)
        with self.rules.open("a") as rules:
            rules.write("unix viewer\n")
        self.serve(listen=f"unix:{self.folder}/socket")
        self.assertEqual(self.as_("", "list").code, SUCCESS)
        self.assert_refused(self.as_("", "submit", "--dataset", "small", "--max-steps", 3), "PERMISSION_DENIED")

    def test_sighup_reads_the_rules_again(self):
        self.serve()
        self.assertEqual(self.as_("sam", "list").code, SUCCESS)
        good = self.rules.read_text()
        self.rules.write_text("".join(line for line in good.splitlines(True) if " sam " not in line))
        self.daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.as_("sam", "list").code == ERROR, "the token is taken back")
        self.assertEqual(self.as_("ada", "list").code, SUCCESS)
        self.rules.write_text(good + "sesame\n")
        self.daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "the rules stay as they were" in (self.folder / "log").read_text(), "the error is told")
        self.assert_refused(self.as_("sam", "list"), "UNAUTHENTICATED")
        self.assertEqual(self.as_("ada", "list").code, SUCCESS)

    def test_bad_rules_and_tokens_are_named(self):
        for text, reason in (("token a viewer\n", "rules:5: a rule \"token\" has 4 words"),
                             ("sesame\n", "begins no rule")):
            good = self.rules.read_text()
            self.rules.write_text(good + text)
            done = self.lenetd("--access-file", self.rules, "--state-dir", self.folder / "other", "--listen",
                               "127.0.0.1:0")
            self.assertEqual(done.returncode, LENETD_USAGE, done.stderr)
            self.assertIn(reason, done.stderr)
            self.rules.write_text(good)
        for arguments, code in ((("9lives", "--role", "admin", "--access-file", self.rules), LENETD_USAGE),
                                (("cat", "--role", "root", "--access-file", self.rules), LENETD_USAGE),
                                (("cat", "--role", "admin"), LENETD_USAGE),
                                (("cat", "--role", "admin", "--access-file", self.folder), LENETD_FAILURE)):
            done = self.lenetd("token", "add", *arguments)
            self.assertEqual((done.returncode, done.stdout), (code, ""), arguments)
        self.assertEqual(stat.S_IMODE(self.rules.stat().st_mode) & 0o007, 0)
        self.serve()
        (self.folder / "empty").write_text("\n")
        for name, reason in (("empty", "does not hold one token"), ("nosuch", "No such file")):
            result = self.as_(name, "info")
            self.assertEqual(result.code, USAGE)
            self.assertIn(reason, result.err)

    def test_a_token_never_goes_to_another_machine_in_the_clear(self):
        done = subprocess.run([program("LENETCTL"), "--server", "192.0.2.1:5", "--token-file", self.folder / "ada",
                               "info"], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("--tls or --ca", done.stderr)


class ReflectionTest(ApiTestCase):

    def test_it_is_off_where_callers_have_roles(self):
        rules = self.folder / "rules"
        rules.write_text("anyone admin\n")
        for arguments, works in (((), True), (("--access-file", rules), False)):
            with self.subTest(arguments=arguments):
                self.start_daemon(*arguments)
                with grpc.insecure_channel(self.daemon.address) as channel:
                    # A request for the list of services.
                    call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
                    answers = call(iter([b"\x3a\x01*"]), timeout=PATIENCE)
                    if works:
                        self.assertIn(b"lenet.v1.TrainingService", next(answers))
                    else:
                        with self.assertRaises(grpc.RpcError) as refused:
                            next(answers)
                        self.assertEqual(refused.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
                self.daemon.terminate()
                self.daemon.wait()


if __name__ == "__main__":
    unittest.main()
