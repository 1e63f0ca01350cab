"""How soon the first loss comes.

Also the benchmark of it: LENET_RUNS jobs (10), on the backend that LENET_BACKEND names.
"""
import json
import os
import unittest

from harness import TestCase

RUNS = int(os.environ.get("LENET_RUNS", "10"))
# Loose, for slow and busy machines; the time itself is printed.
MAX_SECONDS = 2.0


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
        for what, times in (("the launch of lenetctl", from_launch), ("the answer of Start", from_start)):
            times.sort()
            print(f"from {what} to the first loss: median {1000 * times[RUNS // 2]:.0f} ms, "
                  f"least {1000 * times[0]:.0f} ms, most {1000 * times[-1]:.0f} ms")
        self.assertLess(from_launch[RUNS // 2], MAX_SECONDS)


if __name__ == "__main__":
    unittest.main()
