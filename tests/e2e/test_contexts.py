"""Servers by name."""
import json
import os
import shutil
import stat
import subprocess
import unittest

from harness import ERROR, PATIENCE, SUCCESS, UNREACHABLE, USAGE, Result, TestCase, program


@unittest.skipUnless(shutil.which("openssl"), "needs openssl")
class ContextsTest(TestCase):

    def setUp(self):
        super().setUp()
        self.config = self.folder / "config"
        self.environment = {"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(self.config)}
        rules = self.folder / "rules"
        made = subprocess.run([program("LENETD"), "token", "add", "sam", "--role", "submitter", "--access-file", rules],
                              capture_output=True, text=True, check=True, timeout=PATIENCE)
        (self.folder / "sam.token").write_text(made.stdout)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "2", "-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
                        "-keyout", "server.key", "-out", "server.pem"], cwd=self.folder, check=True,
                       capture_output=True)
        self.start_daemon("--access-file", rules, "--tls-cert", self.folder / "server.pem", "--tls-key",
                          self.folder / "server.key")

    def run_ctl(self, *arguments, **variables):
        """lenetctl in the test's folder, with no server named but by arguments and variables."""
        done = subprocess.run([program("LENETCTL"), *map(str, arguments)], stdin=subprocess.DEVNULL, cwd=self.folder,
                              capture_output=True, text=True, env={**self.environment, **variables}, timeout=PATIENCE)
        return Result(done.returncode, done.stdout, done.stderr)

    def set_up_contexts(self):
        for arguments in (("set", "box", "--server", self.daemon.address, "--ca", "server.pem", "--token-file",
                           "sam.token"), ("use", "box")):
            result = self.run_ctl("context", *arguments)
            self.assertEqual((result.code, result.err), (SUCCESS, ""))

    def test_a_context_alone_reaches_a_server_with_tls_and_tokens(self):
        self.set_up_contexts()
        file = self.config / "lenet/lenetctl.toml"
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(file.parent.stat().st_mode), 0o700)
        self.assertNotIn((self.folder / "sam.token").read_text().strip(), file.read_text())
        result = self.run_ctl("submit", "--dataset", "small", "--max-steps", 3)
        self.assertEqual((result.code, result.err), (SUCCESS, ""), result.out)
        self.assertEqual(json.loads(self.run_ctl("list", "--json").out)["client"], "sam")
        # From another folder, and by name, whatever the variable says.
        for arguments, variables in ((("list",), {}), (("--context", "box", "list"), {"LENET_SERVER": "127.0.0.1:1"}),
                                     (("list",), {"LENET_CONTEXT": "box"})):
            done = subprocess.run([program("LENETCTL"), *arguments], cwd="/", capture_output=True, text=True,
                                  env={**self.environment, **variables}, check=False, timeout=PATIENCE)
            self.assertEqual((done.returncode, done.stderr), (SUCCESS, ""), arguments)
        self.assertEqual(self.run_ctl("list", LENET_CONTEXT="nosuch").code, USAGE)
        self.assertEqual(self.run_ctl("context", "remove", "box").code, SUCCESS)
        self.assertNotIn(self.daemon.address, self.run_ctl("list").err)

    def test_what_a_context_has_goes_to_no_other_server(self):
        self.set_up_contexts()
        # The same server, so that what would be sent were accepted; but named by the variable, or by the flag.
        named = {"LENET_SERVER": self.daemon.address}
        self.assertEqual(self.run_ctl("--timeout", 3, "list", **named).code, UNREACHABLE)  # without the roots
        for result in (self.run_ctl("list", LENET_CA="server.pem", **named),
                       self.run_ctl("list", "--server", self.daemon.address, "--ca", "server.pem")):
            self.assertEqual(result.code, ERROR)
            self.assertIn("UNAUTHENTICATED", result.err)
        self.assertEqual(self.run_ctl("list", "--server", self.daemon.address, "--context", "box").code, SUCCESS)

    def test_commands_at_once_lose_nothing(self):
        commands = [subprocess.Popen([program("LENETCTL"), "context", "set", f"c{i}", "--server", f"host:{i + 1}"],
                                     env=self.environment, stdout=subprocess.DEVNULL) for i in range(12)]
        self.assertEqual([command.wait(PATIENCE) for command in commands], [SUCCESS] * len(commands))
        listed = [json.loads(line) for line in self.run_ctl("context", "list", "--json").out.splitlines()]
        self.assertEqual({context["name"]: context["server"] for context in listed},
                         {f"c{i}": f"host:{i + 1}" for i in range(12)})


if __name__ == "__main__":
    unittest.main()
