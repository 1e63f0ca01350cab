"""A daemon that is killed again and again: nothing acknowledged is lost, and training ends with the bits of a run that
nobody disturbed.

LENET_KILLS says how often it is killed, LENET_SEED when, LENET_RANKS on how many ranks it trains.
"""
import json
import pathlib
import random
import struct
import threading
import time
import unittest

from api_harness import ApiTestCase, Watcher, size
from harness import PATIENCE

KILLS = size("LENET_KILLS", 20)
RANKS, BATCH, EPOCHS = size("LENET_RANKS", 2), 16, 20
CHECKED = 40  # jobs whose newest checkpoints are read after each kill; after the end it is those of all
STEPS_PER_EPOCH = 640 // (RANKS * BATCH)


def tensors(path):
    """The names in a safetensors file whose header and length agree."""
    content = pathlib.Path(path).read_bytes()
    length, = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__")
    if max(entry["data_offsets"][1] for entry in header.values()) != len(content) - 8 - length:
        raise AssertionError(f"{path} is cut short")
    return set(header)


class SurvivalTest(ApiTestCase):

    def setUp(self):
        super().setUp()
        spec = self.specs
        self.kinds = {
            "momentum": spec.TrainingSpec(),
            "adam": spec.TrainingSpec(optimizer=spec.Optimizer(kind=spec.Optimizer.ADAM)),
            "one-cycle": spec.TrainingSpec(optimizer=spec.Optimizer(momentum=0.9),
                                           schedule=spec.Schedule(kind=spec.Schedule.ONE_CYCLE)),
        }
        for one in self.kinds.values():
            one.dataset, one.ranks, one.batch_size, one.epochs, one.evaluate_every_epochs = "small", RANKS, BATCH, EPOCHS, 5
            one.checkpoints.every_steps = 37

    def check_log(self, job, watcher):
        """The watcher has what the store has; attempts follow one another; every step that is done again gives its
        losses again, to the bit."""
        stored = self.stored_log(job.id)
        self.assertIsNone(watcher.error)
        self.assertEqual(stored, watcher.records)
        starts = [record.attempt for record in stored
                  if record.HasField("state_change") and record.state_change.to == self.jobs.STARTING]
        self.assertEqual(starts, list(range(1, job.attempt + 1)))
        losses = {}
        for record in stored:
            self.assertNotIn("cannot be read", record.warning.message)
            batch = record.step_losses
            for step, rank, loss in zip(batch.steps, batch.ranks, batch.losses):
                self.assertEqual(losses.setdefault((step, rank), loss), loss)
        last = stored[-1].terminal.last_step
        self.assertLessEqual({(step, rank) for step in range(1, last + 1) for rank in range(RANKS)}, set(losses))

    def check_checkpoint(self, job):
        for checkpoint in self.job(job).checkpoints[-1:]:
            self.assertIn("conv1.weight", tensors(checkpoint.path))

    def test_killed_at_random_moments(self):
        rng = random.Random(size("LENET_SEED", 1))
        self.restart()
        undisturbed = {kind: self.await_end(self.start(spec)).weights_checksums
                       for kind, spec in self.kinds.items()}
        started, stopped, watchers = {}, set(), {}
        over = threading.Event()
        errors = []

        def work():
            try:
                chance = random.Random(rng.random())
                while not over.is_set():
                    kind = chance.choice(sorted(self.kinds))
                    request_id = f"{kind}-{len(started)}"
                    job = self.start(self.kinds[kind], request_id)
                    started[job] = kind
                    self.assertEqual(self.start(self.kinds[kind], request_id), job)
                    watchers[job] = Watcher(self, job)
                    watchers[job].start()
                    if chance.random() < 0.3:
                        time.sleep(chance.random() * 0.3)
                        stopped.add(job)
                        self.insist(self.stub.Stop, self.calls.StopRequest(job_id=job))
                    time.sleep(chance.random() * 0.5)
            except Exception as error:  # pylint: disable=broad-except
                errors.append(error)

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        for _ in range(KILLS):
            time.sleep(0.02 + rng.random() * 0.4)
            self.restart()
            jobs = list(started)
            for job in rng.sample(jobs, min(len(jobs), CHECKED)):
                self.check_checkpoint(job)
        over.set()
        worker.join(PATIENCE)
        self.assertEqual(errors, [])
        self.assertGreater(len(started), KILLS // 10)

        attempts = 0
        for job, kind in started.items():
            ended = self.await_end(job)
            attempts += ended.attempt
            watchers[job].join(PATIENCE)
            self.check_log(ended, watchers[job])
            self.check_checkpoint(job)
            if job in stopped:
                self.assertIn(ended.state, (self.jobs.STOPPED, self.jobs.SUCCEEDED))
            else:
                self.assertEqual(ended.state, self.jobs.SUCCEEDED, ended.reason)
            if ended.state == self.jobs.SUCCEEDED:
                self.assertEqual(ended.progress.step, EPOCHS * STEPS_PER_EPOCH)
                self.assertEqual(ended.weights_checksums, undisturbed[kind], f"{kind}, {ended.attempt} attempts")
        print(f"{KILLS} kills, {len(started)} jobs, {len(stopped)} stopped, {attempts} attempts, "
              f"{sum(watcher.connections for watcher in watchers.values())} streams")


if __name__ == "__main__":
    unittest.main()
