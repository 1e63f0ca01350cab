"""Disks that are small, full, or read-only in the midst of a job."""
import os
import pathlib
import subprocess
import unittest

from harness import JOB_STOPPED, SUCCESS, TestCase, records, step_losses, wait_until


def can_mount():
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


@unittest.skipUnless(can_mount(), "needs to mount file systems")
class DisksTest(TestCase):

    def mount(self, path, options):
        path.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", path], check=True)
        return path

    def small_state(self, size):
        """A state folder whose checkpoints lie in a file system of their own."""
        state = self.folder / "state"
        jobs = self.mount(state / "jobs", f"size={size}")
        self.start_daemon()
        return jobs

    def submit(self, *arguments):
        return self.submit_detached("--batch-size", 16, "--evaluate-every", 0, *arguments)

    def end(self, job):
        result = self.lenetctl("watch", job, "--json")
        log = records(result.out)
        self.assert_whole(log)
        return result.code, log

    def test_checkpoints_that_do_not_fit_fail_alone(self):
        jobs = self.small_state("1m")
        filler = jobs / "filler"
        job = self.submit("--epochs", 150, "--checkpoint-steps", 50)
        wait_until(lambda: self.show(job).get("checkpoints"), "a checkpoint")
        filler.write_bytes(bytes(os.statvfs(jobs).f_bavail * os.statvfs(jobs).f_frsize))
        wait_until(lambda: self.step_of(job) > 1500, "the job goes on")
        before = {path.name for path in (jobs / job).glob("step-*")}
        code, log = self.end(job)
        self.assertEqual(code, SUCCESS)
        warnings = [record["warning"]["message"] for record in log if "warning" in record]
        self.assertTrue(any("was not saved" in warning and "No space left" in warning for warning in warnings), warnings)
        self.assertIn("the last state was not saved", log[-1]["terminal"]["reason"])
        # What was saved before is still there.
        self.assertTrue(before)
        self.assertLessEqual(before, {path.name for path in (jobs / job).glob("step-*")})
        # A job that could save nothing is not accepted.
        refused = self.lenetctl("submit", "--detach")
        self.assertNotEqual(refused.code, SUCCESS)
        self.assertIn("bytes free", refused.err)
        filler.unlink()
        self.must("rm", job)
        self.must("submit", "--max-steps", 5)

    def test_a_folder_that_becomes_read_only(self):
        jobs = self.small_state("16m")
        job = self.submit("--epochs", 150, "--checkpoint-steps", 50)
        wait_until(lambda: self.show(job).get("checkpoints"), "a checkpoint")
        subprocess.run(["mount", "-o", "remount,ro", jobs], check=True)
        code, log = self.end(job)
        self.assertEqual(code, SUCCESS)
        warnings = [record["warning"]["message"] for record in log if "warning" in record]
        self.assertTrue(any("Read-only file system" in warning for warning in warnings), warnings)
        self.assertTrue(list((jobs / job).glob("step-*")))
        refused = self.lenetctl("submit", "--detach")
        self.assertIn("Read-only file system", refused.err)
        subprocess.run(["mount", "-o", "remount,rw", jobs], check=True)
        self.must("submit", "--max-steps", 5)

    def test_a_full_disk_for_the_store(self):
        state = self.mount(self.folder / "state", "size=4m")
        self.start_daemon()
        kept = self.submit("--max-steps", 50)
        self.assertEqual(self.end(kept)[0], SUCCESS)
        before = self.log(kept)
        filler = state / "filler"
        running = self.submit("--epochs", 10**6)
        wait_until(lambda: self.step_of(running) > 0, "the job makes steps")
        with filler.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)) == 4096:
                    pass
            except OSError:
                pass
        refused = wait_until(lambda: (result := self.lenetctl("submit", "--detach", "--max-steps", 5)).code and result,
                             "a job is refused")
        self.assertRegex(refused.err, "full|bytes free")
        # What the job has found no room for is stored when there is some.
        step = self.step_of(running)
        pathlib.Path(filler).unlink()
        self.must("stop", running, "--wait")
        code, log = self.end(running)
        self.assertEqual(code, JOB_STOPPED)
        last = int(log[-1]["terminal"]["last_step"])
        self.assertGreaterEqual(last, step)
        self.assertEqual(set(step_losses(log)), {(step, rank) for step in range(1, last + 1) for rank in (0, 1)})
        self.assertEqual(self.log(kept), before)
        self.must("submit", "--max-steps", 5)
        self.daemon.kill()
        self.start_daemon()
        self.assertEqual(self.log(kept), before)
        self.assert_serves()


if __name__ == "__main__":
    unittest.main()
