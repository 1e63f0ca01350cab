"""Where lenetctl writes: a terminal, and outputs that fail."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from harness import ERROR, PATIENCE, SUCCESS, TestCase

COLUMNS = 72
ESCAPE = re.compile(r"\x1b\[\d*[A-Za-z]")


class TerminalTest(TestCase):

    def run_on_terminal(self, *arguments):
        """Exit code and all that came to a terminal of COLUMNS columns."""
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        process = subprocess.Popen(self.command(*arguments), stdin=slave, stdout=slave, stderr=slave,
                                   env={**os.environ, "TERM": "xterm"})
        os.close(slave)
        self.addCleanup(process.kill)
        written = b""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if not select.select([master], [], [], 0.1)[0]:
                continue
            try:
                written += os.read(master, 65536)
            except OSError:  # the other side is closed
                break
        return process.wait(PATIENCE), written.decode()

    def test_progress_is_redrawn_in_place_and_fits_the_width(self):
        self.start_daemon()
        code, written = self.run_on_terminal("submit", "--ranks", 2, "--epochs", 400, "--evaluate-every", 100)
        self.assertEqual(code, 0, written)
        self.assertIn("\x1b[J", written)
        pieces = [ESCAPE.sub("", piece) for piece in re.split(r"[\r\n]+", written)]
        bars = [piece for piece in pieces if re.search(r"\[[=> ]+\] +\d+ %", piece)]
        self.assertGreater(len(bars), 2)
        self.assertTrue(any("ETA " in bar for bar in bars), bars)
        for bar in bars + [piece for piece in pieces if "rank 1: " in piece]:
            self.assertLess(len(bar), COLUMNS)
        self.assertTrue(any(re.fullmatch(r"loss  rank 0: \S+  rank 1: \S+", piece) for piece in pieces))
        # Epochs stay, losses of steps do not, and nothing is left of the progress at the end.
        self.assertEqual(len({piece for piece in pieces if piece.startswith("epoch 7/400: ")}), 1)
        self.assertFalse(any(piece.startswith("step ") for piece in pieces))
        self.assertRegex(pieces[-2], r"^job \w+: succeeded after 2,000 steps, accuracy ")
        self.assertEqual(pieces[-1], "")

    def test_tables_fit_the_width(self):
        self.start_daemon()
        self.must("submit", "--max-steps", 3, "--name", "a name that makes the table wider than the terminal")
        code, written = self.run_on_terminal("list")
        self.assertEqual(code, 0)
        for line in written.split("\r\n"):
            self.assertLessEqual(len(line), COLUMNS)
        self.assertIn("...", written)


class OutputTest(TestCase):

    def run_in_shell(self, redirections, *arguments):
        """Runs lenetctl with the shell's redirections; code, and what came to the descriptors that they leave open."""
        done = subprocess.run(["sh", "-c", f'exec "$@" {redirections}', "sh", *self.command(*arguments)],
                              capture_output=True, text=True, timeout=PATIENCE)
        return done.returncode, done.stdout, done.stderr

    def test_an_output_that_cannot_be_written_is_an_error(self):
        self.start_daemon()
        for arguments in (["--help"], ["submit", "--help"], ["--version"], ["info"], ["submit", "--max-steps", 3]):
            with self.subTest(arguments=arguments):
                code, _, err = self.run_in_shell(">/dev/full", *arguments)
                self.assertEqual((code, err), (ERROR, "lenetctl: cannot write to standard output\n"))

    def test_closed_descriptors_do_no_harm(self):
        self.start_daemon()
        self.assertEqual(self.run_in_shell("<&- >&- 2>&-", "submit", "--max-steps", 3), (ERROR, "", ""))
        code, out, _ = self.run_in_shell("<&- 2>&-", "submit", "--max-steps", 3)
        self.assertEqual(code, SUCCESS)
        self.assertRegex(out.splitlines()[-1], r"^job \w+: succeeded after 3 steps")
        self.assertEqual(self.run_in_shell(">&-", "info"), (ERROR, "", "lenetctl: cannot write to standard output\n"))
        self.assert_serves()

    def test_a_reader_that_leaves_ends_it_as_it_ends_other_commands(self):
        self.start_daemon()
        job = self.endless_job()
        # Python ignores SIGPIPE, and restores it for the processes that it starts or hands that on.
        for restored, code, said in ((True, -signal.SIGPIPE, b""),
                                     (False, ERROR, b"lenetctl: cannot write to standard output\n")):
            with self.subTest(restored=restored):
                process = subprocess.Popen(self.command("watch", job, "--json"), stdin=subprocess.DEVNULL,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, restore_signals=restored)
                self.addCleanup(process.kill)
                process.stdout.readline()
                process.stdout.close()
                self.assertEqual(process.wait(PATIENCE), code)
                self.assertEqual(process.stderr.read(), said)
                process.stderr.close()
        self.assertEqual(self.show(job)["state"], "RUNNING")
        self.must("stop", job, "--wait")


if __name__ == "__main__":
    unittest.main()
