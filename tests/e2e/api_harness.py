"""What end-to-end tests share that call the API itself: stubs, a channel that outlives daemons, a watcher that does too."""
import importlib
import os
import subprocess
import sys
import threading
import time
import unittest

from harness import PATIENCE, PYTHON, ROOT, TestCase, wait_until

try:
    import grpc
except ImportError:
    if sys.executable != PYTHON and os.path.exists(PYTHON):
        os.execv(PYTHON, [PYTHON, "-B", *sys.argv])
    grpc = None

CALL_SECONDS = 10


def size(variable, default):
    """How much a test does: a variable that the long runs set, or what is enough for every day."""
    return int(os.environ.get(variable, default))


class Watcher(threading.Thread):
    """Reads a job's stream to its terminal record, over however many connections that takes."""

    def __init__(self, case, job, cuts=0, chance=None):
        super().__init__(daemon=True)
        self.case, self.job, self.cuts, self.chance = case, job, cuts, chance
        self.records = []
        self.connections = 0
        self.error = None

    def ended(self):
        return self.records and self.records[-1].HasField("terminal")

    def run(self):
        while self.error is None and not self.ended():
            request = self.case.calls.StreamMetricsRequest(job_id=self.job, from_sequence=len(self.records) + 1)
            try:
                self.connections += 1
                stream = self.case.stub.StreamMetrics(request, timeout=PATIENCE)
                for message in stream:
                    for record in message.records:
                        if record.sequence != len(self.records) + 1:
                            self.error = f"sequence {record.sequence} after {len(self.records)} records"
                        self.records.append(record)
                    if self.cuts > 0 and self.chance.random() < 0.7:
                        self.cuts -= 1
                        stream.cancel()
            except grpc.RpcError as error:
                if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.DATA_LOSS):
                    self.error = str(error)
                time.sleep(0.02)


@unittest.skipUnless(grpc, "needs python3-grpcio")
class ApiTestCase(TestCase):
    """`calls`, `jobs` and `specs` are the modules of messages, `stub` the service of the daemon on `address`."""

    def setUp(self):
        super().setUp()
        generated = self.folder / "gen"
        generated.mkdir()
        plugin = subprocess.run(["which", "grpc_python_plugin"], capture_output=True, text=True, check=True)
        subprocess.run(["protoc", "-I", ROOT / "proto", f"--python_out={generated}", f"--grpc_out={generated}",
                        f"--plugin=protoc-gen-grpc={plugin.stdout.strip()}", *(ROOT / "proto").glob("lenet/v1/*.proto")],
                       check=True)
        sys.path.insert(0, str(generated))
        self.addCleanup(sys.path.remove, str(generated))
        self.calls = importlib.import_module("lenet.v1.training_service_pb2")
        self.jobs = importlib.import_module("lenet.v1.job_pb2")
        self.specs = importlib.import_module("lenet.v1.training_spec_pb2")
        self.services = importlib.import_module("lenet.v1.training_service_pb2_grpc")
        self.address = f"unix:{self.folder}/socket"
        self.stub = self.connect()

    def connect(self):
        channel = grpc.insecure_channel(self.address, options=[("grpc.min_reconnect_backoff_ms", 50),
                                                               ("grpc.initial_reconnect_backoff_ms", 50),
                                                               ("grpc.max_reconnect_backoff_ms", 100),
                                                               ("grpc.use_local_subchannel_pool", 1)])
        self.addCleanup(channel.close)
        return self.services.TrainingServiceStub(channel)

    def restart(self, *arguments):
        """A new daemon after one that is killed, if there was one."""
        if self.daemon is not None:
            self.daemon.kill()
        self.start_daemon("--log-level", "error", *arguments, listen=self.address)

    def insist(self, call, request):
        """Repeats a call until a daemon answers it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return call(request, timeout=CALL_SECONDS)
            except grpc.RpcError as error:
                unsure = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED,
                          grpc.StatusCode.UNKNOWN)
                if error.code() not in unsure or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def start(self, spec, request_id="", **fields):
        request = self.calls.StartRequest(request_id=request_id, spec=spec, **fields)
        return self.insist(self.stub.Start, request).job.id

    def job(self, job):
        return self.insist(self.stub.GetJob, self.calls.GetJobRequest(job_id=job)).job

    def await_end(self, job):
        ended = (self.jobs.SUCCEEDED, self.jobs.STOPPED, self.jobs.FAILED)
        return wait_until(lambda: (now := self.job(job)).state in ended and now, f"job {job} ends")

    def stored_log(self, job):
        return [record for message in
                self.stub.StreamMetrics(self.calls.StreamMetricsRequest(job_id=job), timeout=PATIENCE)
                for record in message.records]
