"""The tree that `cmake --install` makes."""
import os
import subprocess
import unittest
from unittest import mock

from harness import TestCase, program


class InstallTest(TestCase):

    def test_an_installed_tree_runs_after_it_was_moved(self):
        prefix = self.folder / "prefix"
        subprocess.run(["cmake", "--install", program("LENET_BUILD"), "--prefix", prefix], check=True,
                       stdout=subprocess.DEVNULL)
        moved = self.folder / "elsewhere"
        prefix.rename(moved)
        self.assertEqual(sorted(path.name for path in moved.iterdir()), ["bin", "lib"])
        self.assertEqual(sorted(path.name for path in (moved / "bin").iterdir()), ["lenetctl", "lenetd"])

        environment = mock.patch.dict(os.environ, LENETD=str(moved / "bin/lenetd"),
                                      LENETCTL=str(moved / "bin/lenetctl"))
        environment.start()
        self.addCleanup(environment.stop)
        os.environ.pop("LENET_PLUGINS", None)
        daemon = self.start_daemon()
        with open(f"/proc/{daemon.process.pid}/maps", encoding="utf-8") as maps:
            self.assertIn(f"{moved}/lib/lenet/liblenet_cpu.so", maps.read())
        self.assert_serves()


if __name__ == "__main__":
    unittest.main()
