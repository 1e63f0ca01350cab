"""What lenetctl shows on a terminal."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import unittest

from harness import PATIENCE, TestCase

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


if __name__ == "__main__":
    unittest.main()
