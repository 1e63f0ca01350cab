"""The daemon's start and end."""
import json
import pathlib
import signal
import subprocess
import unittest

from harness import (JOB_STOPPED, PATIENCE, SUCCESS, UNREACHABLE, TestCase, program, records, step_losses, wait_until)

LENETD_BACKEND, LENETD_LISTEN = 3, 4


class ShutdownTest(TestCase):

    def test_sigterm_ends_jobs_and_streams_in_order(self):
        self.start_daemon()
        running = self.endless_job("--ranks", 2)
        queued = self.submit_detached()
        watchers = {job: [self.follow("watch", job, "--json") for _ in range(2)] for job in (running, queued)}
        for watcher in watchers[running]:
            watcher.wait_for(lambda line: "step_losses" in json.loads(line))
        for watcher in watchers[queued]:
            watcher.wait_for(lambda line: "state_change" in json.loads(line))
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(), 0)
        for job, followers in watchers.items():
            results = [watcher.finish() for watcher in followers]
            self.assertEqual(results[0], results[1])
            self.assertEqual((results[0].code, results[0].err), (JOB_STOPPED, ""))
            log = records(results[0].out)
            self.assert_whole(log)
            self.assertEqual(log[-1]["terminal"]["state"], "STOPPED")
            last = int(log[-1]["terminal"]["last_step"])
            losses = step_losses(log)
            if job == queued:
                self.assertEqual((last, losses), (0, {}))
            else:
                self.assertEqual(set(losses), {(step, rank) for step in range(1, last + 1) for rank in (0, 1)})
                saved = [record["checkpoint_saved"] for record in log if "checkpoint_saved" in record]
                self.assertEqual(int(saved[-1]["step"]), last)
                self.assertTrue(pathlib.Path(saved[-1]["path"]).is_file())

    def test_an_idle_daemon_ends_at_once(self):
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            self.start_daemon().process.send_signal(signal_number)
            self.assertEqual(self.daemon.wait(), 0)

    def test_a_watcher_whose_server_is_gone_gives_up(self):
        self.start_daemon()
        job = self.endless_job()
        watcher = self.follow("watch", job, "--json", "--reconnect-timeout", 1)
        watcher.wait_for(lambda line: "step_losses" in json.loads(line))
        self.daemon.kill()
        result = watcher.finish()
        self.assertEqual(result.code, UNREACHABLE)
        self.assertIn(self.daemon.address, result.err)
        records(result.out)


class StartTest(TestCase):

    def run_lenetd(self, *arguments):
        return subprocess.run([program("LENETD"), "--data-dir", self.data_dir, "--state-dir", self.folder / "state2",
                               *arguments], capture_output=True, text=True, timeout=PATIENCE)

    def test_the_second_daemon_on_a_port_is_refused(self):
        self.start_daemon()
        second = self.run_lenetd("--listen", self.daemon.address, "--backend", "cpu", "--plugin-dir",
                                 program("LENET_PLUGINS"))
        self.assertEqual(second.returncode, LENETD_LISTEN, second.stderr)
        self.assertIn(self.daemon.address, second.stderr)
        self.assertIn("in use", second.stderr)
        self.assert_serves()

    def test_a_daemon_without_the_backend_it_was_told_to_use_does_not_start(self):
        empty = self.folder / "no-plugins"
        empty.mkdir()
        for backend in ("cuda", "cpu", "auto"):
            done = self.run_lenetd("--listen", "127.0.0.1:0", "--backend", backend, "--plugin-dir", empty)
            self.assertEqual(done.returncode, LENETD_BACKEND, done.stderr)
            self.assertIn(str(empty), done.stderr)

    def test_a_port_is_free_again_after_the_daemon(self):
        address = self.start_daemon().address
        self.must("submit", "--max-steps", 3)
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(), 0)
        result = self.lenetctl("info")
        self.assertEqual((result.code, result.out), (UNREACHABLE, ""))
        self.assertIn(address, result.err)
        self.start_daemon(listen=address)
        self.assertEqual(self.daemon.address, address)
        self.assert_serves()

    def test_no_data_sets_at_all(self):
        self.data_dir = self.folder / "nothing"
        self.data_dir.mkdir()
        self.start_daemon()
        self.assertEqual(self.must("datasets", "--json"), "")
        result = self.lenetctl("submit")
        self.assertNotEqual(result.code, SUCCESS)
        self.assertIn("data set", result.err)


if __name__ == "__main__":
    unittest.main()
