"""Many jobs in one daemon.

LENET_JOBS says how many.
"""
import time
import unittest

from api_harness import ApiTestCase, size
from harness import TestCase, wait_until

WARM_UP_JOBS = 10
JOBS = 50
TINY_JOBS = size("LENET_JOBS", 300)
# By then the caches of the database have filled. Measured, with 10,000 jobs: 11 to 16 MB more than after 50, all of it
# in the first 2,000; from there on 0.6 MB up and down.
CACHES_FULL = 2000
MAX_CACHES = 20 << 20
MAX_GROWTH_BEYOND = 4 << 20
# Measured: 2 to 9 MB, some 30 kB a job that is kept and the rest the heaps of threads that first work late. A job that
# left its data or its buffers behind would make 20 MB and more.
MAX_GROWTH = 14 << 20
# By so many gRPC's own pools vary; a job that left one thread behind would make 40.
POOL_THREADS = 4


class EnduranceTest(TestCase):

    def test_fifty_jobs_leave_memory_threads_and_files_flat(self):
        self.start_daemon()

        def run_jobs(count):
            for _ in range(count):
                self.must("submit", "--ranks", 2, "--batch-size", 16, "--epochs", 1)

        run_jobs(WARM_UP_JOBS)
        memory, threads, files = self.daemon.proc_status()
        run_jobs(JOBS - WARM_UP_JOBS)
        # A connection that has just been closed may take a moment to go.
        wait_until(lambda: self.daemon.proc_status()[1] <= threads + POOL_THREADS, f"about {threads} threads")
        wait_until(lambda: self.daemon.proc_status()[2] <= files, f"at most {files} open files")
        growth = self.daemon.proc_status()[0] - memory
        print(f"after {WARM_UP_JOBS} jobs: {memory >> 10} kB, {threads} threads, {files} open files; "
              f"{JOBS - WARM_UP_JOBS} jobs later {growth >> 10} kB more")
        self.assertLess(growth, MAX_GROWTH)
        self.assertEqual(len(self.must("list", "--json", "--state", "succeeded").splitlines()), JOBS)


class TinyJobsTest(ApiTestCase):

    def test_one_step_jobs_end_with_their_terminal_record_and_leave_nothing(self):
        self.restart()
        spec = self.specs.TrainingSpec(dataset="small", ranks=2, batch_size=16, max_steps=1)
        usage = full = None
        for i in range(TINY_JOBS):
            log = self.stored_log(self.start(spec))
            self.assertEqual([record.sequence for record in log], list(range(1, len(log) + 1)))
            self.assertEqual([record.HasField("terminal") for record in log], [False] * (len(log) - 1) + [True])
            if i == 49:
                usage = self.daemon.proc_status()
            elif i + 1 == CACHES_FULL:
                full = self.daemon.proc_status()
        memory, threads, files = self.daemon.proc_status()
        growth = memory - usage[0]
        print(f"{TINY_JOBS - 50} one-step jobs after the first 50: {growth >> 10} kB, {threads - usage[1]} threads, "
              f"{files - usage[2]} open files more")
        self.assertLess(growth, MAX_CACHES)
        if full:
            print(f"{TINY_JOBS - CACHES_FULL} jobs after the first {CACHES_FULL}: {(memory - full[0]) >> 10} kB more")
            self.assertLess(memory - full[0], MAX_GROWTH_BEYOND)
        self.assertLessEqual(threads, usage[1] + POOL_THREADS)
        self.assertLessEqual(files, usage[2] + 4)  # SQLite's own

        seen, token = 0, ""
        while True:
            page = self.stub.ListJobs(self.calls.ListJobsRequest(page_size=97, page_token=token))
            seen += len(page.jobs)
            token = page.next_page_token
            if not token:
                break
        self.assertEqual(seen, min(TINY_JOBS, 10000))
        began = time.monotonic()
        self.restart()
        print(f"restart with {seen} jobs: {time.monotonic() - began:.2f} s")
        self.assertLess(time.monotonic() - began, 1)


if __name__ == "__main__":
    unittest.main()
