"""The addresses that lenetd serves on, and those that lenetctl asks without being told."""
import os
import stat
import subprocess
import unittest
from unittest import mock

from harness import PATIENCE, SUCCESS, UNREACHABLE, TestCase, backend_arguments, program

LENETD_LISTEN = 4


class ListenTest(TestCase):

    def start_default(self, runtime):
        """lenetd without --listen, as root's or systemd's."""
        log = open(self.folder / "log", "w", encoding="utf-8")
        self.addCleanup(log.close)
        with mock.patch.dict(os.environ, RUNTIME_DIRECTORY=str(runtime)):
            self.start_daemon(listen=[], stderr=log)

    def test_several_addresses_are_one_server(self):
        socket = f"unix:{self.folder}/socket"
        self.start_daemon(listen=[socket, "127.0.0.1:0", "localhost:0"])
        self.assertRegex(self.daemon.addresses[0], r"\A127\.0\.0\.1:\d+\Z")
        self.assertRegex(self.daemon.addresses[1], r"\Alocalhost:\d+\Z")
        self.assertEqual(self.daemon.addresses[2:], [socket])
        job = self.submit_detached("--max-steps", 3)
        for address in self.daemon.addresses:
            with mock.patch.object(self.daemon, "address", address):
                self.assertEqual(self.show(job)["id"], job)

    def test_the_default_is_a_socket_in_the_runtime_folder(self):
        runtime = self.folder / "run"
        self.start_default(runtime)
        socket = runtime / "lenetd.sock"
        self.assertEqual(self.daemon.addresses, [f"unix:{socket}"])
        self.assertEqual(stat.S_IMODE(runtime.stat().st_mode), 0o700)
        self.assertEqual(stat.S_IMODE(socket.stat().st_mode) & 0o007, 0)
        self.assert_serves()
        # A second one leaves it alone, and says what is in its way.
        with mock.patch.dict(os.environ, RUNTIME_DIRECTORY=str(runtime)):
            done = subprocess.run([program("LENETD"), "--state-dir", self.folder / "second", "--metrics-listen", "off",
                                   *backend_arguments()], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, LENETD_LISTEN, done.stderr)
        self.assertIn(f"cannot listen on unix:{socket}: Address already in use", done.stderr)
        self.assert_serves()
        # What is left of one that was killed is replaced.
        self.daemon.kill()
        self.assertTrue(socket.is_socket())
        self.start_default(runtime)
        self.assert_serves()
        self.assertIn(f"serving on unix:{socket}; ready", (self.folder / "log").read_text())
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(), 0)
        self.assertFalse(socket.exists())

    def test_lenetctl_finds_the_users_own_socket(self):
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.folder)}
        environment.pop("LENET_SERVER", None)

        def lenetctl(*arguments, **options):
            return subprocess.run([program("LENETCTL"), *arguments], env=environment, capture_output=True, text=True,
                                  timeout=PATIENCE, **options)

        self.start_default(self.folder / "lenet")
        done = lenetctl("info")
        self.assertEqual((done.returncode, done.stderr), (SUCCESS, ""))
        if os.geteuid() == 0:
            done = lenetctl("--server", self.daemon.address, "info", user=65534, group=65534, extra_groups=[])
            self.assertEqual((done.returncode, done.stdout), (UNREACHABLE, ""))
            self.assertIn("Its socket is for its user and a group", done.stderr)
        environment["LENET_SERVER"] = f"unix:{self.folder}/other"
        done = lenetctl("info")
        self.assertEqual((done.returncode, done.stdout), (UNREACHABLE, ""))
        self.assertIn(f"server unix:{self.folder}/other is not available", done.stderr)
        self.assertIn("--server or LENET_SERVER names another", done.stderr)


if __name__ == "__main__":
    unittest.main()
