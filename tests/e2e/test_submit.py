"""Jobs from submit to their end, and what those who follow them see."""
import json
import math
import re
import signal
import time
import unittest

from harness import (INTERRUPTED, JOB_FAILED, JOB_STOPPED, SUCCESS, TestCase, records, step_losses, wait_until)

LINES = (
    r"job \w+: .+",
    r"step \d+ rank \d+ loss \S+",
    r"epoch \d+/\d+: mean loss \S+, [\d,]+ images/s, \S+( s)?, learning rate \S+",
    r"evaluation at step \d+: accuracy \d+\.\d\d % \([\d,]+ of [\d,]+\), mean loss \S+, \S+( s)?",
    r"checkpoint at step \d+: \S+ \(\S+ \wB\)",
)


class SubmitTest(TestCase):

    def test_follows_the_job_in_plain_lines(self):
        self.start_daemon()
        # 640 images in batches of 2 x 16 are 20 steps an epoch.
        out = self.must("submit", "--ranks", 2, "--batch-size", 16, "--epochs", 2)
        for line in out.splitlines():
            self.assertTrue(any(re.fullmatch(pattern, line) for pattern in LINES), line)
        steps = re.findall(r"^step (\d+) rank (\d) loss (\S+)$", out, re.M)
        self.assertEqual(sorted((int(step), int(rank)) for step, rank, _ in steps),
                         [(step, rank) for step in range(1, 41) for rank in (0, 1)])
        self.assertEqual(len(re.findall(r"^epoch \d/2: ", out, re.M)), 2)
        self.assertEqual(len(re.findall(r" of 200\), mean loss", out)), 2)
        self.assertRegex(out.splitlines()[-1], r"^job \w+: succeeded after 40 steps, accuracy \d+\.\d\d %$")

    def test_json_is_pure_and_whole(self):
        self.start_daemon()
        job, *log = records(self.must("submit", "--json", "--ranks", 2, "--batch-size", 16, "--epochs", 2))
        self.assertEqual(job["spec"]["epochs"], 2)
        self.assert_whole(log)
        self.assertEqual(set(step_losses(log)), {(step, rank) for step in range(1, 41) for rank in (0, 1)})
        self.assertEqual([int(r["evaluation"]["count"]) for r in log if "evaluation" in r], [200, 200])
        self.assertEqual(log[-1]["terminal"]["state"], "SUCCEEDED")
        self.assertEqual(log[-1]["terminal"]["rank_steps"], ["40", "40"])
        for command in ("list", "info", "datasets"):
            self.assertGreater(len(records(self.must(command, "--json"))), 0)
        shown = self.show(job["id"])
        self.assertEqual(shown["state"], "SUCCEEDED")
        self.assertEqual(len(set(shown["weights_checksums"])), 1)
        self.assertEqual(len(shown["weights_checksums"]), 2)

    def test_detach_prints_the_id_alone_and_the_log_is_served_later(self):
        self.start_daemon()
        job = self.submit_detached("--epochs", 1, "--name", "named")
        first = self.lenetctl("watch", job, "--json")
        self.assertEqual((first.code, first.err), (SUCCESS, ""))
        self.assert_whole(records(first.out))
        # And again once it has long ended, the same to the byte.
        self.assertEqual(self.must("watch", job, "--json"), first.out)
        self.assertIn("named", self.must("list"))
        self.assertIn("succeeded", self.must("show", job))

    def test_two_watchers_and_a_late_one_see_the_same_whole_log(self):
        self.start_daemon()
        job = self.endless_job("--ranks", 2)
        watchers = [self.follow("watch", job, "--json") for _ in range(2)]
        for watcher in watchers:
            watcher.wait_for(lambda line: "step_losses" in json.loads(line))
        self.must("stop", job)
        results = [watcher.finish() for watcher in watchers]
        late = self.lenetctl("watch", job, "--json")
        self.assert_whole(records(late.out))
        for result in results + [late]:
            self.assertEqual((result.code, result.err), (JOB_STOPPED, ""))
            self.assertEqual(result.out, late.out)
        middle = len(late.out.splitlines()) // 2
        tail = self.lenetctl("watch", job, "--json", "--from", middle)
        self.assertEqual(tail.out.splitlines(), late.out.splitlines()[middle - 1:])
        last = len(late.out.splitlines())
        for beyond in (last + 1, last + 1000):
            began = time.monotonic()
            none = self.lenetctl("watch", job, "--json", "--from", beyond)
            self.assertEqual((none.code, none.out), (JOB_STOPPED, ""))
            self.assertEqual(none.err,
                             f"lenetctl: job {job} has ended (stopped) and has no records from {beyond} on\n")
            self.assertLess(time.monotonic() - began, 30)

    def test_watch_takes_ranks_kinds_and_steps(self):
        self.start_daemon()
        job = self.submit_detached("--ranks", 2, "--batch-size", 16, "--epochs", 2)
        self.lenetctl("watch", job)
        log = records(self.must("watch", job, "--json", "--every", 10, "--ranks", 1, "--kinds", "step-losses"))
        self.assertEqual(set(step_losses(log)), {(step, 1) for step in (1, 10, 20, 30, 40)})
        self.assertEqual({key for record in log for key in record} - {"sequence", "attempt", "time"},
                         {"step_losses", "terminal"})
        lines = self.must("watch", job, "--every", 20, "--ranks", 0, "--kinds", "step-losses").splitlines()
        self.assertEqual([line.split(" loss ")[0] for line in lines if line.startswith("step ")],
                         ["step 1 rank 0", "step 20 rank 0", "step 40 rank 0"])

    def test_a_watcher_that_stands_still_slows_nothing_and_misses_nothing(self):
        self.start_daemon()
        job = self.endless_job("--ranks", 2)
        watcher = self.follow("watch", job, "--json")
        watcher.wait_for(lambda line: "step_losses" in json.loads(line))
        watcher.process.send_signal(signal.SIGSTOP)
        self.addCleanup(watcher.process.send_signal, signal.SIGCONT)
        before = self.step_of(job)
        wait_until(lambda: self.step_of(job) > before + 2000, "the job goes on")
        self.must("stop", job, "--wait")
        watcher.process.send_signal(signal.SIGCONT)
        self.assertEqual(watcher.finish().out, self.lenetctl("watch", job, "--json").out)

    def test_interrupting_detaches(self):
        self.start_daemon()
        follower = self.follow("submit", "--epochs", 10**6, "--every", 1)
        line = follower.lines[follower.wait_for(lambda line: line.startswith("job "))]
        job = line.split()[1].rstrip(":")
        follower.wait_for(lambda line: line.startswith("step "))
        follower.process.send_signal(signal.SIGINT)
        result = follower.finish()
        self.assertEqual(result.code, INTERRUPTED)
        self.assertIn(f"--server {self.daemon.address} watch {job}\n", result.err)
        self.assertIn(f"--server {self.daemon.address} stop {job}\n", result.err)
        self.assertEqual(self.show(job)["state"], "RUNNING")
        self.must("stop", job, "--wait")

    def test_a_job_outlives_the_client_that_is_killed(self):
        self.start_daemon()
        follower = self.follow("submit", "--json", "--epochs", 200)
        job = json.loads(follower.lines[follower.wait_for(lambda line: True)])["id"]
        follower.wait_for(lambda line: "step_losses" in json.loads(line))
        follower.process.kill()
        follower.finish()
        log = records(self.must("watch", job, "--json"))
        self.assert_whole(log)
        self.assertEqual(log[-1]["terminal"]["state"], "SUCCEEDED")

    def test_a_loss_that_is_not_finite_fails_the_job_or_is_reported(self):
        self.start_daemon()
        flags = ("--init", "uniform:-1e30,1e30", "--batch-size", 16, "--max-steps", 40)
        failed = self.lenetctl("submit", *flags)
        self.assertEqual(failed.code, JOB_FAILED, failed)
        self.assertRegex(failed.err, r"^lenetctl: job \w+ failed: rank \d( after step \d+)?, in step: ")
        self.assertRegex(failed.out.splitlines()[-1], r"^job \w+: failed after \d+ steps?$")
        self.assertEqual(len(failed.err.splitlines()), 1)
        job, *log = records(self.must("submit", "--json", "--nan-policy", "continue", *flags))
        losses = step_losses(log)
        self.assertTrue(any(math.isnan(loss) for loss in losses.values()))
        self.assertEqual(len(losses), 40 * int(job["spec"]["ranks"] or len(log[-1]["terminal"]["rank_steps"])))
        self.assert_serves()

    def test_show_says_what_a_job_came_to(self):
        self.start_daemon()
        shown = self.must("show", self.submit_detached("--max-steps", "010", "--ranks", 1))
        self.assertRegex(shown, r"(?m)^steps: +10, ")
        self.assertRegex(shown, r"(?m)^optimizer: +sgd, momentum 0\.9, nesterov$")
        self.assertRegex(shown, r"(?m)^schedule: +linear, warm-up 0\.2$")
        self.assertRegex(shown, r"(?m)^clip norm: +1$")
        shown = self.must("show", self.submit_detached("--max-steps", 3, "--clip-norm", 0, "--optimizer", "adamw",
                                                       "--schedule", "step"))
        self.assertRegex(shown, r"(?m)^optimizer: +adamw, beta1 0\.9, beta2 0\.999, epsilon 1e-08$")
        self.assertRegex(shown, r"(?m)^schedule: +step, gamma 0\.1, step epochs 1$")
        self.assertRegex(shown, r"(?m)^clip norm: +none$")

    def test_one_request_id_makes_one_job(self):
        self.start_daemon()
        arguments = ("--max-steps", 3, "--request-id", "again")
        self.assertEqual(self.submit_detached(*arguments), self.submit_detached(*arguments))
        self.assertEqual(len(self.must("list", "--json").splitlines()), 1)
        other = self.lenetctl("submit", "--max-steps", 4, "--request-id", "again")
        self.assertIn("ALREADY_EXISTS", other.err)

    def test_jobs_wait_for_their_turn(self):
        self.start_daemon()
        first = self.endless_job()
        second = self.submit_detached("--max-steps", 3)
        self.assertEqual(self.show(second)["state"], "QUEUED")
        self.assertEqual(self.show(second)["queue_position"], 1)
        watcher = self.follow("watch", second)
        watcher.wait_for(lambda line: "queued" in line)
        self.must("stop", first, "--wait")
        self.assertEqual(watcher.finish().code, SUCCESS)


if __name__ == "__main__":
    unittest.main()
