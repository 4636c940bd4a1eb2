#!/usr/bin/env python3
"""The GAN example on 1, 2 and 4 workers: the same losses and parameters, printed and saved by rank 0 alone; three workers are refused."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1))
PROGRAM = BIN / "example_own_loop_gan"
STEPS = 200
TOLERANCE = 1e-6  # of the printed numbers; rounding in double precision leaves less


def run(workers, *arguments):
    launcher = [] if workers == 1 else [BIN / "paceline", "run", "-np", str(workers), "--"]
    return subprocess.run([*launcher, PROGRAM, *arguments], capture_output=True, text=True, timeout=240, env=None)


def numbers(text):
    """Losses by step and the parameters' norm, of all lines that any rank printed."""
    return [float(x) for x in re.findall(r"(?:critic|generator|parameters) (-?[\d.]+)", text)]


class Gan(unittest.TestCase):
    def test_trains_the_same_on_any_number_of_workers(self):
        with tempfile.TemporaryDirectory() as folder:
            results = {}
            for workers in (1, 2, 4):
                file = pathlib.Path(folder) / f"{workers}.pt"
                done = run(workers, str(STEPS), str(file))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(file.is_file())
                results[workers] = numbers(done.stdout)
                self.assertEqual(len(results[workers]), 2 * (STEPS // 100) + 1, done.stdout)
            for workers in (2, 4):
                for alone, together in zip(results[1], results[workers]):
                    self.assertLess(abs(alone - together), TOLERANCE * max(1, abs(alone)), results)

    def test_errors_are_caught_in_main(self):
        refused = run(3, "1")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("1, 2 or 4 workers", refused.stderr)
        self.assertNotIn("terminate", refused.stderr)

    def test_a_wrong_number_of_steps_is_named_with_the_usage(self):
        for word in ("many", "10x", "0", "99999999999"):
            refused = run(1, word)
            self.assertEqual(refused.returncode, 2, refused.stderr)
            for fact in ("STEPS", f"'{word}'", "[STEPS [FILE]]"):
                self.assertIn(fact, refused.stderr)


unittest.main()
