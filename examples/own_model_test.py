#!/usr/bin/env python3
"""A user's module, loss and dataset on 1, 2 and 4 workers: threads, processes of every launcher, a parameter server of processes."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
PROGRAM = str(BIN / "example_own_model")
PLAIN = ("optim.name=sgd", "optim.rate=0.5", "optim.momentum=0", "optim.clip_norm=0")
LEARNT = 0.3  # that much less is the loss after two dozen steps of PLAIN, at least


class OwnModel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.runs = 0

    def words(self, *words):
        self.runs += 1
        return [PROGRAM, "--quiet", "train.steps=24", "train.threads=1", f"train.name=run{self.runs}", *words]

    def summary(self, name=None):
        return json.loads((self.folder / "runs" / (name or f"run{self.runs}") / "summary.json").read_text())

    def run_program(self, *words, launcher=()):
        done = subprocess.run([*launcher, *self.words(*words)], cwd=self.folder, capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.summary()

    def refusal(self, *words):
        done = subprocess.run(self.words(*words), cwd=self.folder, capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr

    def assert_like(self, one, several):
        self.assertAlmostEqual(one["test_loss"], several["test_loss"], delta=2e-4 * one["test_loss"])
        self.assertAlmostEqual(one["test_metrics"]["bits"], several["test_metrics"]["bits"], delta=1e-3)

    def untrained(self):
        return self.run_program(*PLAIN, "optim.rate=1e-9")["test_loss"]

    def test_threads_and_processes_equal_one_worker(self):
        one = self.run_program()
        self.assertEqual(one["steps"], 24)
        self.assertLess(one["test_loss"], 3)
        for workers in (2, 4):
            threads = self.run_program("--workers", str(workers))
            self.assert_like(one, threads)
            processes = self.run_program(launcher=(BIN / "paceline", "run", "-np", str(workers), "--"))
            self.assertEqual(processes["state_hash"], threads["state_hash"])

    def test_mpirun_starts_it_too(self):
        if not shutil.which("mpirun"):
            self.skipTest("no mpirun")
        launcher = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2")
        self.assert_like(self.run_program(), self.run_program(launcher=launcher))

    def test_torchruns_variables_start_it_too(self):
        # Two processes as torchrun would start them.
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        words, ranks = self.words(), []
        for rank in range(2):
            around = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=str(port))
            ranks.append(subprocess.Popen(words, cwd=self.folder, env=around, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        outputs = [rank.communicate(timeout=240) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], outputs)
        several = self.summary()
        self.assert_like(self.run_program(), several)

    def test_every_strategy(self):
        listed = subprocess.run([BIN / "paceline", "list", "strategies", "--json"], capture_output=True, text=True, check=True)
        rows = {row["key"]: row for row in json.loads(listed.stdout)["strategies"] if row["key"] != "single"}
        self.assertLessEqual({"lc_asgd", "allreduce", "ssgd", "local_sgd", "k_sync"}, set(rows))
        one, most = self.run_program(*PLAIN), self.untrained() - LEARNT
        for name, row in rows.items():
            with self.subTest(strategy=name):
                settings = row.get("synchronous_with")  # nobody is then ahead of another
                if settings is not None and "consistency" in row:  # a step is one worker's minibatch
                    settings += " train.steps=48"
                words = "strategy.period=2" if settings is None else settings.replace("{workers}", "2")
                several = self.run_program(*PLAIN, "--workers", "2", f"strategy.name={name}", *words.split())
                self.assertLess(several["test_loss"], most)
                if settings is not None:
                    self.assert_like(one, several)

    def test_a_parameter_server_of_processes(self):
        launcher = (BIN / "paceline", "run", "--servers", "1", "--workers", "2", "--")
        served = self.run_program(*PLAIN, "strategy.name=asgd", launcher=launcher)
        self.assertEqual(served["server"]["gradients"], 24)
        self.assertLess(served["test_loss"], self.untrained() - LEARNT)
        # Two steps of a minibatch each are one of one worker. Every other strategy: tests/train/workload_strategies_test.cpp.
        together = self.run_program(*PLAIN, "strategy.name=ssgd", "train.steps=48", launcher=launcher)
        self.assert_like(self.run_program(*PLAIN), together)

    def test_it_resumes(self):
        whole = self.run_program()
        self.run_program("train.steps=10")
        subprocess.run([PROGRAM, "--quiet", "--resume", "runs/run2", "train.steps=24"], cwd=self.folder, timeout=240, check=True)
        self.assertEqual(self.summary()["state_hash"], whole["state_hash"])

    def test_a_recipe_file_lies_over_the_programs_defaults(self):
        (self.folder / "r.toml").write_text("[optim]\nclip_norm = 2.5\n")
        shown = subprocess.run([PROGRAM, "r.toml", "--print-recipe", "--json"], cwd=self.folder, capture_output=True, text=True, check=True)
        optim = json.loads(shown.stdout)["optim"]
        self.assertEqual((optim["name"], optim["clip_norm"]), ("adam", 2.5))

    def test_what_is_wrong_is_told(self):
        self.assertIn("rot", self.refusal("data.rot=x"))
        self.assertIn("nowhere.txt", self.refusal("data.root=nowhere.txt"))
        helped = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True)
        self.assertIn("--workers", helped.stdout)


unittest.main()
