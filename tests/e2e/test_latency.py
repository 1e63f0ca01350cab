"""How soon the first loss comes, and how soon a stop takes effect.

Also the benchmark of it: LENET_RUNS jobs (10), on the backend that LENET_BACKEND names.
"""
import datetime
import json
import os
import time
import unittest

from harness import TestCase

RUNS = int(os.environ.get("LENET_RUNS", "10"))
# Loose, for slow and busy machines; the time itself is printed.
MAX_SECONDS = 2.0


def when(record):
    return datetime.datetime.fromisoformat(record["time"].replace("Z", "+00:00")).timestamp()


def show(what, times):
    """Prints them, and gives the median."""
    times = sorted(times)
    print(f"{what}: median {1000 * times[len(times) // 2]:.0f} ms, least {1000 * times[0]:.0f} ms, "
          f"most {1000 * times[-1]:.0f} ms")
    return times[len(times) // 2]


class LatencyTest(TestCase):

    def test_the_first_loss_comes_soon_after_start_on_a_warm_daemon(self):
        self.start_daemon()
        self.must("submit", "--max-steps", 3)
        from_launch, from_start = [], []
        for _ in range(RUNS):
            follower = self.follow("submit", "--json", "--dataset", "small", "--max-steps", 3)
            job = follower.wait_for(lambda line: "spec" in json.loads(line))
            loss = follower.wait_for(lambda line: "step_losses" in json.loads(line))
            from_launch.append(follower.times[loss] - follower.started)
            from_start.append(follower.times[loss] - follower.times[job])
            follower.finish()
        self.assertLess(show("from the launch of lenetctl to the first loss", from_launch), MAX_SECONDS)
        self.assertLess(show("from the answer of Start to the first loss", from_start), MAX_SECONDS)

    def test_a_stop_takes_effect_soon(self):
        self.start_daemon()
        to_last_step, to_end = [], []
        for run in range(RUNS):
            job = self.endless_job()
            time.sleep(0.1 + 0.003 * (run % 7))
            self.must("stop", job, "--wait")
            log = self.log(job)
            asked = [when(record) for record in log if record.get("state_change", {}).get("to") == "STOPPING"]
            self.assertEqual(len(asked), 1)
            to_last_step.append(max(when(record) for record in log if "step_losses" in record) - asked[0])
            to_end.append(when(log[-1]) - asked[0])
        self.assertLess(show("from STOPPING to the last step's losses", to_last_step), MAX_SECONDS)
        self.assertLess(show("from STOPPING to the end, the state saved", to_end), MAX_SECONDS)


if __name__ == "__main__":
    unittest.main()
