"""lenetd as a service of systemd: what it tells the service manager."""
import contextlib
import ctypes
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import unittest
from unittest import mock

from harness import PATIENCE, TestCase, program

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WAIT_ALL = 0x40000000  # __WALL: threads too
# The others are gRPC's.
OWN_THREADS = {"accept", "executor", "health", "lenetd", "log", "metrics", "progress", "signals", "status", "streams",
               "watchdog"}


class NotifySocket:
    """The service manager's end of $NOTIFY_SOCKET, with the times at which the messages came."""

    def __init__(self, name):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + name[1:] if name.startswith("@") else name)

    def close(self):
        self._socket.close()

    def receive(self, patience=PATIENCE):
        """(time, lines) of the next message; None if none comes."""
        self._socket.settimeout(patience)
        try:
            message = self._socket.recv(4096).decode()
        except (TimeoutError, BlockingIOError):
            return None
        return time.monotonic(), message.split("\n")

    def receive_to(self, wanted):
        """The messages up to the first with a line that matches."""
        messages = []
        while True:
            message = self.receive()
            if message is None:
                raise AssertionError(f"no line {wanted!r} after {messages[-5:]}")
            messages.append(message)
            if any(re.fullmatch(wanted, line) for line in message[1]):
                return messages

    def receive_for(self, seconds):
        """What comes in that time."""
        deadline = time.monotonic() + seconds
        messages = []
        while (left := deadline - time.monotonic()) > 0:
            message = self.receive(left)
            if message:
                messages.append(message)
        return messages


def threads(pid):
    """{name: ids of the threads that have it}."""
    found = {}
    for task in (pathlib.Path("/proc") / str(pid) / "task").iterdir():
        found.setdefault((task / "comm").read_text().strip(), []).append(int(task.name))
    return found


@contextlib.contextmanager
def stopped(tids):
    """These threads of a child of this process stand still, and its others do not."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long

    def ptrace(request, tid):
        if libc.ptrace(request, tid, None, None) != 0:
            raise OSError(ctypes.get_errno(), f"ptrace request {request:#x} of thread {tid}")

    seized = []
    try:
        for tid in tids:
            try:
                ptrace(PTRACE_SEIZE, tid)
            except PermissionError as error:
                raise unittest.SkipTest(f"threads cannot be stopped here: {error}") from error
            ptrace(PTRACE_INTERRUPT, tid)
            os.waitpid(tid, WAIT_ALL)
            seized.append(tid)
        yield
    finally:
        for tid in seized:
            ptrace(PTRACE_DETACH, tid)


class SystemdTest(TestCase):

    def start_service(self, *arguments, watchdog=None, name=None, stderr=None, **variables):
        """A daemon that a service manager has started; the manager's socket, and the messages until it was ready."""
        name = name or str(self.folder / "notify")
        manager = NotifySocket(name)
        self.addCleanup(manager.close)
        if watchdog:
            variables["WATCHDOG_USEC"] = str(int(watchdog * 1e6))
        with mock.patch.dict(os.environ, NOTIFY_SOCKET=name, **variables):
            self.start_daemon(*arguments, stderr=stderr)
        return manager, manager.receive_to("READY=1")


class NotifyTest(SystemdTest):

    def test_it_tells_when_it_warms_up_serves_and_stops(self):
        manager, messages = self.start_service()
        first, last = messages[0][1], messages[-1][1]
        self.assertRegex(first[0], r"\ASTATUS=warming up \d+ devices?\Z")
        self.assertEqual(first[1:], ["EXTEND_TIMEOUT_USEC=20000000"])
        self.assertEqual(last, ["READY=1", f"STATUS=serving on {self.daemon.address}; 0 running, 0 queued"])
        self.assertFalse([lines for _, lines in messages if "WATCHDOG=1" in lines])
        self.assert_serves()
        manager.receive_for(1.5)  # that job's

        self.endless_job()
        serving = re.escape(f"STATUS=serving on {self.daemon.address}; ")
        manager.receive_to(serving + "1 running, 0 queued")
        self.submit_detached("--epochs", 10**6)  # on all devices, as the first
        manager.receive_to(serving + "1 running, 1 queued")
        self.daemon.terminate()
        stopping = manager.receive_to("STOPPING=1")[-1][1]
        self.assertEqual(stopping, ["STOPPING=1", "STATUS=draining 1 job", "EXTEND_TIMEOUT_USEC=20000000"])
        self.assertEqual(self.daemon.wait(), 0)
        self.assertFalse([lines for _, lines in manager.receive_for(0.1) if "READY=1" in lines])

    def test_an_abstract_socket(self):
        _, messages = self.start_service(name=f"@lenet-test-{os.getpid()}")
        self.assertEqual(messages[-1][1][0], "READY=1")

    def test_without_a_service_manager_there_is_no_thread_for_it(self):
        with mock.patch.dict(os.environ, WATCHDOG_USEC="1000000"):
            os.environ.pop("NOTIFY_SOCKET", None)
            self.start_daemon()
        names = set(threads(self.daemon.process.pid))
        self.assertFalse(names & {"status", "watchdog", "progress"})
        self.assertIn("accept", names)

    def test_a_bad_environment_is_told_and_does_no_harm(self):
        log = self.folder / "log"
        with open(log, "w", encoding="utf-8") as stderr, mock.patch.dict(
                os.environ, NOTIFY_SOCKET="run/notify", WATCHDOG_USEC="soon"):
            self.start_daemon(stderr=stderr)
        self.assert_serves()
        text = log.read_text()
        self.assertIn('$NOTIFY_SOCKET: "run/notify" must be a path that begins with', text)
        self.assertIn('$WATCHDOG_USEC: "soon" must be a number from 1', text)


class JournalTest(SystemdTest):

    def run_with_pipe(self, stream):
        """What a daemon writes to a pipe, with $JOURNAL_STREAM as the pipe's "device:inode" gives it."""
        read, write = os.pipe()
        status = os.fstat(write)
        with mock.patch.dict(os.environ, JOURNAL_STREAM=stream.format(status.st_dev, status.st_ino)):
            self.start_daemon(stderr=write)
        os.close(write)
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(), 0)
        with open(read, encoding="utf-8") as pipe:
            return pipe.read().splitlines()

    def test_lines_have_the_journals_priorities_and_no_time(self):
        lines = self.run_with_pipe("{}:{}")
        self.assertTrue(lines)
        for line in lines:
            self.assertRegex(line, r"\A<[3467]>(error|warning|info|debug) \[\d+\] ")

    def test_another_descriptor_than_the_journals_gets_the_time(self):
        for line in self.run_with_pipe("{}:{}0"):
            self.assertRegex(line, r"\A\d{4}-\d\d-\d\dT\S+ (error|warning|info|debug) \[\d+\] ")


# Runs lenetd with sockets that it has made, as systemd does.
PASS_SOCKETS = """\
#!{python}
import os, socket, sys
for number, (family, address) in enumerate({sockets}):
    listening = socket.socket(family, {type})
    listening.bind(address)
    if {type} == socket.SOCK_STREAM:
        listening.listen()
    os.dup2(listening.fileno(), 20)  # it may be where it is to be, but not inherited
    listening.close()
    os.dup2(20, 3 + number)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="{count}")
os.execv({lenetd!r}, sys.argv)
"""


class SocketTest(SystemdTest):

    def pass_sockets(self, *sockets, kind="socket.SOCK_STREAM", count=None):
        """Each is a family and an address."""
        script = self.folder / "lenetd-with-socket"
        script.write_text(PASS_SOCKETS.format(
            python=sys.executable, type=kind, sockets=[(int(family), address) for family, address in sockets],
            count=len(sockets) if count is None else count, lenetd=program("LENETD")))
        script.chmod(0o755)
        return mock.patch.dict(os.environ, LENETD=str(script))

    def test_it_serves_on_the_socket_that_it_is_given(self):
        path = str(self.folder / "lenetd.sock")
        with self.pass_sockets((socket.AF_UNIX, path)):
            self.start_daemon(listen=[])
        self.assertEqual(self.daemon.addresses, [f"unix:{path}"])
        self.assert_serves()
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(), 0)
        # It is the service manager's.
        self.assertTrue(os.path.exists(path))

    def test_several_and_what_listen_names_beside_them(self):
        passed, named = str(self.folder / "passed.sock"), f"unix:{self.folder}/named.sock"
        with self.pass_sockets((socket.AF_UNIX, passed), (socket.AF_INET, ("127.0.0.1", 0))):
            # The first is bound already.
            self.start_daemon(listen=[f"unix:{passed}", named])
        self.assertRegex(self.daemon.addresses[0], r"\A127\.0\.0\.1:[1-9]\d*\Z")
        self.assertEqual(self.daemon.addresses[1:], [f"unix:{passed}", named])
        for address in self.daemon.addresses:
            with mock.patch.object(self.daemon, "address", address):
                self.assert_serves()

    def fail_to_start(self):
        done = subprocess.run([program("LENETD"), "--state-dir", self.folder / "state", "--backend", "cpu"],
                              capture_output=True, text=True, check=False, timeout=PATIENCE)
        return done.returncode, done.stderr

    def test_one_that_other_machines_reach_needs_tls_as_an_address_does(self):
        with self.pass_sockets((socket.AF_INET, ("0.0.0.0", 0))):
            code, err = self.fail_to_start()
        self.assertEqual(code, 2)
        self.assertIn("other machines reach this address", err)

    def test_what_it_cannot_serve_on_is_told(self):
        with self.pass_sockets((socket.AF_UNIX, str(self.folder / "a")), kind="socket.SOCK_DGRAM"):
            code, err = self.fail_to_start()
        self.assertEqual(code, 4)
        self.assertIn("the socket that was passed to serve on: descriptor 3: is no socket that listens", err)
        with self.pass_sockets((socket.AF_UNIX, str(self.folder / "b")), count=65):
            code, err = self.fail_to_start()
        self.assertEqual(code, 4)
        self.assertIn("$LISTEN_FDS: 65 sockets were passed to serve on; must be at most 64", err)


class WatchdogTest(SystemdTest):

    def test_signs_of_life_come_at_half_of_the_timeout_under_load_too(self):
        manager, _ = self.start_service(watchdog=1.0)
        for _ in range(3):
            self.submit_detached("--epochs", 10**6)
        times = [at for at, lines in manager.receive_for(5) if "WATCHDOG=1" in lines]
        gaps = [later - earlier for earlier, later in zip(times, times[1:])]
        self.assertGreaterEqual(len(times), 7)
        self.assertGreater(min(gaps), 0.4)
        self.assertLess(max(gaps), 1.0)

    def test_they_are_for_the_process_that_is_named(self):
        manager, messages = self.start_service(watchdog=0.2, WATCHDOG_PID="1")
        messages += manager.receive_for(1)
        self.assertFalse([lines for _, lines in messages if "WATCHDOG=1" in lines])

    def test_a_thread_that_stands_still_stops_them(self):
        log = self.folder / "log"
        with open(log, "w", encoding="utf-8") as stderr:
            manager, _ = self.start_service(watchdog=0.4, stderr=stderr)
        all_threads = threads(self.daemon.process.pid)
        parts = {"the accept thread": all_threads["accept"], "the metrics thread": all_threads["metrics"],
                 "the streams thread": all_threads["streams"], "the executor": all_threads["executor"],
                 "gRPC": [tid for name, tids in all_threads.items() if name not in OWN_THREADS for tid in tids]}
        for part, tids in parts.items():
            with self.subTest(part):
                with stopped(tids):
                    manager.receive_to(f"STATUS={part} stands still")
                    self.assertEqual(manager.receive_for(1), [])
                    self.assertIn(f"watchdog: {part} stands still", log.read_text())
                manager.receive_to("WATCHDOG=1")
                manager.receive_to("STATUS=serving on .*")
                self.assert_serves()


if __name__ == "__main__":
    unittest.main()
