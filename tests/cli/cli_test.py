"""The command line as a user or a script meets it: exit codes, JSON documents, resuming, and one line for every wrong input.

    python3 cli_test.py BINARY              the fast tests
    python3 cli_test.py BINARY --slow       the slow ones
    python3 cli_test.py BINARY Resuming -v  unittest's own arguments
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

DONE, FAILED, WRONG_INPUT, STOPPED = 0, 1, 2, 3
BINARY = ""  # set by main()
DEADLINE_S = 120  # of one invocation; only a hang takes so long

# A run of a second: twelve steps of a small perceptron on drawn shapes.
SMALL = ["model.network=mlp", "model.hidden=[16]", "data.shape=[1,8,8]", "data.train_samples=96", "data.test_samples=32", "data.batch=16",
         "train.epochs=2", "train.threads=1", "train.device=cpu"]
# One that lasts long enough to be interrupted.
LONG = SMALL + ["data.train_samples=1600", "train.epochs=40", "train.checkpoint_every=25"]

RESULT_KEYS = ["workers", "steps", "epochs", "samples", "seconds", "samples_per_s", "train_loss", "test_loss", "test_accuracy", "state_hash",
               "parameters_hash", "run"]


class CliTest(unittest.TestCase):
    """Runs the program in an empty folder of its own."""

    deadline_s = DEADLINE_S

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="paceline-cli-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.environment = {key: value for key, value in os.environ.items() if key != "PACELINE_DATA"}

    def run_paceline(self, *arguments, code=DONE):
        done = subprocess.run([BINARY, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True,
                              timeout=self.deadline_s, check=False)
        self.assertEqual(done.returncode, code, f"paceline {' '.join(arguments)}\n{done.stdout}\n{done.stderr}")
        return done

    def json_of(self, *arguments, code=DONE):
        return json.loads(self.run_paceline(*arguments, "--json", code=code).stdout)  # anything around the document would not parse

    def start(self, *arguments):
        process = subprocess.Popen([BINARY, *arguments], cwd=self.folder, env=self.environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def files(self):
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))

    def checkpoints(self, run):
        return sorted((self.folder / run / "checkpoints").glob("step-*.safetensors"))

    def refused(self, *arguments, says=(), code=WRONG_INPUT):
        """Wrong input: one line that says what is wrong, nothing on standard output, nothing written."""
        before = self.files()
        done = self.run_paceline(*arguments, code=code)
        self.assertEqual(done.stdout, "")
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertTrue(lines[0].startswith("error: "), lines[0])
        for words in says:
            self.assertIn(words, lines[0])
        self.assertEqual([path for path in self.files() if path not in before and path != "runs"], [])
        return lines[0]


class Looking(CliTest):
    def test_list(self):
        shelves = self.json_of("list")
        self.assertEqual(list(shelves), ["networks", "datasets", "optimizers", "schedules", "engines", "collectives", "compressors",
                                         "update_rules", "consistencies", "strategies", "pipelines"])
        for name, rows in shelves.items():
            for row in rows:
                self.assertEqual(list(row), ["key", "help"], name)
                self.assertTrue(row["key"] and row["help"], row)
        keys = {name: [row["key"] for row in rows] for name, rows in shelves.items()}
        for network in ["mlp", "lenet5", "alexnet", "vgg16", "vgg19", "resnet18", "resnet50", "resnet50_v2", "inception_v3", "mobilenet_v1", "gpt"]:
            self.assertIn(network, keys["networks"])
        for dataset in ["shapes", "random", "mnist", "cifar10", "cifar100", "image_folder", "text"]:
            self.assertIn(dataset, keys["datasets"])
        for optimizer in ["sgd", "adam", "adamw", "lars", "lamb"]:
            self.assertIn(optimizer, keys["optimizers"])
        for schedule in ["constant", "step", "multi_step", "polynomial", "cosine", "one_cycle"]:
            self.assertIn(schedule, keys["schedules"])
        self.assertIn("single", keys["strategies"])
        self.assertEqual(self.json_of("list", "optimizers"), {"optimizers": shelves["optimizers"]})
        self.assertIn("resnet50_v2", self.run_paceline("list").stdout)

    def test_graph_totals(self):
        # network: (conv, fc, trainable parameters, GMAC to three places)
        totals = {
            "alexnet": (5, 3, 61_100_840, 0.714),
            "alexnet_ungrouped": (5, 3, 62_378_344, 1.135),
            "vgg16": (13, 3, 138_357_544, 15.470),
            "vgg19": (16, 3, 143_667_240, None),
            "resnet50_v1": (53, 1, 25_557_032, 3.858),
            "resnet50": (53, 1, 25_557_032, 4.089),
            "resnet50_v2": (53, 1, 25_549_480, 3.858),
            "resnet50_v2_keras": (53, 1, 25_568_360, 3.482),
            "inception_v3": (94, 1, 23_817_352, 5.713),
            "mobilenet_v1": (27, 1, 4_253_864 - 21_888, 0.569),  # without the statistics of its norms
        }
        pools = {"alexnet": 3, "vgg16": 5, "resnet50_v2": 1, "inception_v3": 14}
        for network, (conv, fc, parameters, gmac) in totals.items():
            with self.subTest(network):
                graph = self.json_of("graph", network)
                self.assertEqual(set(graph), {"network", "input", "parameters", "macs", "counts", "layers"})
                self.assertEqual(graph["network"], network)
                self.assertEqual(graph["input"], [3, *[{"alexnet_ungrouped": 227, "inception_v3": 299}.get(network, 224)] * 2])
                self.assertEqual(graph["parameters"], parameters)
                self.assertEqual(set(graph["counts"]), {"conv", "fc", "pool"})
                self.assertEqual((graph["counts"]["conv"], graph["counts"]["fc"]), (conv, fc))
                self.assertEqual(graph["counts"]["pool"], pools.get(network, graph["counts"]["pool"]))
                if gmac:
                    self.assertEqual(round(graph["macs"] / 1e9, 3), gmac)
                for layer in graph["layers"]:
                    self.assertLessEqual({"name", "kind", "output", "parameters", "macs", "activation_bytes"}, set(layer))
                self.assertEqual(sum(layer["parameters"] for layer in graph["layers"]), parameters)
                self.assertEqual(sum(layer["macs"] for layer in graph["layers"]), graph["macs"])

    def test_graph_takes_settings(self):
        graph = self.json_of("graph", "resnet18", "model.input=[3,32,32]", "model.classes=10")
        self.assertEqual(graph["input"], [3, 32, 32])
        self.assertIn("conv1", self.run_paceline("graph", "lenet5").stdout)

    def test_every_command_has_help_with_examples(self):
        names = ["train", "graph", "list", "doctor", "bench", "checkpoint show", "checkpoint verify", "checkpoint convert", "completions", "run", "algorithm", "compare", "scale"]
        for name in names:
            text = self.run_paceline(*name.split(), "--help").stdout
            self.assertIn("Examples:", text, name)
            self.assertIn("paceline " + name.split()[0], text, name)
            self.assertIn("--json", text, name)
        overview = self.run_paceline("--help").stdout
        self.assertIn("Examples:", overview)
        for name in names:
            self.assertIn(name.split()[0], overview)
        self.assertIn("Examples:", self.run_paceline("checkpoint", "--help").stdout)
        self.assertRegex(self.run_paceline("--version").stdout, r"^paceline \d+\.\d+\.\d+\n$")

    def test_completions(self):
        document = self.json_of("completions", "bash")
        self.assertEqual(list(document), ["shell", "script"])
        (self.folder / "script.bash").write_text(document["script"])
        shelves = self.json_of("list")

        def complete(*words):
            line = " ".join(f"'{word}'" for word in words)
            script = f"set -e; source ./script.bash; set +e; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _paceline; "
            done = subprocess.run(["bash", "-c", script + 'printf "%s\\n" "${COMPREPLY[@]}"'], capture_output=True, text=True,
                                  cwd=self.folder, timeout=DEADLINE_S, check=True)
            return done.stdout.split()

        self.assertEqual(complete("paceline", "tr"), ["train"])
        self.assertIn("checkpoint", complete("paceline", ""))
        self.assertEqual(complete("paceline", "graph", "resnet1"), ["resnet18"])
        self.assertIn("--resume", complete("paceline", "train", "--re"))
        self.assertEqual(complete("paceline", "bench", "reduce"), ["reduce_scatter"])
        self.assertEqual(complete("paceline", "checkpoint", "co"), ["convert"])
        for command in ["train", "compare", "scale", "run"]:
            self.assertIn("optim.momentum=", complete("paceline", command, "optim.m"))
        self.assertIn("compare.seeds=", complete("paceline", "compare", "compare."))
        # Behind "=": as bash cuts the words, at the "=" itself, and where COMP_WORDBREAKS leaves them whole.
        for key, shelf in [("optim.name", "optimizers"), ("model.network", "networks"), ("data.name", "datasets"), ("schedule.name", "schedules"),
                           ("strategy.name", "strategies"), ("comm.compression", "compressors"), ("comm.engine", "engines"),
                           ("comm.algorithm", "collectives"), ("ps.rule", "update_rules"), ("ps.consistency", "consistencies")]:
            known = {row["key"] for row in shelves[shelf]}
            self.assertLessEqual(known, set(complete("paceline", "train", key, "=")), key)
        self.assertEqual(complete("paceline", "compare", "optim.name", "=", "ada"), ["adam", "adamw"])
        self.assertEqual(complete("paceline", "scale", "optim.name=ada"), ["optim.name=adam", "optim.name=adamw"])
        self.assertEqual(complete("paceline", "train", "train.trace", "=", "t"), ["true"])
        (self.folder / "weights.safetensors").touch()
        self.assertEqual(complete("paceline", "train", "model.weights", "=", "wei"), ["weights.safetensors"])

    def test_doctor(self):
        report = self.json_of("doctor")
        for key in ["paceline", "libtorch", "compiler", "cores", "threads", "blas", "product_gflops", "memory_gb_per_s", "devices", "engines",
                    "advice"]:
            self.assertIn(key, report)
        self.assertGreater(report["product_gflops"], 0)
        self.assertIn("cpu", report["devices"])
        if "openblas" in report["blas"]:
            self.assertNotIn("install OpenBLAS", "\n".join(report["advice"]))

    def test_fewer_threads_than_cores_are_waited_for_by_nobody(self):
        self.environment["OMP_THREAD_LIMIT"] = "1"
        self.assertEqual(self.json_of("doctor")["threads"], 1)

    def test_bench(self):
        report = self.json_of("bench", "data", "--rounds", "1")
        self.assertEqual(list(report), ["benchmark", "machine", "rows"])
        self.assertEqual(report["benchmark"], "data")
        self.assertGreater(report["machine"]["cores"], 0)
        self.assertTrue(report["rows"])
        for row in report["rows"]:
            self.assertGreater(row["images_per_s"], 0)

    def test_bench_of_collectives(self):
        for collective in ("allreduce", "reduce_scatter", "all_gather", "broadcast"):
            rows = self.json_of("bench", collective, "--rounds", "1", "--sizes", "4K", "--engines", "local")["rows"]
            self.assertEqual([(row["engine"], row["peer"], row["bytes"]) for row in rows], [("local", "", 4096), ("", "memory roofline", 4096)])
            self.assertTrue(all(row["seconds"] > 0 for row in rows))
        rows = self.json_of("bench", "allreduce", "--ranks", "2", "--rounds", "1", "--sizes", "1K,64K,1M", "--engines", "local",
                            "--algorithms", "ring,direct", "--svg", "times.svg")["rows"]
        drawn = (self.folder / "times.svg").read_text()
        for words in ["allreduce of 2 ranks", "local, ring", "local, direct", "memory roofline"]:
            self.assertIn(words, drawn)
        self.refused("bench", "optim", "--svg", "none.svg", says=["bench optim has no curve to draw", "allreduce"])
        fits = [row for row in rows if "alpha_us" in row]
        self.assertEqual([fit["algorithm"] for fit in fits], ["ring", "direct"])
        for fit in fits:
            self.assertGreaterEqual(fit["alpha_us"], 0)
            self.assertTrue(fit["B_gb_per_s"] is None or fit["B_gb_per_s"] > 0, fit)

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            for words in [["list", "--json"], ["train", "--print-recipe"], ["--help"]]:
                done = subprocess.run([BINARY, *words], cwd=self.folder, stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=False)
                self.assertEqual(done.returncode, FAILED, words)
                self.assertRegex(done.stderr, "^error: standard output .*\n$")


class Training(CliTest):
    def test_the_result_and_the_folder(self):
        done = self.run_paceline("train", *SMALL, "train.name=demo", "train.trace=true", "--json")
        result = json.loads(done.stdout)
        self.assertEqual(list(result), RESULT_KEYS)
        self.assertEqual((result["workers"], result["steps"], result["epochs"], result["samples"]), (1, 12, 2, 192))
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
            self.assertRegex(done.stderr, r"^error: .*threads=100000 is more than \d+ cores can use; at most \d+, or 0 for all cores\n$")
        self.assertEqual(self.files(), [])


class Resuming(CliTest):
    def test_stopped_or_killed(self):
        whole = self.json_of("train", *LONG, "train.name=whole", "--quiet")
        for number in [signal.SIGTERM, signal.SIGUSR1, signal.SIGKILL]:
            name = f"runs/{number.name}"
            process = self.start("train", *LONG, f"train.name={number.name}", "--quiet", "--json")
            self.wait_for_checkpoint(process, name)
            process.send_signal(number)
            out, err = process.communicate(timeout=DEADLINE_S)
            if number == signal.SIGKILL:
                self.assertEqual(process.returncode, -number)
            else:
                self.assertEqual(process.returncode, STOPPED, err)
                stopped = json.loads(out)
                self.assertLess(stopped["steps"], whole["steps"])
                shown = self.json_of("checkpoint", "show", name)
                self.assertEqual((shown["step"], shown["state_hash"]), (stopped["steps"], stopped["state_hash"]))

            resumed = self.json_of("train", "--resume", name, "--quiet")
            self.assertEqual(resumed["run"], str(self.folder / name))
            for key in ["state_hash", "steps", "samples", "train_loss", "test_loss", "test_accuracy"]:
                self.assertEqual(resumed[key], whole[key], key)
            self.assertFalse([file for file in self.files() if file.endswith(".part")])  # nor what the kill left half-written

    def test_two_workers_go_on_as_two(self):
        whole = self.json_of("train", *LONG, "--workers", "2", "train.name=whole", "--quiet")
        process = self.start("train", *LONG, "--workers", "2", "train.name=killed", "--quiet")
        self.wait_for_checkpoint(process, "runs/killed")
        process.kill()
        process.communicate(timeout=DEADLINE_S)
        resumed = self.json_of("train", "--resume", "runs/killed", "--quiet")
        for key in ["workers", "state_hash", "steps", "samples"]:
            self.assertEqual(resumed[key], whole[key], key)

    def wait_for_checkpoint(self, process, run):
        end = time.monotonic() + DEADLINE_S
        while not self.checkpoints(run):
            self.assertIsNone(process.poll(), "the run ended before it could be interrupted")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.002)

    def test_more_epochs(self):
        self.run_paceline("train", *SMALL, "train.name=x", "schedule.name=constant", "--quiet")
        more = self.json_of("train", "--resume", "runs/x", "train.epochs=4", "--quiet")
        whole = self.json_of("train", *SMALL, "schedule.name=constant", "train.epochs=4", "--quiet")
        self.assertEqual(more["state_hash"], whole["state_hash"])

    def test_a_damaged_checkpoint_is_passed_over(self):
        whole = self.json_of("train", *SMALL, "train.name=x", "--quiet")
        older, newest = self.checkpoints("runs/x")
        damage(newest)
        verdict = self.json_of("checkpoint", "verify", "runs/x", code=FAILED)
        self.assertFalse(verdict["good"])
        self.assertEqual([(row["file"], row["good"]) for row in verdict["checkpoints"]],
                         [("runs/x/checkpoints/" + newest.name, False), ("runs/x/checkpoints/" + older.name, True)])
        done = self.run_paceline("train", "--resume", "runs/x", "--quiet", "--json")
        self.assertIn("warning: ", done.stderr)
        self.assertIn(newest.name, done.stderr)
        self.assertEqual(json.loads(done.stdout)["state_hash"], whole["state_hash"])
        self.assertTrue(self.json_of("checkpoint", "verify", "runs/x")["good"])

    def test_weights_are_no_checkpoint_but_not_damaged_either(self):
        self.run_paceline("train", *SMALL, "train.name=x", "--quiet")
        self.run_paceline("checkpoint", "convert", "runs/x", "w.safetensors")
        for command in ["verify", "show"]:
            done = self.run_paceline("checkpoint", command, "w.safetensors", code=WRONG_INPUT)
            self.assertRegex(done.stderr, r"^error: w.safetensors: not a checkpoint, but weights, which model.weights= takes\n$")
            self.assertEqual(done.stdout, "")

    def test_wrong_ones_are_refused(self):
        self.run_paceline("train", *SMALL, "train.name=x", "--quiet")
        file, before = self.checkpoints("runs/x")[0], self.files()
        self.refused("train", "--resume", str(file), "model.hidden=[24]", says=["model.fc1.weight", "16x64", "24x64"])
        self.refused("train", "--resume", "nowhere", says=["nowhere", "no checkpoint"])
        self.refused("train", "r.toml", "--resume", "runs/x", says=["recipe"])
        damage(file)
        self.refused("train", "--resume", str(file), says=[str(file), "damaged"])
        self.refused("checkpoint", "show", str(file), says=[str(file), "damaged"])
        self.refused("checkpoint", "convert", str(file), "w.safetensors", says=[str(file), "damaged"])
        foreign = self.folder / "foreign.safetensors"
        header = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} '
        foreign.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
        self.refused("train", "--resume", "foreign.safetensors", says=["foreign.safetensors", "not a checkpoint"])
        foreign.unlink()
        self.assertEqual(self.files(), before)

    def test_weights_go_out_and_in(self):
        self.run_paceline("train", *SMALL, "train.name=x", "--quiet")
        report = self.json_of("checkpoint", "convert", "runs/x", "w.safetensors")
        weights = self.folder / "w.safetensors"
        self.assertEqual(report["bytes"], weights.stat().st_size)
        size = struct.unpack("<Q", weights.read_bytes()[:8])[0]
        header = json.loads(weights.read_bytes()[8:8 + size])
        self.assertEqual(sorted(set(header) - {"__metadata__"}), ["fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight"])
        self.assertEqual(header["fc1.weight"]["shape"], [16, 64])
        self.run_paceline("train", *SMALL, "model.weights=w.safetensors", "optim.rate=0", "--quiet")
        self.refused("train", *SMALL, "model.hidden=[8]", "model.weights=w.safetensors", says=["w.safetensors", "'fc1.weight'"])
        self.refused("checkpoint", "convert", "runs/x", "no/such/folder/w.safetensors", says=["no/such/folder"])
        shown = self.run_paceline("checkpoint", "show", "runs/x").stdout
        self.assertIn("state hash", shown)
        self.assertIn("12 (2 epochs done; 192 samples", shown)
        self.run_paceline("train", *SMALL, "train.name=y", "train.steps=8", "--quiet")
        self.assertIn("8 (1 epoch done, up to batch 2 of the next; 128 samples", self.run_paceline("checkpoint", "show", "runs/y").stdout)


class WrongWords(CliTest):
    def test_words(self):
        self.refused("trian", says=["unknown command 'trian'", "did you mean 'train'?"])
        self.refused("checkpoint", "shwo", "x", says=["'shwo'", "'show'"])
        self.refused("train", "--sead", "1", says=["unknown flag '--sead'", "did you mean '--seed'?"])
        self.refused("train", "optim.rat=1", says=["'rat'", "did you mean 'rate'?"])
        self.refused("train", "optm.rate=1", says=["'optm'", "did you mean 'optim'?"])
        self.refused("train", "model.network=resnet", says=["model.network", "'resnet'", "did you mean 'resnet18'?"])
        self.refused("train", "data.name=cifar", says=["data.name", "did you mean 'cifar10'?"])
        self.refused("graph", "resnet5", says=["unknown network 'resnet5'", "did you mean 'resnet50'?"])
        self.refused("graph", "vgg16", "model.hiden=[3]", says=["did you mean 'hidden'?"])
        self.refused("bench", "optm", says=["did you mean 'optim'?"])
        self.refused("bench", "allreduce", "--algorithms", "rign", "--sizes", "1K", "--engines", "local", says=["did you mean 'ring'?"])
        self.refused("bench", "all_gather", "--algorithms", "double_binary_tree", "--sizes", "1K", says=["all_gather"])
        self.refused("list", "network", says=["did you mean 'networks'?"])
        self.refused("completions", "fish", says=["bash"])
        self.refused("graph", says=["NETWORK"])
        self.assertIn("Usage", self.run_paceline(code=WRONG_INPUT).stderr)

    def test_values(self):
        self.refused("train", "optim.rate=fast", says=["optim.rate", "number", "fast"])
        self.refused("train", "data.batch=1.5", says=["data.batch", "integer"])
        self.refused("train", "data.augment=3", says=["data.augment", "boolean"])
        self.refused("train", "data.batch=0", says=["data.batch", "at least 1"])
        self.refused("train", "data.shape=[3,32]", says=["data.shape"])
        self.refused("train", "train.evaluate_every=0.5", says=["train.evaluate_every=0.5", "1 or more"])
        self.refused("train", "nonsense=1", says=["section.key=value"])
        self.refused("train", "--seed", "x", says=["--seed", "whole number", "'x'"])
        self.refused("train", "--seed", "-1", says=["--seed", "at least 0"])
        self.refused("train", "--workers", "3", says=["batch of 64", "3 workers", "63 or 66"])
        self.refused("train", "--workers", "2", "strategy.name=single", says=["parallel.workers=2"])
        self.refused("train", "train.device=cuda:99", says=["cuda:99"])
        self.refused("bench", "step", "--device", "cuda:99", says=["cuda:99"])
        self.refused("train", "data.batch=20000", says=["data.batch=20000", "10000"])
        self.refused("train", "schedule.name=piecewise", says=["points"])
        self.refused("train", "model.network=gpt", says=["gpt"])
        self.refused("bench", "data", "--rounds", "0", says=["--rounds", "at least 1"])

    def test_recipes(self):
        def recipe(text):
            (self.folder / "r.toml").write_text(text)
            return "r.toml"

        self.refused("train", "missing.toml", says=["missing.toml", "no such recipe"])
        self.refused("train", recipe("[optim]\nrate = 0.1\nmomentun = 0.9\n"), says=["r.toml, line 3", "did you mean 'momentum'?"])
        self.refused("train", recipe("[optim]\nrate = 'fast'\n"), says=["r.toml, line 2", "optim.rate", "number"])
        self.refused("train", recipe("[optimizer]\nrate = 1\n"), says=["r.toml", "'optimizer'", "optim"])
        self.refused("train", recipe("rate = 1\n"), says=["r.toml, line 1", "section"])
        self.refused("train", recipe("[optim\n"), says=["r.toml, line 1"])

    def test_places(self):
        (self.folder / "file").write_text("in the way")
        self.refused("train", *SMALL, "train.runs=file", says=["file"])
        self.refused("train", *SMALL, "train.runs=file/below", says=["file/below"])
        self.refused("train", *SMALL, "train.runs=/proc/paceline", says=["/proc/paceline"])
        self.refused("train", *SMALL, "train.name=a/b", says=["'a/b'"])
        self.refused("train", *SMALL, "model.weights=missing.safetensors", says=["missing.safetensors"])

    def test_mpi_names_its_launcher(self):
        if "mpi" not in [row["key"] for row in self.json_of("list", "engines")["engines"]]:
            self.skipTest("this build has no MPI")
        words = ["train", *SMALL, "--workers", "2", "comm.engine=mpi"]
        self.refused(*words, says=["start them with: mpirun (of ", ") -np 2 paceline train"])
        done = self.run_paceline("run", "-np", "2", "--", *words, code=WRONG_INPUT)
        self.assertRegex(done.stderr, "start it with the mpirun of .*, or use comm.engine=shm")
        self.assertNotIn("in 1 processes", done.stderr)
        self.refused("train", *SMALL, "--workers", "2", "comm.engine=shm", says=["start them with: paceline run -np 2 -- paceline train"])

    def test_an_engine_that_this_build_has_not(self):
        if "nccl" in [row["key"] for row in self.json_of("list", "engines")["engines"]]:
            self.skipTest("this build has NCCL")
        for words in [["--workers", "2"], []]:
            self.refused("train", *SMALL, *words, "comm.engine=nccl", says=["this build has no NCCL", "use comm.engine=local"])
        self.refused("bench", "allreduce", "--engines", "nccl", says=["this build has no NCCL", "use comm.engine=local"])


class WrongFiles(CliTest):
    def test_cifar(self):
        root = self.folder / "cifar"
        root.mkdir()
        train = ["train", "model.network=mlp", "data.name=cifar10", "data.root=cifar"]
        self.refused(*train, says=["cifar/data_batch_1.bin"])
        for number in range(1, 6):
            sparse_file(root / f"data_batch_{number}.bin", 30_730_000)
        sparse_file(root / "test_batch.bin", 30_729_999)
        self.refused(*train, says=["cifar/test_batch.bin", "30729999", "30730000"])
        with open(root / "data_batch_1.bin", "r+b") as file:
            file.seek(7 * 3073)
            file.write(b"\x0a")
        self.refused(*train, says=["cifar/data_batch_1.bin", "byte 21511", "label 10"])
        self.refused("train", "model.network=mlp", "data.name=cifar10", says=["data.root", "PACELINE_DATA"])

    def test_idx(self):
        root = self.folder / "mnist"
        root.mkdir()
        train = ["train", "model.network=mlp", "data.name=mnist", "data.root=mnist", "data.batch=2", "train.epochs=1"]
        pictures = struct.pack(">IIII", 0x803, 4, 28, 28) + bytes(4 * 784)
        labels = struct.pack(">II", 0x801, 4) + bytes([0, 1, 2, 9])
        for part in ["train", "t10k"]:
            (root / f"{part}-images-idx3-ubyte").write_bytes(pictures)
            (root / f"{part}-labels-idx1-ubyte").write_bytes(labels)
        self.run_paceline(*train, "--quiet")  # good as it stands

        def spoiled(name, content, *words):
            good = (root / name).read_bytes()
            (root / name).write_bytes(content)
            self.refused(*train, says=["mnist/" + name, *words])
            (root / name).write_bytes(good)

        spoiled("train-images-idx3-ubyte", b"\0\0\x09\x03" + pictures[4:], "magic")
        spoiled("train-labels-idx1-ubyte", labels[:-1] + b"\x0a", "label 10", "byte 11")
        spoiled("t10k-images-idx3-ubyte", pictures[:-1])
        spoiled("t10k-labels-idx1-ubyte", struct.pack(">II", 0x801, 3) + bytes(3), "3 labels")

    def test_pictures(self):
        train = ["train", "model.network=lenet5", "data.name=image_folder", "data.root=pictures", "data.image_size=32", "data.batch=1",
                 "train.device=cpu"]
        self.refused(*train, says=["pictures"])
        for part in ["train", "val"]:
            for kind in ["cats", "dogs"]:
                (self.folder / "pictures" / part / kind).mkdir(parents=True)
        self.refused(*train, says=["pictures/train/cats", "no pictures"])
        for file in ["train/cats/1.jpg", "train/dogs/1.jpg", "val/cats/1.jpg", "val/dogs/1.jpg"]:
            (self.folder / "pictures" / file).write_bytes(b"\xff\xd8\xff\xe0 this is no picture")
        self.refused(*train, "--quiet", says=["pictures/train/", "1.jpg"])
        self.refused(*train, "--quiet", "--workers", "2", "data.batch=2", says=["pictures/train/", "1.jpg"])  # one line: whose fault it is
        (self.folder / "pictures/val/cats/2.jpg").symlink_to("nowhere.jpg")
        self.refused(*train, says=["pictures/val/cats/2.jpg", "nowhere.jpg"])

    def test_text(self):
        (self.folder / "t.txt").write_text("too short")
        self.refused("train", "model.network=gpt", "data.name=text", "data.root=t.txt", says=["t.txt", "data.context"])
        self.refused("train", "model.network=gpt", "data.name=text", "data.root=none.txt", says=["none.txt"])


class SlowTraining(CliTest):
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


def damage(file):
    content = bytearray(file.read_bytes())
    content[-1] ^= 0x10
    file.write_bytes(content)


class SlowWorkers(CliTest):
    """Many workers, however they were started."""

    def hash_of(self, *launcher, workers=()):
        words = [*launcher, BINARY, "train", *SMALL, "--quiet", "--json", "comm.algorithm=ring", *workers]
        done = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=self.deadline_s, check=False)
        self.assertEqual(done.returncode, 0, f"{words}\n{done.stdout}\n{done.stderr}")
        lines = [line.partition("] ")[2] if line.startswith("[") else line for line in done.stdout.splitlines()]
        result = json.loads("\n".join(lines))
        self.assertEqual(result["workers"], 4)
        return result["state_hash"]

    def test_every_launcher_ends_in_the_same_state(self):
        threads = self.hash_of(workers=["--workers", "4"])
        self.assertEqual(threads, self.hash_of(BINARY, "run", "-np", "4", "--"))
        self.assertEqual(threads, self.hash_of(BINARY, "run", "-np", "2", "--", workers=["--workers", "4"]), "two processes, two workers each")
        if "gloo" in [row["key"] for row in self.json_of("list", "engines")["engines"]]:
            self.assertEqual(threads, self.hash_of(BINARY, "run", "-np", "4", "--", workers=["comm.engine=gloo"]))
        if shutil.which("mpirun"):
            self.environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
            self.assertEqual(threads, self.hash_of("mpirun", "--oversubscribe", "-np", "4"))

    def test_a_killed_run_goes_on_with_other_workers(self):
        first = self.json_of("train", *SMALL, "--quiet", "--workers", "2", "train.steps=5", "comm.compression=topk")
        second = self.json_of("train", "--resume", first["run"], "--workers", "4", "train.steps=0", "--quiet")
        self.assertEqual(second["workers"], 4)
        self.assertGreater(second["steps"], first["steps"])


def sparse_file(file, size):
    with open(file, "wb") as opened:
        opened.truncate(size)


def run_side_by_side(classes):
    """Each class in a process of its own, as many at once as there are cores: loading LibTorch takes most of the time."""
    def run(name):
        return subprocess.run([sys.executable, __file__, BINARY, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = list(pool.map(run, classes))
    for name, done in zip(classes, runs):
        print(f"{name}: {done.stdout}")
    sys.exit(any(done.returncode for done in runs))


def main():
    global BINARY
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    BINARY = os.path.abspath(sys.argv.pop(1))
    if sys.argv[1:] in ([], ["--slow"]):
        slow = "--slow" in sys.argv
        run_side_by_side([kind.__name__ for kind in CliTest.__subclasses__() if kind.__name__.startswith("Slow") == slow])
    unittest.main()


if __name__ == "__main__":
    main()
