"""`paceline train`: its document, its folder, and runs that repeat, on one worker and on many."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from support import BINARY, SMALL, WRONG_INPUT, CliTest

RESULT_KEYS = ["workers", "steps", "epochs", "samples", "seconds", "samples_per_s", "step_s", "train_loss", "test_loss", "test_accuracy", "state_hash",
               "parameters_hash", "run", "checkpoints", "wall_s"]


class Training(CliTest):
    def test_a_rate_far_above_what_the_optimizer_takes_is_warned_of(self):
        small = ["train", *SMALL, "train.epochs=1", "train.checkpoints=false"]
        warned = self.run_paceline(*small, "optim.name=adamw").stderr  # with the demonstration's rate, which is for SGD
        for fact in ["optim.rate=0.08 ", "80 times", "adamw", "optim.rate=0.001"]:
            self.assertIn(fact, warned)
        for words in (["optim.name=adamw", "optim.rate=0.01"], ["optim.name=sgd"]):
            self.assertNotIn("optim.rate", self.run_paceline(*small, *words).stderr)

    def test_the_result_and_the_folder(self):
        done = self.run_paceline("train", *SMALL, "train.name=demo", "train.trace=true", "--json")
        result = json.loads(done.stdout)
        self.assertEqual(list(result), RESULT_KEYS)
        self.assertEqual((result["workers"], result["steps"], result["epochs"], result["samples"]), (1, 12, 2, 192))
        wall = result["wall_s"]
        self.assertAlmostEqual(wall["total"], sum(value for part, value in wall.items() if part != "total"))
        self.assertGreaterEqual(wall["steps"] + wall["data"], 0.9 * result["seconds"])
        self.assertGreaterEqual(wall["final_wait"], result["checkpoints"]["final_wait_s"])
        self.assertRegex(result["state_hash"], r"^[0-9a-f]{16}$")
        self.assertEqual(result["run"], "runs/demo")
        self.assertTrue(0 <= result["test_accuracy"] <= 1)
        self.assertIn("mlp", done.stderr)  # the progress goes to standard error

        run = self.folder / "runs/demo"
        summary = json.loads((run / "summary.json").read_text())
        self.assertEqual({key: summary[key] for key in RESULT_KEYS}, result)
        self.assertEqual(len(self.checkpoints("runs/demo")), 2)
        self.assertEqual(len(list(run.glob("events.out.tfevents.*"))), 1)
        self.assertTrue(json.loads((run / "trace.json").read_text())["traceEvents"])
        self.assertIn("</svg>", (run / "curve.svg").read_text())
        metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        self.assertTrue(metrics)
        self.assertFalse([name for name in self.files() if name.endswith(".part")])

        # The saved recipe is the whole recipe: it repeats the run.
        again = self.json_of("train", "runs/demo/recipe.toml", "train.name=again", "--quiet")
        self.assertEqual(again["state_hash"], result["state_hash"])

    def test_runs_repeat_and_seeds_differ(self):
        first = self.json_of("train", *SMALL, "--quiet", "--seed", "3")
        second = self.json_of("train", *SMALL, "--quiet", "train.seed=3", "data.threads=2", "--workers", "1")
        other = self.json_of("train", *SMALL, "--quiet", "--seed", "4")
        self.assertEqual(first["state_hash"], second["state_hash"])
        self.assertNotEqual(first["state_hash"], other["state_hash"])
        self.assertEqual(len({first["run"], second["run"], other["run"]}), 3)  # each has a folder of its own
        self.assertEqual(self.run_paceline("train", *SMALL, "--quiet").stdout, "")

    def test_the_command_line_wins_over_the_file_and_the_file_over_the_default(self):
        (self.folder / "r.toml").write_text('[optim]\nrate = 0.25\nmomentum = 0.5\n[train]\nname = "from the file"\n')
        recipe = self.run_paceline("train", "r.toml", "optim.rate=0.125", "--seed", "9", "--print-recipe").stdout
        for line in ["rate = 0.125", "momentum = 0.5", 'name = "from the file"', "seed = 9", "beta1 = 0.9"]:
            self.assertIn("\n" + line + "\n", recipe)
        as_json = self.json_of("train", "r.toml", "optim.rate=0.125", "--seed", "9", "schedule.milestones=[1,2]", "--print-recipe")
        self.assertEqual((as_json["optim"]["rate"], as_json["train"]["name"], as_json["train"]["seed"]), (0.125, "from the file", 9))
        self.assertIs(as_json["data"]["drop_last"], True)
        self.assertEqual(as_json["schedule"]["milestones"], [1, 2])
        self.assertEqual(self.files(), ["r.toml"])

    def test_the_demonstration_of_asynchronous_workers_has_no_momentum(self):
        recipe = self.run_paceline("train", "strategy.name=asgd", "--print-recipe").stdout
        self.assertIn("\nmomentum = 0.0\n", recipe)
        recipe = self.run_paceline("train", "strategy.name=asgd", "optim.rate=0.01", "--print-recipe").stdout
        self.assertIn("\nmomentum = 0.9\n", recipe)
        self.assertIn("\nmomentum = 0.9\n", self.run_paceline("train", "strategy.name=ssgd", "--print-recipe").stdout)

    def header_of(self, *words):
        """The lines of a run's header that draw its mesh, in one line."""
        lines = [line.strip("│| ") for line in self.run_paceline("train", *SMALL, *words, "train.steps=1", "train.checkpoints=false").stderr.splitlines()]
        drawn = lines[next(i for i, line in enumerate(lines) if line.startswith("mesh ")):]
        end = next(i for i, line in enumerate(drawn) if line.startswith(("predicted", "run ")))
        return re.sub(r" +", " ", " ".join(drawn[:end]))

    def test_the_header_draws_the_mesh(self):
        self.assertEqual(self.header_of("--mesh", "data=4"), "mesh data 4: ranks 0 | 1 | 2 | 3: fc1 … fc2")
        wide = self.header_of("--mesh", "data=2", "model.hidden=[16,16,16,16,16,16]", "parallel.hybrid=fc1,fc2,fc3,fc4,fc5,fc6", "data.uneven=weight")
        self.assertRegex(wide, r"hybrid over data 2: fc1 column, fc2 row, .*fc6 row: [\d,]+ B of activations per step instead of [\d,]+ B of gradients$")
        odd = self.header_of("--mesh", "tensor=2", "model.hidden=[64,32,31]")
        self.assertRegex(odd, r"1/2 of every layer that is split fc3 [^:]*: 31 features [^:]* 2 fc4 [^:]*: ")
        none = self.run_paceline("train", *SMALL, "--mesh", "tensor=2", "model.hidden=[31]", code=WRONG_INPUT)
        self.assertRegex(none.stderr, r"layer 'fc1' has 31 features; .*--mesh data=2,pipeline=1,tensor=1")
        (self.folder / "text.txt").write_text("the quick brown fox jumps over lazy dogs\n" * 90)
        experts = self.header_of("model.network=gpt", "model.layers=1", "model.width=16", "model.heads=2", "model.experts=4", "model.expert_every=1", "data.name=text",
                                 "data.root=text.txt", "data.context=8", "--mesh", "data=2,tensor=2")
        self.assertIn("experts 0 to 3 of a layer: ranks 0 1: 0 to 1, ranks 2 3: 2 to 3", experts)

    def test_a_loss_that_is_no_number(self):
        self.run_paceline("train", *SMALL, "train.name=x", "train.epochs=1", "--quiet")
        good = self.checkpoints("runs/x")[-1].read_bytes()
        done = self.run_paceline("train", "--resume", "runs/x", "train.epochs=3", "optim.rate=1e30", "--quiet", code=WRONG_INPUT)
        said = r"error: the loss is -?(nan|inf) at step \d+: .*layer 'fc\d'.*step-0000000006.safetensors\n"
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, f"^{said}$")
        self.assertEqual(self.checkpoints("runs/x")[-1].read_bytes(), good)
        two = self.run_paceline("train", "--resume", "runs/x", "train.epochs=3", "optim.rate=1e30", "--workers", "2", "--quiet", code=WRONG_INPUT)
        self.assertRegex(two.stderr, f"^{said}$")

    def test_a_test_loss_that_is_no_number(self):
        done = self.run_paceline("train", *SMALL, "schedule.name=constant", "schedule.warmup_epochs=0", "train.steps=1", "optim.rate=3e38",
                                 "train.checkpoints=false", "--quiet", "--json", code=WRONG_INPUT)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"^error: the test loss is -?(nan|inf) after step 1: .*layer 'fc\d'.*\n$")

    def test_more_threads_than_cores_can_use(self):
        for words in [["train", *SMALL, "train.threads=100000"], ["bench", "step", "--threads", "100000"]]:
            done = self.run_paceline(*words, code=WRONG_INPUT)
            self.assertRegex(done.stderr, r"^error: .*threads=100000 is more than \d+ cores can use; give at most \d+, or leave it out\n$")
        self.assertEqual(self.files(), [])


class Learning(CliTest):
    """What a user is promised, on the real data; minutes."""

    deadline_s = 850

    def data(self, name):
        shelf = os.environ.get("PACELINE_DATA", "")
        if not shelf or not os.path.exists(os.path.join(shelf, name)):
            self.skipTest(f"{name} is not in $PACELINE_DATA")
        return os.path.join(shelf, name)

    def test_lenet5_learns_mnist(self):
        recipe = pathlib.Path(__file__).resolve().parents[2] / "recipes/mnist_lenet5.toml"
        result = self.json_of("train", str(recipe), "data.root=" + self.data("mnist"), "train.device=cpu", "--quiet")
        self.assertGreaterEqual(result["test_accuracy"], 0.985)
        self.assertLessEqual(result["epochs"], 2)


class Workers(CliTest):
    """Many workers, however they were started."""

    def launched(self, *words):
        """The result of a program that trains, perhaps under a launcher, which puts ranks before lines."""
        done = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=self.deadline_s, check=False)
        self.assertEqual(done.returncode, 0, f"{words}\n{done.stdout}\n{done.stderr}")
        lines = [line.partition("] ")[2] if line.startswith("[") else line for line in done.stdout.splitlines()]
        return json.loads("\n".join(lines))

    def mpirun(self):
        """How Open MPI starts four ranks; empty where there is none."""
        self.environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        return ["mpirun", "--oversubscribe", "-np", "4"] if shutil.which("mpirun") else []

    def hash_of(self, *launcher, workers=()):
        result = self.launched(*launcher, BINARY, "train", *SMALL, "--quiet", "--json", "comm.algorithm=ring", *workers)
        self.assertEqual(result["workers"], 4)
        return result["state_hash"]

    def test_every_launcher_ends_in_the_same_state(self):
        threads = self.hash_of(workers=["--workers", "4"])
        self.assertEqual(threads, self.hash_of(BINARY, "run", "-np", "4", "--"))
        self.assertEqual(threads, self.hash_of(BINARY, "run", "-np", "2", "--", workers=["--workers", "4"]), "two processes, two workers each")
        if "gloo" in [row["key"] for row in self.json_of("list", "engines")["engines"]]:
            self.assertEqual(threads, self.hash_of(BINARY, "run", "-np", "4", "--", workers=["comm.engine=gloo"]))
        if self.mpirun():
            self.assertEqual(threads, self.hash_of(*self.mpirun()))

    def curve_of(self, result):
        rows = [json.loads(line) for line in (self.folder / result["run"] / "metrics.jsonl").read_text().splitlines()]
        return [row["loss"] for row in rows if row["event"] == "step"]

    def test_three_axes_follow_the_curve_of_one_worker(self):
        text = self.folder / "text.txt"
        text.write_text("".join(f"Of {i % 89} ships that sailed in the year {1500 + i % 97}, {i % 7} came home.\n" for i in range(1200)))
        recipe = pathlib.Path(__file__).resolve().parents[2] / "recipes/text_gpt_3d.toml"
        words = ["train", str(recipe), f"data.root={text}", "train.steps=6", "train.device=cpu", "train.threads=1", "train.checkpoints=false",
                 "--quiet", "--json"]
        alone = self.launched(BINARY, *words, "--mesh", "data=1")
        self.assertEqual((alone["workers"], alone["steps"]), (1, 6))
        curve = self.curve_of(alone)
        self.assertEqual(len(curve), 6)
        launchers = [[BINARY, "run", "-np", "4", "--"]] + ([self.mpirun()] if self.mpirun() else [])
        for launcher in launchers:
            for mesh in ([], ["--mesh", "data=4", "parallel.zero=3"]):
                with self.subTest(launcher=launcher[0], mesh=mesh):
                    result = self.launched(*launcher, BINARY, *words, *mesh)
                    self.assertEqual(result["workers"], 4)
                    for mine, expected in zip(self.curve_of(result) + [result["test_loss"]], curve + [alone["test_loss"]], strict=True):
                        self.assertAlmostEqual(mine, expected, delta=1e-5 * expected)

    def test_a_killed_run_goes_on_with_other_workers(self):
        first = self.json_of("train", *SMALL, "--quiet", "--workers", "2", "train.steps=5", "comm.compression=topk")
        second = self.json_of("train", "--resume", first["run"], "--workers", "4", "train.steps=0", "--quiet")
        self.assertEqual(second["workers"], 4)
        self.assertGreater(second["steps"], first["steps"])


if __name__ == "__main__":
    unittest.main()
