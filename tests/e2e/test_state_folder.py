"""State folders that are copied, moved, shared or damaged while no daemon runs."""
import pathlib
import shutil
import sqlite3
import subprocess
import unittest
from unittest import mock

from harness import PATIENCE, Daemon, TestCase, backend_arguments, program, records, wait_until

LENETD_STATE = 6


class StateFolderTest(TestCase):

    def start_at(self, folder):
        """A daemon whose state lies in `folder`/state."""
        self.daemon = Daemon(folder, self.data_dir)
        self.addCleanup(self.daemon.kill)

    def end(self):
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(), 0)

    def paused_job(self, folder):
        """The id of a job that is paused in `folder`, and its step; the daemon has ended."""
        folder.mkdir()
        self.start_at(folder)
        job = self.endless_job("--checkpoint-steps", 50, "--ranks", 1)
        wait_until(lambda: len(self.show(job).get("checkpoints", [])) >= 2, "two checkpoints")
        self.must("pause", job)
        step = self.step_of(job)
        self.end()
        return job, step

    def go_on(self, job, step):
        """Resumes the job, lets it save more than it keeps, and stops it; gives its checkpoints."""
        self.must("resume", job)
        wait_until(lambda: self.step_of(job) > step + 300, "the job goes on")
        shown = self.show(job)
        self.assertEqual(shown["attempt"], 2)
        self.must("stop", job, "--wait")
        log = self.log(job)
        self.assertEqual([record for record in log if "warning" in record], [])
        second = [int(s) for record in log if record.get("attempt") == 2
                  for s in record.get("step_losses", {}).get("steps", [])]
        self.assertEqual(min(second), step + 1)
        return records(self.must("checkpoints", job, "--json"))

    def test_a_copy_goes_on_and_leaves_the_original_alone(self):
        original, copy = self.folder / "original", self.folder / "copy"
        job, step = self.paused_job(original)
        shutil.copytree(original, copy)
        files = {path.name: path.read_bytes() for path in (original / "state" / "jobs" / job).iterdir()}
        self.assertGreaterEqual(len(files), 2)
        self.start_at(copy)
        for checkpoint in self.go_on(job, step):
            self.assertTrue(checkpoint["path"].startswith(f"{copy}/state/jobs/{job}/"), checkpoint)
            self.assertTrue(pathlib.Path(checkpoint["path"]).is_file())
        self.end()
        self.assertEqual({path.name: path.read_bytes() for path in (original / "state" / "jobs" / job).iterdir()}, files)
        self.start_at(original)
        self.go_on(job, step)

    def test_a_folder_that_was_moved_goes_on(self):
        before, after = self.folder / "before", self.folder / "after"
        job, step = self.paused_job(before)
        database = sqlite3.connect(before / "state" / "lenetd.db")
        stored = [row for table in ("job FROM jobs", "batch FROM records")
                  for row, in database.execute(f"SELECT {table}")]
        database.close()
        self.assertTrue(any(b"step-" in row for row in stored))
        self.assertFalse(any(b"/jobs/" in row for row in stored))
        before.rename(after)
        self.start_at(after)
        self.go_on(job, step)

    def test_a_relative_folder_is_the_one_of_the_start(self):
        state = self.folder / "state"
        port_file = self.folder / "port"
        arguments = ["--listen", "127.0.0.1:0", "--metrics-listen", "off", "--port-file", port_file,
                     "--data-dir", self.data_dir,
                     *backend_arguments(), "--state-dir", "state"]
        process = subprocess.Popen([program("LENETD"), *arguments], cwd=self.folder)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_until(port_file.exists, "the daemon serves")
        self.daemon = mock.Mock(address=port_file.read_text().strip())
        job = self.submit_detached("--max-steps", 5)
        self.must("watch", job)
        self.assertEqual(pathlib.Path(self.show(job)["checkpoint"]).parent, state / "jobs" / job)

    def refused(self, folder):
        """The error of a daemon that does not start."""
        done = subprocess.run([program("LENETD"), "--listen", "127.0.0.1:0", "--metrics-listen", "off", "--data-dir", self.data_dir,
                               *backend_arguments(), "--state-dir", folder / "state"],
                              capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, LENETD_STATE, done.stderr)
        self.assertIn(f"{folder}/state", done.stderr)
        return done.stderr

    def test_without_the_lock_file_a_second_daemon_is_still_refused(self):
        self.start_daemon()
        (self.daemon.state_dir / "lenetd.lock").unlink()
        self.assertIn("another lenetd has", self.refused(self.folder))
        self.assert_serves()

    def test_a_database_that_is_lost_is_not_replaced_in_silence(self):
        folder = self.folder / "lost"
        job, step = self.paused_job(folder)
        database = folder / "state" / "lenetd.db"
        content = database.read_bytes()
        database.write_bytes(b"")
        self.assertRegex(self.refused(folder), rf"missing or empty, but .* job {job}; put a backup .* or move")
        database.unlink()
        self.assertIn("missing or empty", self.refused(folder))
        self.assertFalse(database.exists())
        database.write_bytes(content[:len(content) // 2])
        self.assertIn("malformed", self.refused(folder))
        database.write_bytes(content)
        self.start_at(folder)
        self.go_on(job, step)

    def test_a_damaged_job_is_named(self):
        folder = self.folder / "damaged"
        live, _ = self.paused_job(folder)
        self.start_at(folder)
        ended, other = self.submit_detached("--max-steps", 5), self.submit_detached("--max-steps", 5)
        for job in (ended, other):
            self.must("watch", job)
        self.end()

        def damage(job, blob):
            with sqlite3.connect(folder / "state" / "lenetd.db") as database:
                before, = database.execute("SELECT job FROM jobs WHERE id = ?", (job,)).fetchone()
                database.execute("UPDATE jobs SET job = ? WHERE id = ?", (blob, job))
            database.close()
            return before

        damage(ended, b"")
        self.start_at(folder)
        self.assertEqual({job["id"] for job in records(self.must("list", "--json"))}, {live, other})
        self.assertIn(f"job {ended} cannot be read", self.lenetctl("show", ended).err)
        self.must("rm", ended)
        self.assertFalse((folder / "state" / "jobs" / ended).exists())
        self.end()
        # Of one that has not ended nothing is given up in silence.
        for blob in (b"", b"\xff\xff"):
            before = damage(live, blob)
            self.assertIn(f"job {live} cannot be read", self.refused(folder))
            damage(live, before)
        self.start_at(folder)
        self.assertEqual(self.show(live)["state"], "PAUSED")


if __name__ == "__main__":
    unittest.main()
