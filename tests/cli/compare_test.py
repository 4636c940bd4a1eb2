#!/usr/bin/env python3
"""`paceline compare`: comparisons that repeat, their tables, and what they refuse."""
import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PACELINE = os.path.abspath(sys.argv.pop(1))
RECIPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "recipes")


def run(*words, **options):
    return subprocess.run([PACELINE, *words], capture_output=True, text=True, timeout=240, **options)


def repeatable(printed):
    """What does not depend on how fast the machine is."""
    document = json.loads(printed)
    for row in document["rows"]:
        row.pop("measured")
    return document


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
            self.assertEqual(repeatable(first), repeatable(self.compare(two)))
            self.assertEqual(first, self.compare(one))  # from what is there
            rows = json.loads(first)["rows"]
            self.assertEqual(set(rows[0]), {"algorithm", "workers", "bn", "seed", "clock", "chosen", "test_error", "epochs", "seconds", "seconds_are",
                                            "mean_staleness", "stragglers", "assumed", "measured"})
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

    def test_an_overhead_is_measured_or_says_that_it_is_assumed(self):
        with tempfile.TemporaryDirectory() as folder:
            printed = self.compare(folder, "compare.algorithms=sgd; lc_asgd", "timing.predictor_ms=7", "timing.compute_ms=63", "timing.latency_ms=0",
                                   "timing.bandwidth_mb_per_s=1e9", "timing.distribution=constant")
            report = pathlib.Path(folder, "report.md").read_text()
        row = [row for row in json.loads(printed)["rows"] if row["algorithm"] == "lc_asgd"][0]
        self.assertEqual(row["seconds_are"], "assumed")
        self.assertAlmostEqual(row["assumed"]["predictor_ms"], 7)
        self.assertAlmostEqual(row["assumed"]["overhead_percent"], 10, places=3)
        measured = row["measured"]
        self.assertNotEqual(measured["predictor_ms"], 7)
        self.assertGreater(measured["predictor_ms"], 0)
        self.assertAlmostEqual(measured["overhead_percent"], 100 * measured["predictor_ms"] / measured["iteration_ms"])
        self.assertRegex(report, r"(?m)^- Assumed: .*63 ms")
        sgd = [row for row in json.loads(printed)["rows"] if row["algorithm"] == "sgd"][0]
        self.assertAlmostEqual(sgd["seconds"], 2 * 6 * 0.063, places=6)  # computing alone: two epochs of six batches

    def test_says_what_was_run_and_leaves_out_what_was_not_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            result = run("compare", "model.network=mlp", "data.shape=[1,8,8]", "data.train_samples=96", "data.test_samples=32", "data.batch=4",
                         "train.epochs=1", "train.device=cpu", "compare.algorithms=allreduce; asgd", "compare.workers=[2]", "--folder", folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            report = pathlib.Path(folder, "report.md").read_text()
        self.assertIn("executor threads", report)
        self.assertNotIn("against SGD", report)  # which was not run
        heads, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.splitlines() if line.startswith("| ")]
        sent = {row[1]: row[heads.index("kB sent per step")] for row in rows if len(row) == len(heads)}
        self.assertGreater(float(sent["allreduce"]), 0)
        self.assertEqual(sent["asgd"], "-")

    def test_takes_strategies_and_compressors_without_a_server(self):
        algorithms = "allreduce; post-local: strategy.name=local_sgd strategy.post_local_epoch=1; gossip; ad_psgd; dgc: comm.compression=dgc"
        with tempfile.TemporaryDirectory() as folder:
            result = run("compare", "model.network=mlp", "data.shape=[1,8,8]", "data.train_samples=96", "data.test_samples=32",
                         "data.batch=4", "train.epochs=2", "compare.algorithms=" + algorithms, "compare.workers=[2]", "--folder", folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            report = pathlib.Path(folder, "report.md").read_text()
            self.assertIn("kB sent per step", report)
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

    def test_the_asynchronous_study_in_small(self):
        small = ["model.network=mlp", "data.shape=[1,8,8]", "data.train_samples=256", "data.test_samples=64", "data.batch=8", "train.epochs=2",
                 "compare.workers=[4]", "compare.held_out=64", "compare.seeds=[1,2]", "compare.grid=optim.rate=0.02|0.1", "compare.accuracies=[12,100]",
                 "compare.references=asgd", "compare.algorithms=sgd; k_sync; asgd; lc_asgd: strategy.name=lc_asgd ps.lc_lambda=0.1|1",
                 "compare.clocks=even: timing.shape=100; slow: timing.slow_workers=[3] timing.slow_factor=3"]
        with tempfile.TemporaryDirectory() as folder:
            command = ["compare", os.path.join(RECIPES, "async_study_quick.toml"), *small, "--folder", folder, "--json"]
            result = run(*command)
            self.assertEqual(result.returncode, 0, result.stderr)
            found = json.loads(result.stdout)
            report = pathlib.Path(folder, "report.md").read_text()
            runs = sorted(path.name for path in pathlib.Path(folder).iterdir() if path.is_dir())
            recipes = {name: pathlib.Path(folder, name, "recipe.toml").read_text() for name in runs}
            self.assertEqual(run(*command).stdout, result.stdout)  # nothing is run again
        tuning = [name for name in runs if "held_out" in name]
        self.assertEqual(len(tuning), 2 * (3 * 2 + 4))  # two clocks: three grids of two points, one of four
        self.assertEqual(len(runs) - len(tuning), 2 * 4 * 2)
        for name in runs:
            self.assertIn("held_out = 64\n" if name in tuning else "held_out = 0\n", recipes[name])
            self.assertEqual("seed = 101\n" in recipes[name], name in tuning)
        for choice in found["choices"]:
            best = min(choice["tried"], key=lambda point: point["held_out_error"])
            self.assertEqual(choice["chosen"], best["settings"])
            rows = [row for row in found["rows"] if all(row[key] == choice[key] for key in ("algorithm", "workers", "clock"))]
            self.assertEqual({tuple(row["chosen"]) for row in rows}, {tuple(choice["chosen"])})
            self.assertTrue(rows[0]["seconds_to"]["100"] is None or rows[0]["seconds_to"]["100"] > 0)
        errors = {(row["clock"], row["algorithm"], row["seed"]): row["test_error"] for row in found["rows"]}
        slow = [row for row in found["differences"] if (row["clock"], row["algorithm"]) == ("slow", "k_sync")][0]
        pairs = [errors["slow", "k_sync", seed] - errors["slow", "asgd", seed] for seed in (1, 2)]
        self.assertEqual(slow["test_error"]["pairs"], 2)
        self.assertAlmostEqual(slow["test_error"]["mean"], sum(pairs) / 2)
        self.assertAlmostEqual(slow["test_error"]["standard_error"], abs(pairs[0] - pairs[1]) / 2)
        for heading in ("Differences, seed by seed", "Time to reach an accuracy", "What was chosen on held-out samples", "What the predictors cost",
                        "Errors of the predictors", "What was measured and what was assumed"):
            self.assertIn("## " + heading, report)
        self.assertIn("Rows with stragglers (worker 3 computes 3×): k_sync on 4 workers, slow; asgd on 4 workers, slow; ", report)
        for predictor in ("own", "last", "ema", "constant", "shuffled", "oracle"):
            self.assertIn(f"| {predictor} |", report)

    def test_a_recorded_run_predicts_the_next_one_of_its_seed(self):
        words = ["compare", os.path.join(RECIPES, "lc_asgd_quick.toml"), *self.SMALL, "model.network=mlp", "compare.seeds=[1,2]",
                 "ps.reading=literal"]  # predictions then change nothing in the run
        with tempfile.TemporaryDirectory() as folder:
            first, second = os.path.join(folder, "first"), os.path.join(folder, "second")
            for where, settings in ((first, ""), (second, f" ps.predictor=recorded ps.predictor_recording={first}/lc-2w-seed{{seed}}/predictions.csv")):
                result = run(*words, "compare.algorithms=lc: strategy.name=lc_asgd" + settings, "--folder", where)
                self.assertEqual(result.returncode, 0, result.stderr)
            seen = []
            for seed in (1, 2):
                with open(os.path.join(second, f"lc-2w-seed{seed}", "predictions.csv")) as lines:
                    rows = list(csv.DictReader(lines))
                self.assertEqual([row["predicted_loss"] for row in rows], [row["actual_loss"] for row in rows])
                self.assertEqual([row["predicted_steps"] for row in rows], [row["actual_steps"] for row in rows])
                seen.append(rows[5]["actual_loss"])
        self.assertNotEqual(*seen)

    def test_stopped_it_says_how_many_runs_are_kept(self):
        algorithms = "a: strategy.name=asgd optim.rate=0.05|0.1; long: strategy.name=asgd train.epochs=1000000"
        with tempfile.TemporaryDirectory() as folder:
            words = ["compare", "model.network=mlp", "data.shape=[1,8,8]", "data.train_samples=96", "data.test_samples=32", "data.batch=4",
                     "train.epochs=1", "schedule.name=constant", "ps.executor=virtual", "compare.workers=[2]", "compare.held_out=16"]
            process = subprocess.Popen([PACELINE, *words, "compare.algorithms=" + algorithms, "--folder", folder, "--together", "1"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            endless = pathlib.Path(folder, "long-2w-seed1", "metrics.jsonl")
            while process.poll() is None and not endless.exists():
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=120)[1]
        self.assertIn("3 runs are kept", said)  # two on held-out samples, one on the test set

    def test_refuses_before_it_starts(self):
        with tempfile.TemporaryDirectory() as folder:
            for words, message in ((["compare.algorithms=asgd; k_sync", "ps.group=9"], "9"),
                                   (["compare.algorithms=nothing"], "nothing"),
                                   (["compare.workers=[0]"], "at least 1"),
                                   (["ps.staleness=-1"], "at least 0"),
                                   (["ps.lc_lambda=nan"], "lc_lambda"),
                                   (["compare.grid=optim.rat=1|2"], "'rat'"),
                                   (["compare.grid=optim.rate=0.1|-1"], "optim.rate"),
                                   (["compare.grid=optim.rate=0.1|0.2", "compare.held_out=1536"], "compare.held_out"),
                                   (["compare.references=dana"], "dana"),
                                   (["compare.accuracies=[101]"], "compare.accuracies"),
                                   (["compare.clocks=odd: timing.shap=1"], "'shap'")):
                result = run("compare", os.path.join(RECIPES, "lc_asgd_quick.toml"), *words, "--folder", os.path.join(folder, "x"))
                self.assertEqual(result.returncode, 2, (words, result.stdout, result.stderr))
                self.assertIn(message, result.stderr)
                self.assertFalse(os.path.exists(os.path.join(folder, "x")), words)


if __name__ == "__main__":
    unittest.main()
