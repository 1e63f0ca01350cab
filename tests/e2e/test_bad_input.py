"""Bad specs and damaged data sets: the right error, the daemon alive, the next job fine."""
import gzip
import struct
import unittest

from harness import ERROR, JOB_FAILED, SUCCESS, USAGE, TestCase, dataset_files, idx, records, write_dataset

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"

# Flags of submit; lenetctl's exit code; what its message must say.
BAD_SPECS = (
    (["--epochs", 0], USAGE, "epochs"),
    (["--epochs", -1], USAGE, "epochs"),
    (["--max-steps", 0], USAGE, "max_steps"),
    (["--max-steps", 2**62], USAGE, "max_steps"),
    (["--max-steps", 5, "--epochs", 5], USAGE, "epochs"),
    (["--batch-size", 0], USAGE, "batch_size"),
    (["--batch-size", -5], USAGE, "batch_size"),
    (["--batch-size", 641, "--ranks", 1], USAGE, "641"),
    (["--batch-size", 2**31 - 1, "--ranks", 2], USAGE, "batch_size"),
    (["--global-batch-size", 63, "--ranks", 2], USAGE, "63"),
    (["--global-batch-size", 1000, "--ranks", 2], USAGE, "1000"),
    (["--batch-size", 8, "--global-batch-size", 16], USAGE, "batch_size"),
    (["--lr", "nan"], USAGE, "learning_rate"),
    (["--lr", "inf"], USAGE, "learning_rate"),
    (["--lr", 0], USAGE, "learning_rate"),
    (["--lr", -0.1], USAGE, "learning_rate"),
    (["--dataset", "unknown"], ERROR, "unknown"),
    (["--dataset", "../x"], USAGE, "../x"),
    (["--dataset", "../data/small"], USAGE, "../data/small"),
    (["--dataset", "/etc"], USAGE, "/etc"),
    (["--dataset", ".."], USAGE, "dataset"),
    (["--dataset", "x" * 65], USAGE, "dataset"),
    (["--ranks", -1], USAGE, "ranks"),
    (["--ranks", 100000], USAGE, "100000"),
    (["--devices", "0,0"], USAGE, "device_ids"),
    (["--devices", 999], USAGE, "999"),
    (["--devices", -1], USAGE, "device_ids"),
    (["--devices", "0", "--ranks", 2], USAGE, "ranks"),
    (["--net", "alexnet"], USAGE, "alexnet"),
    (["--init", "uniform:0.1,-0.1"], USAGE, "init"),
    (["--init", "uniform:nan,1"], USAGE, "init"),
    (["--momentum", 1.5], USAGE, "momentum"),
    (["--momentum", "nan"], USAGE, "momentum"),
    (["--nesterov"], USAGE, "nesterov"),
    (["--weight-decay", -1], USAGE, "weight_decay"),
    (["--optimizer", "adam", "--beta1", 1], USAGE, "beta1"),
    (["--optimizer", "adam", "--epsilon", 0], USAGE, "epsilon"),
    (["--optimizer", "adam", "--momentum", 0.9], USAGE, "momentum"),
    (["--schedule", "step", "--gamma", 0], USAGE, "gamma"),
    (["--schedule", "cosine", "--final-fraction", 2], USAGE, "final_fraction"),
    (["--schedule", "linear", "--warmup", 1], USAGE, "warmup"),
    (["--clip-norm", -1], USAGE, "clip_norm"),
    (["--clip-norm", "nan"], USAGE, "clip_norm"),
    (["--evaluate-every", -1], USAGE, "evaluate_every"),
    (["--precision", "tf32"], USAGE, "TF32"),
    (["--name", "n" * 65], USAGE, "name"),
    (["--request-id", "r" * 129], USAGE, "request_id"),
)


# What lenetctl finds by itself, without a word to the server: the flags, and what its message must say.
BAD_VALUES = (
    (["--epochs", ""], "--epochs: the value is empty"),
    (["--lr", ""], "--lr: the value is empty"),
    (["--dataset", ""], "--dataset: the value is empty"),
    (["--dataset=", "--epochs", 1], "--dataset: the value is empty"),
    (["--epochs", "0x10"], '--epochs: "0x10" is not a whole number from -2147483648 to 2147483647'),
    (["--epochs", 99999999999], '--epochs: "99999999999" is not a whole number from -2147483648 to 2147483647'),
    (["--lr", "0x1p-3"], '--lr: "0x1p-3" is not a number'),
    (["--nesterov=foo"], "--nesterov takes no value"),
    (["--detach=foo"], "--detach takes no value"),
    (["--timeout", "1e-9"], '--timeout: "1e-9" is not a time of at least 0.001 seconds'),
)


def damage(name, content):
    """A change to one file of a set."""

    def apply(files):
        files[name] = content(files[name]) if callable(content) else content

    return apply


def gzipped(name, change):
    """Replaces a file by its compressed form, changed."""

    def apply(files):
        files[name + ".gz"] = change(gzip.compress(files.pop(name)))

    return apply


def flip(content, place):
    content = bytearray(content)
    content[place] ^= 0xff
    return bytes(content)


def without(name):
    return lambda files: files.pop(name)


def small_images(files):
    files.update(dataset_files(side=5))


def no_images(files):
    files.update({TRAIN_IMAGES: idx(0x803, (0, 28, 28), b""), TRAIN_LABELS: idx(0x801, (0,), b"")})


HTML = b"<!DOCTYPE html><html><head><title>404</title></head><body>Not found</body></html>"

# The damage; the exit codes that may tell of it: what the headers show is found before the job is queued, the rest by
# the job as it loads; what the message must say.
DAMAGED = {
    "html": (damage(TRAIN_IMAGES, HTML), [ERROR], TRAIN_IMAGES),
    "html-gz": (lambda files: files.update({TRAIN_IMAGES + ".gz": HTML, TRAIN_IMAGES: HTML}), [ERROR], TRAIN_IMAGES),
    "gz-truncated": (gzipped(TRAIN_IMAGES, lambda data: data[:len(data) // 2]), [JOB_FAILED], TRAIN_IMAGES),
    "gz-bad-crc": (gzipped(TEST_LABELS, lambda data: flip(data, -8)), [ERROR, JOB_FAILED], TEST_LABELS),
    "gz-header-alone": (gzipped(TRAIN_LABELS, lambda data: data[:10]), [ERROR], TRAIN_LABELS),
    "magic": (damage(TRAIN_IMAGES, lambda data: struct.pack(">I", 0x1803) + data[4:]), [ERROR], "1803"),
    "labels-for-images": (damage(TRAIN_IMAGES, lambda data: struct.pack(">I", 0x801) + data[4:]), [ERROR], "801"),
    "0-bytes": (damage(TRAIN_IMAGES, b""), [ERROR], TRAIN_IMAGES),
    "3-bytes": (damage(TEST_LABELS, b"\0\0\x08"), [ERROR], TEST_LABELS),
    "15-bytes": (damage(TEST_IMAGES, lambda data: data[:15]), [ERROR], TEST_IMAGES),
    "too-few": (damage(TRAIN_IMAGES, lambda data: data[:-1]), [ERROR, JOB_FAILED], TRAIN_IMAGES),
    "trailing": (damage(TRAIN_LABELS, lambda data: data + b"\0"), [ERROR, JOB_FAILED], TRAIN_LABELS),
    "gz-trailing": (gzipped(TRAIN_LABELS, lambda data: data + b"rest"), [ERROR, JOB_FAILED], TRAIN_LABELS),
    "overflow": (damage(TRAIN_IMAGES, lambda data: idx(0x803, (2**32 - 1,) * 3, data[16:])), [ERROR], TRAIN_IMAGES),
    "counts-differ": (damage(TRAIN_LABELS, lambda data: idx(0x801, (639,), data[8:-1])), [ERROR], "639"),
    "sizes-differ": (damage(TEST_IMAGES, lambda data: idx(0x803, (200, 14, 56), data[16:])), [ERROR], "14"),
    "empty": (no_images, [ERROR], TRAIN_IMAGES),
    "test-label-unknown": (damage(TEST_LABELS, lambda data: data[:-1] + b"\xff"), [JOB_FAILED], "255"),
    "no-test-labels": (without(TEST_LABELS), [ERROR], TEST_LABELS),
    "images-too-small": (small_images, [USAGE], "5"),
}


class BadSpecTest(TestCase):

    def test_every_bad_spec_is_refused_and_the_daemon_goes_on(self):
        self.start_daemon()
        for flags, code, said in BAD_SPECS:
            with self.subTest(flags=flags):
                result = self.lenetctl("submit", *flags)
                self.assertEqual(result.code, code, result)
                self.assertEqual(result.out, "")
                self.assertIn(said, result.err)
                self.assertIn(self.daemon.address, result.err)
                self.must("info")
        self.assertEqual(self.must("list", "--json"), "", "a refused spec makes no job")
        self.assert_serves()


    def test_every_bad_value_is_refused_by_its_flag(self):
        self.start_daemon()
        for flags, said in BAD_VALUES:
            with self.subTest(flags=flags):
                result = self.lenetctl("submit", *flags)
                self.assertEqual((result.code, result.out), (USAGE, ""))
                self.assertEqual(result.err, f"lenetctl: {said}\nSee lenetctl submit --help.\n")
        self.assertEqual(self.must("list", "--json"), "")

    def test_a_data_set_must_be_named_where_there_are_several(self):
        write_dataset(self.data_dir / "other", dataset_files())
        self.start_daemon()
        result = self.lenetctl("submit", "--epochs", 1)
        self.assertEqual((result.code, result.out), (USAGE, ""))
        self.assertEqual(result.err, f"lenetctl: the server {self.daemon.address} has no data set fashion-mnist, "
                         "so --dataset must name one of other, small\n")


class DamagedDataTest(TestCase):

    def test_every_damaged_set_is_told_and_the_daemon_goes_on(self):
        for name, (change, _, _) in DAMAGED.items():
            files = dataset_files()
            change(files)
            write_dataset(self.data_dir / name, files)
        # A link must not lead out of the data folder.
        outside = self.folder / "outside"
        write_dataset(outside, dataset_files())
        (self.data_dir / "linked").symlink_to(outside)
        self.start_daemon()
        self.assertNotIn(self.lenetctl("submit", "--dataset", "linked").code, (SUCCESS, JOB_FAILED))
        listed = {dataset["name"]: dataset for dataset in records(self.must("datasets", "--json"))}
        self.assertEqual(set(listed), set(DAMAGED) | {"small"})
        self.assertTrue(listed["small"]["valid"], listed["small"])
        for name, (_, codes, said) in DAMAGED.items():
            with self.subTest(dataset=name):
                result = self.lenetctl("submit", "--dataset", name, "--max-steps", 3)
                self.assertIn(result.code, codes, result)
                self.assertIn(said, result.err)
                if result.code == JOB_FAILED:
                    self.assertIn("in load", result.err)
                if result.code == ERROR:
                    self.assertFalse(listed[name]["valid"])
                self.must("info")
        self.must("submit", "--dataset", "small", "--max-steps", 3)

    def test_a_set_that_is_damaged_between_two_jobs_is_noticed(self):
        self.start_daemon()
        self.must("submit", "--max-steps", 3)
        path = self.data_dir / "small" / TRAIN_LABELS
        content = path.read_bytes()
        path.write_bytes(content[:-1] + b"\xfe\xff")
        self.assertIn(self.lenetctl("submit", "--dataset", "small", "--max-steps", 3).code, (ERROR, JOB_FAILED))
        path.write_bytes(content)
        self.must("submit", "--dataset", "small", "--max-steps", 3)


if __name__ == "__main__":
    unittest.main()
