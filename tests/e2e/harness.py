"""What the end-to-end tests share: a daemon of their own, lenetctl, and small data sets.

The programs come from the variables LENETD, LENETCTL and LENET_PLUGINS, which ctest sets; without the last one, lenetd
looks for its plug-ins by itself. LENET_BACKEND is what it trains on; without: the CPU. Configuration files of this
machine are not read. Nothing waits a fixed time: every wait ends with what it waits for, and fails after PATIENCE
seconds.
"""
import collections
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import tempfile
import threading
import time
import unittest

PATIENCE = 120.0
os.environ["LENETD_CONFIG"] = os.environ["LENETCTL_CONFIG"] = os.devnull
ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3"  # the distribution's, which has its python3-grpcio

# lenetctl's exit codes.
SUCCESS, ERROR, USAGE, JOB_FAILED, JOB_STOPPED, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

Result = collections.namedtuple("Result", "code out err")


def program(variable):
    path = os.environ.get(variable)
    if not path:
        raise RuntimeError(f"set {variable}; ctest does")
    return path


def install(prefix, *arguments, **options):
    """What `cmake --install` makes of the build."""
    subprocess.run(["cmake", "--install", program("LENET_BUILD"), "--prefix", prefix, *arguments], check=True,
                   stdout=subprocess.DEVNULL, **options)


def class_folder(cls):
    """A folder for a test class, until its tests are done."""
    folder = tempfile.TemporaryDirectory(prefix="lenet-e2e-")
    cls.addClassCleanup(folder.cleanup)
    return pathlib.Path(folder.name)


def wait_until(condition, what):
    """The first true value that `condition` gives."""
    deadline = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {PATIENCE} s")
        time.sleep(0.005)


def idx(magic, dimensions, payload):
    return struct.pack(f">I{len(dimensions)}I", magic, *dimensions) + payload


def dataset_files(train=640, test=200, side=28):
    """The four files of a set whose ten classes are easy to tell apart, by name."""
    rng = random.Random(1)
    size = side * side
    mask = int.from_bytes(bytes([0x3f]) * size, "big")
    prototypes = [int.from_bytes(rng.randbytes(size), "big") for _ in range(10)]

    def images(labels):
        return b"".join(
            (prototypes[label] ^ (int.from_bytes(rng.randbytes(size), "big") & mask)).to_bytes(size, "big")
            for label in labels)

    files = {}
    for prefix, count in (("train", train), ("t10k", test)):
        labels = bytes(i % 10 for i in range(count))
        files[f"{prefix}-images-idx3-ubyte"] = idx(0x803, (count, side, side), images(labels))
        files[f"{prefix}-labels-idx1-ubyte"] = idx(0x801, (count,), labels)
    return files


def write_dataset(folder, files):
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def backend_arguments():
    plugins = ["--plugin-dir", os.environ["LENET_PLUGINS"]] if "LENET_PLUGINS" in os.environ else []
    return ["--backend", os.environ.get("LENET_BACKEND", "cpu"), *plugins]


class Daemon:
    """lenetd on a free port, or on what `listen` names, one or several; with `metrics`, an address, also /metrics."""

    def __init__(self, folder, data_dir, *arguments, listen="127.0.0.1:0", metrics="off", stderr=None):
        self.state_dir = folder / "state"
        port_file = folder / f"port-{time.monotonic_ns()}"
        listen = [f"--listen={address}" for address in ([listen] if isinstance(listen, str) else listen)]
        self.process = subprocess.Popen([
            program("LENETD"), *listen, "--port-file", port_file, "--state-dir", self.state_dir,
            *(["--data-dir", data_dir] if data_dir else []), "--metrics-listen", metrics, *backend_arguments(),
            *arguments], stderr=stderr)
        wait_until(lambda: port_file.exists() or self.process.poll() is not None, "the daemon serves")
        if self.process.poll() is not None:
            raise AssertionError(f"lenetd ended with code {self.process.returncode}")
        self.addresses = port_file.read_text().splitlines()
        self.address = self.addresses[0]

    def proc_status(self):
        """Resident memory in bytes, threads, open files."""
        proc = pathlib.Path("/proc") / str(self.process.pid)
        fields = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        return (int(fields["VmRSS"].split()[0]) * 1024, int(fields["Threads"]), len(list((proc / "fd").iterdir())))

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self):
        return self.process.wait(PATIENCE)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Follower:
    """A lenetctl that runs, with the lines that it has written so far."""

    def __init__(self, command):
        self.started = time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.lines = []
        self.times = []  # of the lines
        self.err = ""
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._read_out), threading.Thread(target=self._read_err)]
        for thread in self._threads:
            thread.start()

    def _read_out(self):
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self.times.append(time.monotonic())
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _read_err(self):
        self.err = self.process.stderr.read()

    def wait_for(self, wanted):
        """The index of the first line that `wanted` is true of."""
        deadline = time.monotonic() + PATIENCE
        seen = 0
        with self._changed:
            while True:
                for i in range(seen, len(self.lines)):
                    if wanted(self.lines[i]):
                        return i
                seen = len(self.lines)
                if not self._threads[0].is_alive() or not self._changed.wait(deadline - time.monotonic()):
                    raise AssertionError("the line did not come; last ones: %r; errors: %r" %
                                         (self.lines[-5:], self.err))

    def finish(self):
        """Waits for the end."""
        code = self.process.wait(PATIENCE)
        for thread in self._threads:
            thread.join(PATIENCE)
        return Result(code, "".join(line + "\n" for line in self.lines), self.err)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.finish()
        self.process.stdout.close()
        self.process.stderr.close()


def records(text):
    """The objects of a text of JSON lines; anything else in it is an error."""
    return [json.loads(line) for line in text.splitlines()]


def step_losses(log):
    """{(step, rank): loss} of a log's records; no entry may come twice."""
    losses = {}
    for record in log:
        batch = record.get("step_losses", {"steps": [], "ranks": [], "losses": []})
        for step, rank, loss in zip(batch["steps"], batch["ranks"], batch["losses"], strict=True):
            if (int(step), rank) in losses:
                raise AssertionError(f"step {step} of rank {rank} came twice")
            losses[int(step), rank] = float(loss)
    return losses


class TestCase(unittest.TestCase):
    """Each test has a folder and a data set "small" in it; the daemon is its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lenet-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.data_dir = self.folder / "data"
        write_dataset(self.data_dir / "small", dataset_files())
        self.daemon = None

    def start_daemon(self, *arguments, **options):
        self.daemon = Daemon(self.folder, self.data_dir, *arguments, **options)
        self.addCleanup(self.daemon.kill)
        return self.daemon

    def command(self, *arguments):
        return [program("LENETCTL"), "--server", self.daemon.address, *map(str, arguments)]

    def lenetctl(self, *arguments):
        """Runs lenetctl to its end."""
        done = subprocess.run(self.command(*arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE)
        return Result(done.returncode, done.stdout, done.stderr)

    def must(self, *arguments):
        """What lenetctl writes; it must succeed and report no error."""
        result = self.lenetctl(*arguments)
        self.assertEqual((result.code, result.err), (SUCCESS, ""), result.out)
        return result.out

    def follow(self, *arguments):
        follower = Follower(self.command(*arguments))
        self.addCleanup(follower.close)
        return follower

    def submit_detached(self, *arguments):
        """The new job's id."""
        out = self.must("submit", "--detach", *arguments)
        self.assertRegex(out, r"\A\S+\n\Z")
        return out.strip()

    def endless_job(self, *arguments):
        """The id of a job that runs until it is stopped, once it has made steps."""
        job = self.submit_detached("--epochs", 10**6, "--evaluate-every", 0, "--batch-size", 16, *arguments)
        wait_until(lambda: self.step_of(job) > 0, "the job makes steps")
        return job

    def show(self, job):
        return json.loads(self.must("show", job, "--json"))

    def step_of(self, job):
        """The step that every rank of the job has done."""
        return int(self.show(job).get("progress", {}).get("step", 0))

    def log(self, job):
        """All records of a job that has ended."""
        return records(self.lenetctl("watch", job, "--json").out)

    def assert_whole(self, log):
        """The log has every sequence from 1 on, and a terminal record as its last and only one."""
        self.assertEqual([int(record["sequence"]) for record in log], list(range(1, len(log) + 1)))
        self.assertEqual([i for i, record in enumerate(log) if "terminal" in record], [len(log) - 1])

    def assert_serves(self):
        """The daemon lives and trains."""
        self.assertIsNone(self.daemon.process.poll())
        self.must("submit", "--max-steps", 3)
