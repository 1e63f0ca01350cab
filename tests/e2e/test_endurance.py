"""Many jobs in one daemon."""
import unittest

from harness import TestCase, wait_until

WARM_UP_JOBS = 10
JOBS = 50
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


if __name__ == "__main__":
    unittest.main()
