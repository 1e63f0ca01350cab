"""A teaching note's run: two ranks, plain SGD, ten steps of MNIST."""
import os
import pathlib
import re
import unittest

from harness import TestCase, records, step_losses

MNIST_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
               "t10k-labels-idx1-ubyte")


def find_mnist():
    """The folder of the MNIST files, or None."""
    for variable in ("LENET_MNIST_DIR", "LENET_MNIST_DEFAULT_DIR"):
        folder = os.environ.get(variable)
        if folder and all((pathlib.Path(folder) / name).is_file() or (pathlib.Path(folder) / (name + ".gz")).is_file()
                          for name in MNIST_FILES):
            return pathlib.Path(folder).resolve()
    return None


@unittest.skipIf(find_mnist() is None, "needs MNIST: deploy/fetch-mnist.sh build/data, or its folder in LENET_MNIST_DIR")
class TeachingRunTest(TestCase):

    def test_ten_losses_a_rank_between_the_bounds_and_no_two_lines_mixed(self):
        mnist = find_mnist()
        self.data_dir = mnist.parent
        self.start_daemon()
        flags = ("--dataset", mnist.name, "--ranks", 2, "--batch-size", 8, "--optimizer", "sgd", "--lr", 0.1, "--schedule",
                 "constant", "--init", "uniform:-0.05,0.05", "--max-steps", 10)
        lines = [line for line in self.must("submit", *flags).splitlines() if "loss" in line and "step " in line[:5]]
        found = [re.fullmatch(r"step (\d+) rank ([01]) loss (\d\.\d{4})", line) for line in lines]
        self.assertNotIn(None, found, lines)
        losses = {(int(match[1]), int(match[2])): float(match[3]) for match in found}
        self.assertEqual(set(losses), {(step, rank) for step in range(1, 11) for rank in (0, 1)})
        self.assertEqual(len(lines), 20)
        for place, loss in losses.items():
            self.assertTrue(2.2 <= loss <= 2.45, (place, loss))
        # The ranks train on different images, and the same run again gives the same losses to the bit.
        self.assertNotEqual(losses[1, 0], losses[1, 1])
        exact = [step_losses(records(self.must("submit", "--json", *flags))[1:]) for _ in range(2)]
        self.assertEqual(exact[0], exact[1])
        self.assertEqual({place: round(loss, 4) for place, loss in exact[0].items()}, losses)


if __name__ == "__main__":
    unittest.main()
