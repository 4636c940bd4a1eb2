#!/usr/bin/env python3
"""`paceline compare`: comparisons that repeat, their tables, and what they refuse."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

PACELINE = os.path.abspath(sys.argv.pop(1))
RECIPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "recipes")


def run(*words, **options):
    return subprocess.run([PACELINE, *words], capture_output=True, text=True, timeout=240, **options)


class Comparing(unittest.TestCase):
    SMALL = ["model.network=resnet20", "data.shape=[1,8,8]", "data.train_samples=96", "data.test_samples=64", "train.epochs=2",
             "schedule.milestones=[1]", "compare.workers=[2]"]

    def compare(self, folder, *more):
        result = run("compare", os.path.join(RECIPES, "lc_asgd_quick.toml"), *self.SMALL, *more, "--folder", folder, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_gives_the_same_output_twice(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            first = self.compare(one)
            self.assertEqual(first, self.compare(two))
            self.assertEqual(first, self.compare(one))  # from what is there
            rows = json.loads(first)["rows"]
            self.assertEqual(set(rows[0]), {"algorithm", "workers", "bn", "seed", "test_error", "epochs", "seconds", "mean_staleness", "stragglers",
                                            "predictor_ms", "overhead_percent"})
            self.assertEqual({r["algorithm"] for r in rows}, {"sgd", "ssgd", "asgd", "staleness_aware", "dc_asgd", "lc_asgd"})
            self.assertEqual({r["bn"] for r in rows}, {"bn", "async_bn", "recomputed"})
            for name in ("report.md", "error.svg", "time.svg", "staleness.svg", "predictions-lc_asgd-2w-seed1.svg", "rows.json"):
                self.assertTrue(os.path.exists(os.path.join(one, name)), name)

    def test_shows_what_was_measured_and_the_mean_over_the_seeds(self):
        with tempfile.TemporaryDirectory() as folder:
            rows = json.loads(self.compare(folder, "compare.algorithms=single; asgd", "compare.seeds=[1,2]"))["rows"]
            kinds = [(row["algorithm"], row["seed"], row["bn"]) for row in rows]
            self.assertEqual(kinds, [("single", 1, "bn"), ("single", 2, "bn")] +
                             [("asgd", seed, bn) for seed in (1, 2) for bn in ("bn", "async_bn", "recomputed")])
            with open(os.path.join(folder, "report.md")) as report:
                lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report if line.startswith("| ")]
            _, single, asgd = lines
            self.assertRegex(single[2], r"^\d+\.\d+ ± \d+\.\d+$")
            self.assertEqual((single[4], single[6]), ("-", "-"))
            self.assertRegex(asgd[5], r"^[+-]\d+\.\d+$")  # against the one error that there is
            self.assertEqual(asgd[8], f"{sum(row['mean_staleness'] for row in rows[2::3]) / 2:.2f}")
            self.assertEqual(asgd[-1], f"{sum(row['seconds'] for row in rows[2::3]) / 2:.1f}")

    def test_says_what_was_run_and_leaves_out_what_was_not_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            result = run("compare", "model.network=mlp", "data.shape=[1,8,8]", "data.train_samples=96", "data.test_samples=32", "data.batch=4",
                         "train.epochs=1", "train.device=cpu", "compare.algorithms=allreduce; asgd", "compare.workers=[2]", "--folder", folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            report = pathlib.Path(folder, "report.md").read_text()
        self.assertIn("executor threads", report)
        self.assertNotIn("against SGD", report)  # which was not run
        heads, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.splitlines() if line.startswith("| ")]
        sent = {row[1]: row[heads.index("kB sent a step")] for row in rows if len(row) == len(heads)}
        self.assertGreater(float(sent["allreduce"]), 0)
        self.assertEqual(sent["asgd"], "-")

    def test_takes_strategies_and_compressors_without_a_server(self):
        algorithms = "allreduce; post-local: strategy.name=local_sgd strategy.post_local_epoch=1; gossip; ad_psgd; dgc: comm.compression=dgc"
        with tempfile.TemporaryDirectory() as folder:
            result = run("compare", "model.network=mlp", "data.shape=[1,8,8]", "data.train_samples=96", "data.test_samples=32",
                         "data.batch=4", "train.epochs=2", "compare.algorithms=" + algorithms, "compare.workers=[2]", "--folder", folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            report = pathlib.Path(folder, "report.md").read_text()
            self.assertIn("kB sent a step", report)
            self.assertNotIn("staleness", report)  # of servers
            for name in ("loss.svg", "bytes.svg"):
                picture = pathlib.Path(folder, name).read_text()
                for label in ("allreduce", "post-local", "gossip", "ad_psgd", "dgc"):
                    self.assertIn(label, picture)
            sent = {name: sum(event["bytes_sent"] for event in self.steps(folder, name)) for name in ("allreduce", "dgc")}
            self.assertGreater(sent["allreduce"], 2 * sent["dgc"])
            early, late = (sum(event["bytes_sent"] for event in self.steps(folder, "post-local") if event["epoch"] == epoch) for epoch in (1, 2))
            self.assertGreater(early, 3 * late)  # at every step, then at every eighth and for the evaluation

    @staticmethod
    def steps(folder, name):
        with open(os.path.join(folder, name + "-2w-seed1", "metrics.jsonl")) as lines:
            return [event for event in map(json.loads, lines) if event["event"] == "step"]

    def test_refuses_before_it_starts(self):
        with tempfile.TemporaryDirectory() as folder:
            for words, message in ((["compare.algorithms=asgd; k_sync", "ps.group=9"], "9"),
                                   (["compare.algorithms=nothing"], "nothing"),
                                   (["compare.workers=[0]"], "at least 1"),
                                   (["ps.staleness=-1"], "at least 0"),
                                   (["ps.lc_lambda=nan"], "lc_lambda")):
                result = run("compare", os.path.join(RECIPES, "lc_asgd_quick.toml"), *words, "--folder", os.path.join(folder, "x"))
                self.assertEqual(result.returncode, 2, (words, result.stdout, result.stderr))
                self.assertIn(message, result.stderr)
                self.assertFalse(os.path.exists(os.path.join(folder, "x")), words)


if __name__ == "__main__":
    unittest.main()
