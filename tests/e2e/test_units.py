"""The units of systemd that an installation has, by systemd's own tools. None of them is started."""
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from harness import ROOT, class_folder, install, program

# systemd-analyze's measure of what a unit may still do, from 0 to 10.
MOST_EXPOSED = 3.0
WAIT_SCRIPT = ROOT / "deploy/systemd/wait-for-nvidia.sh"


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


class UnitsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = class_folder(cls)
        cls.prefix = cls.folder / "opt/lenet"
        install(cls.prefix)
        cls.units = cls.prefix / "lib/systemd/system"

    def need(self, tool):
        if not shutil.which(tool):
            self.skipTest(f"{tool} is not installed")

    def test_they_name_the_installed_programs(self):
        for unit in self.units.iterdir():
            for path in re.findall(r"^Exec\w+=-?(\S+)", unit.read_text(), re.MULTILINE):
                self.assertTrue(path.startswith(f"{self.prefix}/") or path == "/bin/kill", path)
                self.assertTrue(pathlib.Path(path).stat().st_mode & 0o111, path)
        self.assertIn(f"ExecStart={self.prefix}/bin/lenetd\n", (self.units / "lenetd.service").read_text())

    def test_systemd_finds_no_fault(self):
        self.need("systemd-analyze")
        units = sorted(self.units.iterdir())
        self.assertEqual([unit.name for unit in units], ["lenetd-gpu.service", "lenetd.service", "lenetd.socket"])
        done = run("systemd-analyze", "verify", "--man=no", *units)
        # It succeeds with values that it does not understand, and only tells of them.
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_a_fault_would_be_found(self):
        self.need("systemd-analyze")
        unit = self.folder / "lenetd.service"
        unit.write_text((self.units / "lenetd.service").read_text().replace("WatchdogSec=60s", "WatchdogSec=often"))
        self.assertIn("often", run("systemd-analyze", "verify", "--man=no", unit).stderr)

    def test_the_sandbox_is_tight(self):
        self.need("systemd-analyze")
        done = run("systemd-analyze", "security", "--offline=true", "--no-pager", self.units / "lenetd.service")
        found = re.search(r"Overall exposure level for lenetd.service: ([0-9.]+)", done.stdout)
        self.assertIsNotNone(found, done.stdout + done.stderr)
        self.assertLessEqual(float(found[1]), MOST_EXPOSED)

    def test_the_sandbox_lets_gpus_work(self):
        settings = re.findall(r"^(\w+)=(.*)$", (self.units / "lenetd.service").read_text(), re.MULTILINE)
        for driver in ("nvidia", "nvidia-frontend", "nvidia-uvm", "nvidia-caps"):
            self.assertIn(("DeviceAllow", f"char-{driver} rw"), settings)
        names = {name for name, _ in settings}
        self.assertFalse(names & {"PrivateDevices", "MemoryDenyWriteExecute"})
        self.assertIn(("ProcSubset", "all"), settings)

    def test_the_stop_waits_longer_than_the_drain(self):
        unit = (self.units / "lenetd.service").read_text()
        help_text = run(program("LENETD"), "--help").stdout
        drain = int(re.search(r"--drain-timeout\D*?(\d+)", help_text)[1])
        self.assertGreater(int(re.search(r"^TimeoutStopSec=(\d+)s$", unit, re.MULTILINE)[1]), drain + 15 + 5)

    def test_the_user(self):
        self.need("systemd-sysusers")
        root = self.folder / "root"
        (root / "etc").mkdir(parents=True)
        done = run("systemd-sysusers", f"--root={root}", self.prefix / "lib/sysusers.d/lenet.conf")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex((root / "etc/passwd").read_text(), r"(?m)^lenet:x:\d+:\d+:lenetd:/var/lib/lenet:")
        groups = (root / "etc/group").read_text()
        self.assertRegex(groups, r"(?m)^lenet:x:\d+:$")
        self.assertRegex(groups, r"(?m)^video:x:\d+:lenet$")
        self.assertRegex(groups, r"(?m)^render:x:\d+:lenet$")


class WaitForNvidiaTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lenet-wait-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "dev").mkdir()

    def command(self, *arguments):
        return [WAIT_SCRIPT, "--root", self.root, *arguments]

    def add_gpu(self, vendor="0x10de", driver=True):
        device = self.root / "sys/bus/pci/devices/0000:01:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        if driver:
            (self.root / "sys/module/nvidia").mkdir(parents=True)

    def assert_ends_at_once(self):
        begin = time.monotonic()
        done = run(*self.command("--timeout", "60"))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertLess(time.monotonic() - begin, 30)

    def test_without_a_gpu_nobody_waits(self):
        self.assert_ends_at_once()

    def test_another_vendors_gpu_is_none(self):
        self.add_gpu(vendor="0x1002")
        self.assert_ends_at_once()

    def test_without_the_driver_nobody_waits(self):
        self.add_gpu(driver=False)
        self.assert_ends_at_once()

    def test_devices_that_come_end_the_wait(self):
        self.add_gpu()
        waiting = subprocess.Popen(self.command("--timeout", "60"))
        self.addCleanup(waiting.kill)
        (self.root / "dev/nvidiactl").touch()
        with self.assertRaises(subprocess.TimeoutExpired):
            waiting.wait(1.5)
        (self.root / "dev/nvidia-uvm").touch()
        self.assertEqual(waiting.wait(30), 0)
        self.assert_ends_at_once()

    def test_the_wait_has_an_end(self):
        self.add_gpu()
        done = run(*self.command("--timeout", "1"))
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertEqual(done.stderr, "/dev/nvidiactl and /dev/nvidia-uvm have not come within 1 s\n")

    def test_a_bad_command_line(self):
        for arguments in (["--timeout", "soon"], ["--timeout"], ["--timeout", ""], ["now"]):
            done = run(WAIT_SCRIPT, *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn("Usage: wait-for-nvidia", done.stderr)


if __name__ == "__main__":
    unittest.main()
