#!/usr/bin/env python3
"""The two MNIST examples on digits that it draws itself: the diff is short, both learn, and the workers share the data."""
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1))
HERE = pathlib.Path(__file__).parent
SAMPLES = 2560


def write_mnist(folder):
    """Ten patterns of strokes with noise, in MNIST's format."""
    random.seed(1)
    patterns = [[(random.randrange(4, 24), random.randrange(4, 24)) for _ in range(40)] for _ in range(10)]
    for prefix, count in (("train", 60000), ("t10k", 10000)):  # LibTorch's reader wants as many as MNIST has: the rest are zeros
        images, labels = bytearray(), bytearray()
        for i in range(SAMPLES):
            image = bytearray(random.randrange(40) for _ in range(784))
            for x, y in patterns[i % 10]:
                image[28 * y + x] = 200 + random.randrange(56)
            images += image
            labels.append(i % 10)
        images += bytes(784 * (count - SAMPLES))
        labels += bytes(count - SAMPLES)
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + images)
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels)


def results(text):
    """[(accuracy, samples)] of the second epoch, one a worker."""
    return [(float(a), int(n)) for a, n in re.findall(r"epoch 2: .*accuracy ([\d.]+)%, (\d+) samples", text)]


class Mnist(unittest.TestCase):
    def test_the_diff_is_at_most_five_lines(self):
        texts = [[line for line in (HERE / f"mnist_{name}.cpp").read_text().splitlines() if not line.startswith("//")]
                 for name in ("plain", "distributed")]
        added = [line for line in texts[1] if line.strip() and line not in texts[0]]
        self.assertLessEqual(len(added), 5, added)

    def test_both_learn(self):
        with tempfile.TemporaryDirectory() as folder:
            write_mnist(pathlib.Path(folder))
            plain = subprocess.run([BIN / "example_mnist_plain", folder, str(SAMPLES)], capture_output=True, text=True, timeout=120, check=True)
            shared = subprocess.run([BIN / "paceline", "run", "-np", "2", "--", BIN / "example_mnist_distributed", folder, str(SAMPLES)],
                                    capture_output=True, text=True, timeout=120, check=True)
        alone, ranks = results(plain.stdout), results(shared.stdout)
        self.assertEqual([n for _, n in alone], [SAMPLES])
        self.assertEqual([n for _, n in ranks], [SAMPLES // 2] * 2)
        self.assertGreater(min(a for a, _ in alone + ranks), 95)

    def test_a_missing_folder_is_an_error_and_no_crash(self):
        for program in ("example_mnist_plain", "example_mnist_distributed"):
            done = subprocess.run([BIN / program, "no-such-folder"], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("no-such-folder", done.stderr)
            self.assertNotIn("terminate called", done.stderr)

    def test_a_wrong_number_of_samples_is_named_with_the_usage(self):
        for program in ("example_mnist_plain", "example_mnist_distributed"):
            for word in ("many", "12x", "-1", "0", "60001"):
                done = subprocess.run([BIN / program, "mnist", word], capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual(done.returncode, 1, done.stderr)
                for fact in ("SAMPLES", f"'{word}'", "60000", "[FOLDER [SAMPLES]]"):
                    self.assertIn(fact, done.stderr)


unittest.main()
