"""The configuration: file, environment and flags, and their check."""
import os
import subprocess
import unittest

from harness import PATIENCE, ROOT, SUCCESS, TestCase, program

LENETD_USAGE = 2


class ConfigTestCase(TestCase):

    def setUp(self):
        super().setUp()
        self.file = self.folder / "lenetd.toml"

    def write(self, text):
        """Replaces the file as a whole."""
        new = self.folder / "new.toml"
        new.write_text(text)
        new.rename(self.file)


class CheckTest(ConfigTestCase):

    def check(self, *arguments, **environment):
        return subprocess.run([program("LENETD"), "--check-config", *map(str, arguments)], capture_output=True,
                              text=True, timeout=PATIENCE, env={**os.environ, "HOME": "/home/u", **environment})

    def values(self, *arguments, **environment):
        """{key: (value, origin)}, as they are printed."""
        done = self.check(*arguments, **environment)
        self.assertEqual((done.returncode, done.stderr), (SUCCESS, ""))
        values = {}
        for line in done.stdout.splitlines():
            if " = " in line and not line.startswith("#"):
                key, rest = line.split(" = ", 1)
                values[key] = tuple(rest.rsplit("  # ", 1))
        return values

    def test_every_value_has_its_origin(self):
        self.write("listen = 'unix:/run/a \"b\"'\nlog_level = 'debug'\n\n[limits]\nmax_queued = 7\nmax_job_days = 8\n")
        values = self.values("--config", self.file, "--max-job-days", 10, LENETD_LOG_LEVEL="error",
                             LENETD_MAX_JOB_DAYS="9")
        self.assertEqual(values["listen"], (r'"unix:/run/a \"b\""', f"{self.file}:1"))
        self.assertEqual(values["log_level"], ('"error"', "LENETD_LOG_LEVEL"))
        self.assertEqual(values["max_queued"], ("7", f"{self.file}:5"))
        self.assertEqual(values["max_job_days"], ("10", "--max-job-days"))
        self.assertEqual(values["insecure"], ("false", "default"))

    def test_what_it_prints_is_a_configuration_file(self):
        self.write("state_dir = '/a \"b\" \\c'\ndata_dir = ['/x, y', \"/z'\"]\n[jobs]\ndrain_timeout = 0.5\n")
        arguments = ("--config", self.file, "--max-queued", 5, "--insecure")
        first = self.values(*arguments)
        self.write(self.check(*arguments).stdout)
        again = self.values(LENETD_CONFIG=str(self.file))
        self.assertEqual({key: value for key, (value, _) in again.items()},
                         {key: value for key, (value, _) in first.items()})
        self.assertEqual(again["data_dir"][0], "[\"/x, y\", \"/z'\"]")
        self.assertEqual((again["max_queued"][0], again["insecure"][0]), ("5", "true"))
        self.assertTrue(all(origin.startswith(f"{self.file}:") for _, origin in again.values()), again)

    def test_all_that_is_wrong_is_named(self):
        self.write("listn = 'a:1'\nbackend = 7\n[limits]\nmax_queued = 0\n")
        done = self.check("--config", self.file, "--drain-timeout", "soon", LENETD_MAX_QUEUE="1")
        self.assertEqual((done.returncode, done.stdout), (LENETD_USAGE, ""))
        self.assertEqual(done.stderr.splitlines(), [
            f"{self.file}:1:1: listn: there is no such setting; did you mean listen?",
            f"{self.file}:2:11: backend = 7: must be a string (auto, cpu, cuda), not an integer",
            f"{self.file}:4:14: limits.max_queued = 0: must be 1 to 1000000",
            "LENETD_MAX_QUEUE: there is no such setting; did you mean LENETD_MAX_QUEUED?",
            '--drain-timeout = "soon": must be 0, or 0.001 to 86400 seconds',
            "Run with --help for more information.",
        ])
        self.write("[limits\n")
        done = self.check("--config", self.file)
        self.assertEqual(done.returncode, LENETD_USAGE)
        self.assertIn(f"{self.file}:1:", done.stderr)
        missing = self.folder / "missing.toml"
        for done in (self.check("--config", missing), self.check(LENETD_CONFIG=str(missing))):
            self.assertEqual(done.returncode, LENETD_USAGE)
            self.assertIn(str(missing), done.stderr)
        # A daemon with such a file does not start.
        self.write("[limits]\nmax_queued = 0\n")
        done = subprocess.run([program("LENETD"), "--config", self.file, "--state-dir", self.folder / "state"],
                              capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, LENETD_USAGE)
        self.assertFalse((self.folder / "state").exists())

    def test_the_example_changes_nothing(self):
        values = self.values("--config", ROOT / "deploy/lenetd.toml")
        self.assertEqual({origin for _, origin in values.values()}, {"default"})


if __name__ == "__main__":
    unittest.main()
