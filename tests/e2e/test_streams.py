"""Watchers that are cut off, that stand still, that are many; calls whose answers are lost.

LENET_WATCHERS and LENET_CUTS: how many watchers, and how often each is cut off.
"""
import random
import signal
import threading
import time
import unittest

from api_harness import ApiTestCase, Watcher, size
from harness import PATIENCE, wait_until

WATCHERS = size("LENET_WATCHERS", 12)
CUTS = size("LENET_CUTS", 6)
# The daemon's growth while one watcher stands still: what the job itself brings, not what the watcher has not read.
MAX_GROWTH = 24 << 20


class StreamsTest(ApiTestCase):

    def spec(self, steps, **fields):
        return self.specs.TrainingSpec(dataset="small", ranks=2, batch_size=16, max_steps=steps,
                                       evaluate_every_epochs=0, **fields)

    def test_watchers_that_are_cut_off_miss_nothing(self):
        self.restart()
        job = self.start(self.spec(10**9))
        watchers = [Watcher(self, job, CUTS, random.Random(i)) for i in range(WATCHERS)]
        for watcher in watchers:
            watcher.start()
        wait_until(lambda: all(watcher.cuts == 0 for watcher in watchers), "all watchers were cut off")
        self.stub.Stop(self.calls.StopRequest(job_id=job, wait=True), timeout=PATIENCE)
        stored = self.stored_log(job)
        for watcher in watchers:
            watcher.join(PATIENCE)
            self.assertIsNone(watcher.error)
            self.assertEqual(watcher.records, stored)
            self.assertGreater(watcher.connections, CUTS)

    def test_a_watcher_that_stands_still_costs_nothing_and_gets_all(self):
        self.restart()
        self.await_end(self.start(self.spec(1000)))

        def rate(job):
            return self.job(job).progress.images_per_second

        undisturbed = self.start(self.spec(3000))
        alone = wait_until(lambda: rate(undisturbed), "the job has a rate")
        self.await_end(undisturbed)
        before = self.daemon.proc_status()[0]
        steps = 6000
        job = self.start(self.spec(steps))
        watcher = self.follow("watch", job, "--json")
        watcher.wait_for(lambda line: "step_losses" in line)
        watcher.process.send_signal(signal.SIGSTOP)
        rates = []
        while self.job(job).state in (self.jobs.STARTING, self.jobs.RUNNING):
            rates.append(rate(job))
            time.sleep(0.05)
        growth = self.daemon.proc_status()[0] - before
        self.assertEqual(self.await_end(job).progress.step, steps)
        watcher.process.send_signal(signal.SIGCONT)
        self.assertEqual(watcher.finish().code, 0)
        self.assertEqual(len(watcher.lines), self.job(job).last_sequence)
        print(f"{steps} steps past a watcher that stood still: {growth >> 10} kB more; "
              f"{max(rates):.0f} images/s, {alone:.0f} alone")
        self.assertLess(growth, MAX_GROWTH)
        # Other tests run beside this one.
        self.assertGreater(max(rates), alone / 4)

    def test_ten_clients_with_one_request_id_make_one_job(self):
        self.restart()
        stubs = [self.connect() for _ in range(10)]
        request = self.calls.StartRequest(request_id="one", spec=self.spec(50))
        ids = []
        threads = [threading.Thread(target=lambda stub=stub: ids.append(stub.Start(request, timeout=PATIENCE).job.id))
                   for stub in stubs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        self.assertEqual((len(ids), len(set(ids))), (10, 1))
        self.assertEqual(len(self.stub.ListJobs(self.calls.ListJobsRequest()).jobs), 1)

    def test_a_reply_that_is_lost_and_asked_for_again_makes_one_job(self):
        self.restart()
        for i in range(5):
            request = self.calls.StartRequest(request_id=f"lost-{i}", spec=self.spec(20))
            # The daemon is killed before, in or after its work, and nobody reads the answer.
            lost = self.stub.Start.future(request, timeout=PATIENCE)
            time.sleep(0.002 * i)
            self.restart()
            lost.cancel()
            job = self.insist(self.stub.Start, request).job.id
            self.assertEqual(self.insist(self.stub.Start, request).job.id, job)
            self.await_end(job)
        self.assertEqual(len(self.stub.ListJobs(self.calls.ListJobsRequest()).jobs), 5)


if __name__ == "__main__":
    unittest.main()
