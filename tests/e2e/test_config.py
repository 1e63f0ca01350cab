"""The configuration: file, environment and flags, their check, and SIGHUP."""
import os
import signal
import subprocess
import unittest

from harness import ERROR, PATIENCE, ROOT, SUCCESS, TestCase, program, wait_until

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
        self.assertEqual(values["listen"], (r'["unix:/run/a \"b\""]', f"{self.file}:1"))
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
        for text in ("[limits\n", "[.limits]\n", "[=]\n"):
            self.write(text)
            done = self.check("--config", self.file)
            self.assertEqual(done.returncode, LENETD_USAGE, done.stderr)
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


class ReloadTest(ConfigTestCase):

    def setUp(self):
        super().setUp()
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a daemon that is started to ignore it does
        self.addCleanup(signal.signal, signal.SIGHUP, before)
        self.log_file = self.folder / "log"

    def serve(self, *arguments):
        with open(self.log_file, "ab") as log:
            self.start_daemon("--config", self.file, *arguments, stderr=log)

    def log_lines(self):
        """The messages so far."""
        return [line.split("] ", 1)[-1] for line in self.log_file.read_text().splitlines()]

    def reload(self):
        """Sends the signal, and gives the messages of that reload."""
        before = len(self.log_lines())
        self.daemon.process.send_signal(signal.SIGHUP)

        def done():
            lines = [line for line in self.log_lines()[before:] if line.startswith("reload: ")]
            last = lines[-1] if lines else ""
            return lines if "settings changed" in last or "stays as it is" in last else None

        return wait_until(done, "the configuration is read again")

    def test_limits_change_under_a_running_job(self):
        self.write("[limits]\nmax_jobs_per_client = 1\n")
        self.serve()
        job = self.endless_job()
        refused = self.lenetctl("submit", "--detach", "--max-steps", 3)
        self.assertEqual(refused.code, ERROR, refused.err)
        self.assertIn("the limit is 1", refused.err)

        self.write("[limits]\nmax_jobs_per_client = 2\n")
        self.assertEqual(self.reload(), [
            f"reload: limits.max_jobs_per_client: 1 -> 2 ({self.file}:2)", "reload: done, 1 settings changed"])
        self.submit_detached("--epochs", 10**6)
        self.assertIn("the limit is 2", self.lenetctl("submit", "--detach", "--max-steps", 3).err)

        # The job has not noticed.
        self.assertEqual(self.show(job)["state"], "RUNNING")
        step = self.step_of(job)
        wait_until(lambda: self.step_of(job) > step, "the job goes on")
        self.assertEqual(self.lenetctl("stop", job, "--wait").code, SUCCESS)
        self.assert_whole(self.log(job))
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(), 0)

    def test_a_bad_file_changes_nothing(self):
        self.write("[limits]\nmax_jobs_per_client = 1\n")
        self.serve()
        job = self.endless_job()
        for text, wrong in (("log_level = 'debug'\n[limits]\nmax_jobs_per_client = -1\n",
                             f"{self.file}:3:23: limits.max_jobs_per_client = -1: must be 0 to 1000000"),
                            ("[limits]\nmax_jobs_per_client == 2\n", f"{self.file}:2:"),
                            ("[limits]\nmax_jobs_per_clients = 2\n", "did you mean limits.max_jobs_per_client?")):
            self.write(text)
            lines = self.reload()
            self.assertIn(wrong, lines[0])
            self.assertEqual(lines[1:], ["reload: the configuration stays as it is"])
        self.file.unlink()
        self.assertIn(str(self.file), self.reload()[0])
        self.assertIn("the limit is 1", self.lenetctl("submit", "--detach", "--max-steps", 3).err)
        self.assertEqual(self.show(job)["state"], "RUNNING")

        self.write("[limits]\nmax_jobs_per_client = 0\n")
        self.assertEqual(self.reload()[-1], "reload: done, 1 settings changed")
        self.assertEqual(self.lenetctl("stop", job, "--wait").code, SUCCESS)
        self.assert_serves()

    def test_data_folders_and_the_log_level_change_and_a_timeout_does_not(self):
        other = self.folder / "other"
        other.mkdir()
        (self.data_dir / "small").rename(other / "moved")
        self.data_dir = None  # no flag: it would go before the file
        self.write("log_level = 'error'\ndata_dir = '/nowhere'\n")
        self.serve()
        self.assertEqual(self.must("datasets", "--json"), "")
        self.assertEqual(self.log_lines(), [])
        self.write(f"data_dir = '{other}'\nlog_level = 'info'\nlisten = 'unix:/x'\n[jobs]\ndrain_timeout = 7\n")
        self.daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reload: done, 2 settings changed" in self.log_lines(), "the configuration is read again")
        self.assertIn(f"data sets: moved; looked in {other}", self.log_lines())
        self.must("submit", "--dataset", "moved", "--max-steps", 3)

        # The address is a flag's. The timeout's warning comes again until the file has the old one.
        restart = f"reload: jobs.drain_timeout: 30 -> 7 ({self.file}:5) needs a restart"
        self.assertEqual(self.reload(), [restart, "reload: done, 0 settings changed"])
        self.write(f"data_dir = '{other}'\n")
        self.assertEqual(self.reload(), ["reload: done, 0 settings changed"])

    def test_it_stays_ignored_under_nohup(self):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.write("")
        self.serve()
        self.write("[limits]\nmax_queued = 5\n")
        self.daemon.process.send_signal(signal.SIGHUP)
        self.assert_serves()
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(), 0)
        self.assertFalse([line for line in self.log_lines() if line.startswith("reload: ")])


if __name__ == "__main__":
    unittest.main()
