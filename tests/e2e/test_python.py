"""The Python client of proto/README.md, as it stands there."""
import json
import os
import re
import subprocess
import unittest

from harness import PATIENCE, PYTHON, ROOT, TestCase, dataset_files, write_dataset


def has_grpc():
    return subprocess.run([PYTHON, "-c", "import grpc, google.protobuf"], capture_output=True).returncode == 0


@unittest.skipUnless(has_grpc(), "needs python3-grpcio")
class PythonTest(TestCase):

    def test_the_documented_client_trains_and_sees_every_loss(self):
        page = (ROOT / "proto" / "README.md").read_text()
        shell = re.search(r"^```sh\n(.*?)^```", page, re.M | re.S)[1]
        code = re.search(r"^```python\n(.*?)^```", page, re.M | re.S)[1]
        os.symlink(ROOT / "proto", self.folder / "proto")
        subprocess.run(["bash", "-euc", shell], cwd=self.folder, check=True, timeout=PATIENCE)
        write_dataset(self.data_dir / "fashion-mnist", dataset_files())
        self.start_daemon()
        done = subprocess.run([PYTHON, "-B", "-c", code, self.daemon.address], text=True, capture_output=True,
                              env={**os.environ, "PYTHONPATH": str(self.folder / "build/gen")}, timeout=PATIENCE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        job = json.loads(self.must("list", "--json"))
        steps = int(job["resolved"]["total_steps"])
        seen = [tuple(map(int, re.match(r"step (\d+) rank (\d+) loss \d\.\d{4}$", line).groups()))
                for line in lines if line.startswith("step ")]
        self.assertEqual(sorted(seen), [(step, rank) for step in range(1, steps + 1)
                                        for rank in range(job["resolved"]["ranks"])])
        self.assertRegex(lines[-2], r"^accuracy [01]\.\d{4}$")
        self.assertEqual(lines[-1], f"completed {steps} steps")


if __name__ == "__main__":
    unittest.main()
