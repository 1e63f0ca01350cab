"""Clients that do not keep to the rules: whatever they do, others are served, and nothing of it is left.

LENET_HOSTILE: how often each of them does what it does, at least.
"""
import concurrent.futures
import contextlib
import os
import resource
import socket
import statistics
import struct
import threading
import time
import unittest

import http2
from api_harness import ApiTestCase, grpc, size
from harness import wait_until

TIMES = size("LENET_HOSTILE", 1)
SERVICE = "/lenet.v1.TrainingService/"
# The hostile ones' address; that of the others is 127.0.0.1.
SOURCE = "127.0.0.66"
# Others' calls may take twice the time that they take in quiet, or this: the machine has few cores, and hostile clients
# take one of them for themselves.
LATENCY_FLOOR = 0.01
# What may stay of hostile clients: memory that the allocator has not given back yet, threads of gRPC's pool.
MAX_GROWTH = 64 << 20
MAX_THREADS = 40
BAD_NAMES = ("../../etc/passwd", "/etc/passwd", "a\0b", "\x1b[31m", "x" * 100_000, "..", "a\nb", "\u202e", "%s%n")
STATUSES = ("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED")


def string_fields(descriptor, path=()):
    """The paths of all strings below a message, each a tuple of fields."""
    for field in descriptor.fields:
        if field in path:
            continue
        if field.type == field.TYPE_STRING:
            yield (*path, field)
        elif field.type == field.TYPE_MESSAGE:
            yield from string_fields(field.message_type, (*path, field))


def put(message, path, text):
    for field in path[:-1]:
        repeated = field.label == field.LABEL_REPEATED
        message = getattr(message, field.name).add() if repeated else getattr(message, field.name)
    if path[-1].label == path[-1].LABEL_REPEATED:
        getattr(message, path[-1].name).append(text)
    else:
        setattr(message, path[-1].name, text)


class HostileTest(ApiTestCase):

    def setUp(self):
        super().setUp()
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.start_daemon("--log-level", "error")
        self.address = self.daemon.address
        self.stub = self.connect()
        self.connections = contextlib.ExitStack()
        self.addCleanup(self.connections.close)

    def hostile(self, **options):
        connection = http2.Connection(self.address, SOURCE, **options)
        self.connections.callback(connection.close)
        return connection

    def call(self):
        """The time that a client's call takes."""
        began = time.monotonic()
        self.stub.GetServerInfo(self.calls.GetServerInfoRequest(), timeout=30, wait_for_ready=True)
        return time.monotonic() - began

    def latency(self, calls=50):
        return statistics.median(self.call() for _ in range(calls))

    def while_it_goes_on(self, attack):
        """Runs `attack` again and again while others are served, and then once nothing is left of it.

        Whatever it opens by hostile() is closed after it."""
        for _ in range(5):
            self.call()
        quiet = self.latency()
        before = self.daemon.proc_status()
        stop = threading.Event()
        rounds = []

        def run():
            while not stop.is_set():
                rounds.append(attack())

        with concurrent.futures.ThreadPoolExecutor() as pool:
            attacker = pool.submit(run)
            try:
                times = [self.call()]
                # At least one whole round.
                while (len(rounds) < TIMES or len(times) < 100) and not attacker.done():
                    times.append(self.call())
            finally:
                stop.set()
            attacker.result()
        median = statistics.median(times)
        self.connections.close()

        def is_as_before():
            self.call()
            memory, threads, files = self.daemon.proc_status()
            self.state = (memory - before[0]) >> 20, threads, files - before[2]
            return memory - before[0] < MAX_GROWTH and threads <= MAX_THREADS and files <= before[2] + 3

        wait_until(is_as_before, "nothing is left of the attack")
        print(f"{self.id().rsplit('.', 1)[1]}: {len(rounds)} rounds; a call {quiet * 1000:.2f} ms in quiet, "
              f"{median * 1000:.2f} meanwhile; MiB more, threads, files more: {self.state}")
        self.assertLess(median, max(2 * quiet, LATENCY_FLOOR))
        self.assertIsNone(self.daemon.process.poll())

    # Connections.

    def test_connections_that_say_nothing_or_half_of_it(self):
        tls_hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
        beginnings = (b"", tls_hello, http2.PREFACE[:12], b"GET / HTTP/1.1\r\n")

        def attack():
            self.connections.close()
            for i in range(80):
                self.hostile(greet=False).send(beginnings[i % len(beginnings)])
            time.sleep(0.2)

        self.while_it_goes_on(attack)

    def test_ten_thousand_connects(self):
        def attack():
            for _ in range(5000):
                http2.Connection(self.address, SOURCE, greet=False).close()

        self.while_it_goes_on(attack)

    def test_more_connections_than_are_allowed_are_closed(self):
        def attack():
            opened = [self.hostile() for _ in range(150)]
            self.assertIn(sum(connection.drain(0.01) for connection in opened), range(50, 101))
            self.connections.close()

        self.while_it_goes_on(attack)

    def test_garbage(self):
        def attack():
            for _ in range(100):
                for beginning in (b"", http2.PREFACE, http2.PREFACE + http2.settings()):
                    connection = http2.Connection(self.address, SOURCE, greet=False)
                    connection.send(beginning + os.urandom(2000))
                    connection.close()

        self.while_it_goes_on(attack)

    # Calls.

    def send_call(self, connection, stream, method="GetServerInfo", body=http2.message(b""), end=True):
        connection.send(http2.frame(http2.HEADERS, http2.END_HEADERS, stream, http2.call_headers(SERVICE + method)) +
                        (http2.frame(http2.DATA, http2.END_STREAM if end else 0, stream, body) if body else b""))

    def test_slow_bodies_and_calls_without_one(self):
        def attack():
            self.connections.close()
            slow = [self.hostile() for _ in range(20)]
            for connection in slow:
                for stream in range(1, 181, 2):
                    self.send_call(connection, stream, "Start", http2.message(b"x" * 100)[:6], end=False)
            for _ in range(2):
                for connection in slow:
                    connection.send(http2.frame(http2.DATA, 0, 1, b"x"))
                    connection.drain()
                time.sleep(0.3)

        self.while_it_goes_on(attack)

    def test_streams_that_are_cut_off(self):
        def attack():
            for _ in range(20):
                connection = http2.Connection(self.address, SOURCE)
                for stream in range(1, 101, 2):
                    self.send_call(connection, stream, "WatchJobs")
                connection.reset()

        self.while_it_goes_on(attack)

    def test_a_thousand_streams_and_more_are_refused(self):
        self.must("submit", "--max-steps", 3)

        def attack():
            self.connections.close()
            for _ in range(11):
                connection = self.hostile()
                for stream in range(1, 201, 2):
                    self.send_call(connection, stream, "WatchJobs")
                connection.drain(0.01)
            wait_until(self.has_no_stream_left, "others' streams are refused")

        self.while_it_goes_on(attack)

    def has_no_stream_left(self):
        watch = self.stub.WatchJobs(self.calls.WatchJobsRequest(), timeout=30)
        try:
            next(watch)
        except grpc.RpcError as refused:
            return refused.details() == "1000 streams are open; the limit is 1000 (limits.max_streams)"
        watch.cancel()
        return False

    def test_messages_that_are_too_large_or_too_deep(self):
        # Groups in groups, of a field that no message has.
        deep = b"\xa3\x06" * 100_000 + b"\xa4\x06" * 100_000
        channel = grpc.insecure_channel(self.address)
        self.addCleanup(channel.close)
        start = channel.unary_unary(SERVICE + "Start")

        def attack():
            for body, codes in ((deep, ("UNIMPLEMENTED", "INTERNAL")),
                                (b"\xa3\x06" * 90 + b"\xa4\x06" * 90, ("INVALID_ARGUMENT",)),
                                (bytes(8 << 20), ("RESOURCE_EXHAUSTED",))):
                with self.assertRaises(grpc.RpcError) as refused:
                    start(body, timeout=30)
                self.assertIn(refused.exception.code().name, codes)

        self.while_it_goes_on(attack)

    def test_bad_names_in_every_field(self):
        service = self.calls.DESCRIPTOR.services_by_name["TrainingService"]
        fields = [(method, path) for method in service.methods for path in string_fields(method.input_type)]
        # Stop, Pause, ... each have a job_id; Start has names of its own and of the spec.
        self.assertGreater(len(fields), 10)

        def attack():
            for method, path in fields:
                for name in BAD_NAMES:
                    request = getattr(self.calls, method.input_type.name)()
                    if method.name == "Start":
                        request.spec.dataset, request.spec.max_steps = "small", 1
                    put(request, path, name)
                    what = f"{method.name} {path[-1].name} {name[:20]!r}"
                    with self.assertRaises(grpc.RpcError, msg=what) as refused:
                        answer = getattr(self.stub, method.name)(request, timeout=30)
                        list(answer) if service.methods_by_name[method.name].server_streaming else None
                        # What is only shown may hold anything that is no control character.
                        if path[-1].name in ("name", "request_id") and name.isprintable() and len(name) <= 64:
                            raise grpc.RpcError("taken")
                    if refused.exception.args == ("taken",):
                        continue
                    status = refused.exception
                    self.assertIn(status.code().name, STATUSES)
                    self.assertLess(len(status.details()), 3000)
                    self.assertTrue(status.details().isprintable(), status.details())
                    self.assertNotIn("root:", status.details())

        self.while_it_goes_on(attack)

    # HTTP/2.

    def flood(self, data, times=20, first=b""):
        """Sends `first`, and the data so often, or as long as the server takes it."""

        def attack():
            connection = http2.Connection(self.address, SOURCE)
            connection.send(first)
            for _ in range(times):
                if not connection.send(data) or not connection.drain():
                    break
            connection.close()

        self.while_it_goes_on(attack)

    def test_floods_of_settings(self):
        self.flood(http2.settings(INITIAL_WINDOW_SIZE=100_000) * 2000)

    def test_floods_of_pings(self):
        self.flood(http2.frame(http2.PING, payload=bytes(8)) * 2000)

    def test_a_thousand_watchers_are_cheap(self):
        before = self.daemon.proc_status()
        watches = []
        for _ in range(20):
            stub = self.connect()
            watches += [stub.WatchJobs(self.calls.WatchJobsRequest()) for _ in range(50)]
        for watch in watches:
            self.addCleanup(watch.cancel)
            self.assertTrue(next(watch).snapshot_complete)
        times = sorted(self.call() for _ in range(200))
        memory, threads, _ = self.daemon.proc_status()
        each = (memory - before[0]) / len(watches)
        print(f"{len(watches)} watchers: {each / 1024:.1f} KiB each, {threads} threads; a call takes "
              f"{times[100] * 1000:.2f} ms, 99 of 100 at most {times[198] * 1000:.2f}")
        self.assertLessEqual(threads, MAX_THREADS)
        self.assertLess(each, 64 << 10)
        self.assertLess(times[100], LATENCY_FLOOR)

    def test_floods_of_continuations(self):
        first = http2.frame(http2.HEADERS, 0, 1, http2.call_headers(SERVICE + "GetJob"))
        more = http2.frame(http2.CONTINUATION, 0, 1, (b"\0\x01x\x64" + b"y" * 100) * 100)
        self.flood(more, times=1000, first=first)

    def test_rapid_resets(self):
        reset = struct.pack(">I", 8)  # CANCEL

        cut_after = []

        def attack():
            with contextlib.suppress(OSError):  # while it is refused
                connection = self.hostile()
                for stream in range(1, 1_000_001, 2):
                    self.send_call(connection, stream, "ListJobs")
                    if not connection.send(http2.frame(http2.RST_STREAM, 0, stream, reset)):
                        cut_after.append(stream // 2)
                        break
            self.connections.close()

        self.while_it_goes_on(attack)
        self.assertTrue(cut_after)
        self.assertGreaterEqual(cut_after[0], 1000)

    def test_answers_that_are_never_taken(self):
        for _ in range(3):
            self.must("submit", "--max-steps", 3)

        def attack():
            self.connections.close()
            for _ in range(10):
                connection = self.hostile(greet=False)
                connection.send(http2.PREFACE + http2.settings(INITIAL_WINDOW_SIZE=0))
                for stream in range(1, 61, 2):
                    self.send_call(connection, stream, "ListJobs" if stream % 4 == 1 else "WatchJobs")
            time.sleep(0.2)

        self.while_it_goes_on(attack)


if __name__ == "__main__":
    unittest.main()
