"""The daemon's start and end."""
import contextlib
import fcntl
import json
import os
import pathlib
import resource
import signal
import socket
import stat
import struct
import subprocess
import time
import unittest
from unittest import mock

import http2
from harness import JOB_STOPPED, PATIENCE, SUCCESS, UNREACHABLE, TestCase, program, records, step_losses, wait_until

LENETD_FAILURE, LENETD_USAGE, LENETD_BACKEND, LENETD_LISTEN, LENETD_STATE = 1, 2, 3, 4, 6


class DaemonTest(TestCase):

    def checkpoints(self, job):
        return list((self.daemon.state_dir / "jobs" / job).glob("*.safetensors"))


class ShutdownTest(DaemonTest):

    def test_sigterm_saves_jobs_and_the_next_daemon_goes_on_with_them(self):
        address = f"unix:{self.folder}/socket"
        self.start_daemon(listen=address)
        running = self.submit_detached("--epochs", 300, "--evaluate-every", 0, "--batch-size", 16, "--ranks", 2)
        queued = self.submit_detached("--epochs", 2)
        watchers = {job: [self.follow("watch", job, "--json") for _ in range(2)] for job in (running, queued)}
        for watcher in watchers[running]:
            watcher.wait_for(lambda line: "step_losses" in json.loads(line))
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(), 0)
        self.assertTrue(self.checkpoints(running))
        self.start_daemon(listen=address)
        self.assertEqual(self.show(queued)["state"], "QUEUED")
        for job, followers in watchers.items():
            results = [watcher.finish() for watcher in followers]
            self.assertEqual([result.code for result in results], [SUCCESS, SUCCESS])
            self.assertEqual(results[0].out, results[1].out)
            log = records(results[0].out)
            self.assert_whole(log)
            self.assertEqual(log, self.log(job))
            last = int(log[-1]["terminal"]["last_step"])
            # None is made twice, as all were saved.
            self.assertEqual(set(step_losses(log)), {(step, rank) for step in range(1, last + 1) for rank in (0, 1)})
        self.assertEqual((self.show(running)["attempt"], self.show(queued)["attempt"]), (2, 1))

    def test_a_second_signal_ends_it_at_once_and_loses_nothing(self):
        address = f"unix:{self.folder}/socket"
        self.start_daemon(listen=address)
        job = self.submit_detached("--epochs", 300, "--evaluate-every", 0, "--batch-size", 16)
        wait_until(lambda: self.step_of(job) > 0, "the job makes steps")
        self.daemon.terminate()
        self.daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.daemon.wait(), 0)
        self.start_daemon(listen=address)
        watched = self.lenetctl("watch", job, "--json")
        self.assertEqual(watched.code, SUCCESS)
        self.assert_whole(records(watched.out))

    def test_running_jobs_fail_after_a_kill_if_they_are_not_to_go_on(self):
        address = f"unix:{self.folder}/socket"
        self.start_daemon(listen=address)
        job = self.endless_job()
        watcher = self.follow("watch", job, "--json")
        watcher.wait_for(lambda line: "step_losses" in json.loads(line))
        self.daemon.kill()
        self.start_daemon("--on-restart", "fail", listen=address)
        shown = self.show(job)
        self.assertEqual((shown["state"], shown["failure"]["phase"]), ("FAILED", "restart"))
        newest = {rank: step for step, rank in step_losses(self.log(job))}
        last = min(newest.values())
        self.assertEqual((int(shown["failure"]["step"]), int(shown["progress"]["step"])), (last, last))
        watched = self.lenetctl("watch", job)
        self.assertEqual(watched.out.splitlines()[-1], f"job {job}: failed after {last:,} steps")
        self.assertEqual(watched.err, f"lenetctl: job {job} failed: after step {last}, in restart: ABORTED: "
                                      "the server ended in attempt 1\n")
        self.assertRegex(self.must("show", job), r"(?m)^state: +failed$")
        self.assert_serves()

    def test_an_idle_daemon_ends_at_once(self):
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            self.start_daemon().process.send_signal(signal_number)
            self.assertEqual(self.daemon.wait(), 0)

    def test_a_watcher_whose_server_is_gone_gives_up(self):
        self.start_daemon()
        job = self.endless_job()
        watcher = self.follow("watch", job, "--json", "--reconnect", 1)
        watcher.wait_for(lambda line: "step_losses" in json.loads(line))
        self.daemon.kill()
        result = watcher.finish()
        self.assertEqual(result.code, UNREACHABLE)
        self.assertIn(self.daemon.address, result.err)
        records(result.out)


class StartTest(DaemonTest):

    def run_lenetd(self, *arguments):
        return subprocess.run([program("LENETD"), "--data-dir", self.data_dir, "--metrics-listen", "off", *arguments,
                               *([] if "--state-dir" in arguments else ["--state-dir", self.folder / "state2"])], capture_output=True, text=True, timeout=PATIENCE)

    def second_daemon(self, address, *arguments):
        return self.run_lenetd("--listen", address, "--backend", "cpu", "--plugin-dir", program("LENET_PLUGINS"), *arguments)

    def test_the_second_daemon_on_a_state_folder_is_refused(self):
        self.start_daemon()
        before = sorted(path.name for path in self.daemon.state_dir.iterdir())
        second = self.run_lenetd("--listen", "127.0.0.1:0", "--state-dir", self.daemon.state_dir)
        self.assertEqual(second.returncode, LENETD_STATE, second.stderr)
        self.assertIn(str(self.daemon.state_dir), second.stderr)
        self.assertEqual(sorted(path.name for path in self.daemon.state_dir.iterdir()), before)
        self.assert_serves()

    def test_the_second_daemon_on_a_port_is_refused(self):
        self.start_daemon()
        second = self.second_daemon(self.daemon.address)
        self.assertEqual(second.returncode, LENETD_LISTEN, second.stderr)
        self.assertIn(self.daemon.address, second.stderr)
        self.assertIn("in use", second.stderr)
        self.assert_serves()

    def test_a_unix_socket_is_one_daemons_alone(self):
        path = self.folder / "socket"
        self.start_daemon(listen=f"unix:{path}")
        self.assertEqual(self.daemon.address, f"unix:{path}")
        self.assertEqual(stat.S_IMODE(path.stat().st_mode) & 0o007, 0)
        second = self.second_daemon(self.daemon.address)
        self.assertEqual(second.returncode, LENETD_LISTEN, second.stderr)
        self.assertIn(str(path), second.stderr)
        self.assertIn("in use", second.stderr)
        self.assert_serves()
        # One that a killed daemon left is taken over, and goes with its owner.
        self.daemon.kill()
        self.assertTrue(path.is_socket())
        self.start_daemon(listen=f"unix:{path}")
        self.assert_serves()
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(), 0)
        self.assertFalse(path.exists())
        path.write_text("mine")
        self.assertEqual(self.second_daemon(f"unix:{path}").returncode, LENETD_LISTEN)
        self.assertEqual(path.read_text(), "mine")

    def test_bad_flags_are_told_from_an_address_that_cannot_be_had(self):
        for address in ("foo", ":5", "1.2.3.4:99999", "::1:0", "unix:"):
            done = self.second_daemon(address)
            self.assertEqual(done.returncode, LENETD_USAGE, done.stderr)
            self.assertIn(address, done.stderr)
        for address in ("no-such-host.invalid:0", "192.0.2.1:0", f"unix:{self.folder}/missing/socket"):
            done = self.second_daemon(address, "--insecure")
            self.assertEqual(done.returncode, LENETD_LISTEN, done.stderr)
            self.assertIn(address, done.stderr)
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        done = self.run_lenetd("--port-file", pipe)
        self.assertEqual(done.returncode, LENETD_FAILURE, done.stderr)
        self.assertTrue(pipe.is_fifo())

    def test_without_standard_descriptors(self):
        script = self.folder / "closed"
        script.write_text(f'#!/bin/sh\nexec "{program("LENETD")}" "$@" <&- >&- 2>&-\n')
        script.chmod(0o755)
        with mock.patch.dict(os.environ, LENETD=str(script)):
            self.start_daemon()
        fds = pathlib.Path("/proc") / str(self.daemon.process.pid) / "fd"
        self.assertEqual([os.readlink(fds / str(fd)) for fd in range(3)], ["/dev/null"] * 3)
        self.assert_serves()

    def test_a_daemon_without_the_backend_it_was_told_to_use_does_not_start(self):
        empty = self.folder / "no-plugins"
        empty.mkdir()
        for backend in ("cuda", "cpu", "auto"):
            done = self.run_lenetd("--listen", "127.0.0.1:0", "--backend", backend, "--plugin-dir", empty)
            self.assertEqual(done.returncode, LENETD_BACKEND, done.stderr)
            self.assertIn(str(empty), done.stderr)

    def test_a_port_is_free_again_after_the_daemon(self):
        address = self.start_daemon().address
        self.must("submit", "--max-steps", 3)
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(), 0)
        result = self.lenetctl("info")
        self.assertEqual((result.code, result.out), (UNREACHABLE, ""))
        self.assertIn(address, result.err)
        self.start_daemon(listen=address)
        self.assertEqual(self.daemon.address, address)
        self.assert_serves()

    def test_a_log_that_nobody_reads_holds_nothing_up(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        self.start_daemon(stderr=writer)
        # Its own description of the pipe: the daemon's stays one that blocks.
        filler = os.open(f"/proc/self/fd/{writer}", os.O_WRONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, filler)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(filler, b"." * 4096)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(filler, b".")
        started = time.monotonic()
        for _ in range(5):
            self.must("submit", "--max-steps", 5)
        job = self.endless_job()
        self.assertEqual(self.lenetctl("stop", job, "--wait").code, SUCCESS)
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(), 0)
        self.assertLess(time.monotonic() - started, 30)

    def test_no_data_sets_at_all(self):
        self.data_dir = self.folder / "nothing"
        self.data_dir.mkdir()
        self.start_daemon()
        self.assertEqual(self.must("datasets", "--json"), "")
        result = self.lenetctl("submit")
        self.assertNotEqual(result.code, SUCCESS)
        self.assertIn("data set", result.err)


class ConnectionsTest(DaemonTest):

    def connect(self):
        host, port = self.daemon.address.rsplit(":", 1)
        connection = socket.create_connection((host, int(port)), timeout=PATIENCE)
        self.addCleanup(connection.close)
        return connection

    def test_the_descriptor_limit_is_raised(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, soft), hard))
        try:
            self.start_daemon()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self.assertEqual(resource.prlimit(self.daemon.process.pid, resource.RLIMIT_NOFILE), (hard, hard))

    def test_more_connections_than_descriptors(self):
        limit = 256
        self.start_daemon("--max-connections-per-client", "0")
        resource.prlimit(self.daemon.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        job = self.endless_job()

        def flood():
            """Connections of which the last ones are refused."""
            connections = [self.connect() for _ in range(limit + 44)]
            with contextlib.suppress(ConnectionResetError):
                self.assertEqual(connections[-1].recv(1), b"")
            return connections

        for _ in range(3):
            connections = flood()
            for connection in connections:
                connection.close()
            wait_until(lambda: self.lenetctl("info").code == SUCCESS, "the daemon takes connections again")
        # The job has what it needs to save.
        connections = flood()
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(), 0)
        self.assertTrue(self.checkpoints(job))

    def test_calls_of_a_connection_are_limited(self):
        """A client that does not keep to the limit loses the connection."""
        self.start_daemon("--max-calls-per-connection", "30")
        connection = http2.Connection(self.daemon.address)
        self.addCleanup(connection.close)
        head = connection.socket.recv(9, socket.MSG_WAITALL)
        payload = connection.socket.recv(int.from_bytes(head[:3], "big"), socket.MSG_WAITALL)
        self.assertEqual(head[3:5], bytes([http2.SETTINGS, 0]))
        self.assertIn((http2.MAX_CONCURRENT_STREAMS, 30), list(struct.iter_unpack(">HI", payload)))
        connection.send(http2.frame(http2.SETTINGS, http2.ACK))
        headers = http2.call_headers("/lenet.v1.TrainingService/GetJob")
        for stream in range(1, 10001, 2):
            connection.send(http2.frame(http2.HEADERS, http2.END_HEADERS, stream, headers))
        wait_until(lambda: not connection.drain(0.01), "the connection is closed")
        self.assert_serves()


if __name__ == "__main__":
    unittest.main()
