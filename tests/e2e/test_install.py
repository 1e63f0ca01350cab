"""The tree that `cmake --install` makes."""
import json
import os
import subprocess
import unittest
from unittest import mock

from harness import PATIENCE, ROOT, TestCase, install


class InstallTest(TestCase):

    def test_an_installed_tree_runs_after_it_was_moved(self):
        prefix = self.folder / "prefix"
        install(prefix)
        moved = self.folder / "elsewhere"
        prefix.rename(moved)
        self.assertEqual(sorted(path.name for path in moved.iterdir()), ["bin", "lib", "share"])
        self.assertEqual(sorted(path.name for path in (moved / "bin").iterdir()), ["lenetctl", "lenetd"])
        self.assertIn("_lenetctl", (moved / "share/bash-completion/completions/lenetctl").read_text())
        self.assertEqual((moved / "share/lenet/lenetd.toml").read_text(), (ROOT / "deploy/lenetd.toml").read_text())

        environment = mock.patch.dict(os.environ, LENETD=str(moved / "bin/lenetd"),
                                      LENETCTL=str(moved / "bin/lenetctl"))
        environment.start()
        self.addCleanup(environment.stop)
        os.environ.pop("LENET_PLUGINS", None)
        daemon = self.start_daemon()
        with open(f"/proc/{daemon.process.pid}/maps", encoding="utf-8") as maps:
            self.assertIn(f"{moved}/lib/lenet/liblenet_cpu.so", maps.read())
        self.assert_serves()

        selftest = subprocess.run([moved / "bin/lenetd", "selftest", "--json", "--backend", "cpu", "--training", "0.2"],
                                  capture_output=True, text=True, check=False, timeout=PATIENCE)
        checks = [json.loads(line) for line in selftest.stdout.splitlines()]
        self.assertEqual(selftest.returncode, 0, selftest.stdout)
        results = {check["check"]: check["result"] for check in checks[:-1]}
        for check in ("backend", "device 0", "reference on 0", "training"):
            self.assertEqual(results[check], "ok", selftest.stdout)
        self.assertIn(checks[-1]["result"], ("ok", "warning"))
        self.assertEqual(subprocess.run([moved / "bin/lenetd", "selftest", "--reference", "/nosuch"],
                                        capture_output=True, check=False, timeout=PATIENCE).returncode, 1)
        self.assertEqual(subprocess.run([moved / "bin/lenetd", "selftest", "--no-such-flag"],
                                        capture_output=True, check=False, timeout=PATIENCE).returncode, 2)


if __name__ == "__main__":
    unittest.main()
