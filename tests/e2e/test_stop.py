"""Jobs that are ended early.

LENET_STOPS: how many are stopped at any moment.
"""
import os
import pathlib
import random
import time
import unittest

from harness import ERROR, JOB_STOPPED, TestCase, records, step_losses

STOPS = int(os.environ.get("LENET_STOPS", "20"))


class StopTest(TestCase):

    def test_all_ranks_report_the_same_last_step_and_the_state_is_saved(self):
        self.start_daemon()
        job = self.endless_job("--ranks", 3)
        watcher = self.follow("watch", job, "--json")
        stopped = records(self.must("stop", job, "--wait", "--json"))[0]
        self.assertEqual(stopped["state"], "STOPPED")
        result = watcher.finish()
        self.assertEqual(result.code, JOB_STOPPED)
        log = records(result.out)
        self.assert_whole(log)
        terminal = log[-1]["terminal"]
        last = int(terminal["last_step"])
        self.assertGreater(last, 0)
        self.assertEqual(terminal["rank_steps"], [str(last)] * 3)
        losses = step_losses(log)
        self.assertEqual(set(losses), {(step, rank) for step in range(1, last + 1) for rank in range(3)})
        saved = [record["checkpoint_saved"] for record in log if "checkpoint_saved" in record]
        self.assertEqual(saved[-1]["step"], str(last))
        path = pathlib.Path(saved[-1]["path"])
        self.assertEqual(path.stat().st_size, int(saved[-1]["bytes"]))
        self.assertIn(self.daemon.state_dir, path.parents)
        shown = self.show(job)
        self.assertEqual(shown["checkpoint"], str(path))
        self.assertEqual(set(shown["weights_checksums"]), {saved[-1]["weights_checksum"]})
        # Stopping what has stopped is harmless.
        self.assertEqual(records(self.must("stop", job, "--json"))[0]["state"], "STOPPED")
        self.assert_serves()

    def test_abort_ends_the_job_now(self):
        self.start_daemon()
        job = self.endless_job("--ranks", 2)
        watcher = self.follow("watch", job, "--json")
        self.assertEqual(records(self.must("stop", job, "--abort", "--wait", "--json"))[0]["state"], "STOPPED")
        result = watcher.finish()
        self.assertEqual(result.code, JOB_STOPPED)
        log = records(result.out)
        self.assert_whole(log)
        steps = [int(step) for step in log[-1]["terminal"]["rank_steps"]]
        self.assertEqual(int(log[-1]["terminal"]["last_step"]), min(steps))
        self.assertEqual(self.show(job)["weights_checksums"], [])
        self.assert_serves()

    def test_a_queued_job_that_is_stopped_never_runs(self):
        self.start_daemon()
        first = self.endless_job()
        second = self.submit_detached()
        self.assertEqual(self.show(second)["state"], "QUEUED")
        self.must("stop", second, "--wait")
        log = self.log(second)
        self.assert_whole(log)
        self.assertEqual(log[-1]["terminal"]["state"], "STOPPED")
        self.assertEqual(log[-1]["terminal"]["last_step"], "0")
        self.assertEqual(step_losses(log), {})
        self.must("stop", first, "--wait")
        self.assert_serves()

    def test_stops_at_any_moment_end_in_order(self):
        self.start_daemon()
        rng = random.Random(1)
        for i in range(STOPS):
            with self.subTest(i=i):
                job = self.submit_detached("--ranks", 2, "--epochs", 10**6, "--batch-size", 16, "--checkpoint-steps", 7)
                # From the queue, the start, an epoch, an evaluation, a save: whatever the job has come to by now.
                time.sleep(rng.choice((0, 0.05, 0.1)) * rng.random())
                self.must("stop", job, "--wait")
                log = self.log(job)
                self.assert_whole(log)
                terminal = log[-1]["terminal"]
                self.assertEqual(terminal["state"], "STOPPED")
                self.assertEqual(len(set(terminal["rank_steps"])) <= 1, True, terminal)
        self.assert_serves()

    def test_an_unknown_job_cannot_be_stopped(self):
        self.start_daemon()
        for command in ("stop", "show", "watch"):
            result = self.lenetctl(command, "nosuchjob")
            self.assertEqual((result.code, result.out), (ERROR, ""))
            self.assertIn("NOT_FOUND", result.err)
            self.assertIn(self.daemon.address, result.err)


if __name__ == "__main__":
    unittest.main()
