"""Runs that were stopped or killed go on to the same bits; checkpoints and weights as files."""

import json
import os
import pathlib
import re
import shutil
import signal
import struct
import time
import tomllib
import unittest

from support import DEADLINE_S, FAILED, SMALL, STOPPED, WRONG_INPUT, CliTest

# One that lasts long enough to be interrupted.
LONG = SMALL + ["data.train_samples=1600", "train.epochs=40", "train.checkpoint_every=25"]
SERVED = LONG + ["train.epochs=10", "strategy.name=ssgd", "data.batch=15"]


class Resuming(CliTest):
    def test_stopped_or_killed(self):
        whole = self.json_of("train", *LONG, "train.name=whole", "--quiet")
        for number in [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGKILL]:
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
            self.assertAlmostEqual(resumed["samples_per_s"] * resumed["seconds"], resumed["samples"], delta=0.01 * resumed["samples"])  # of the whole
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

    def test_any_mesh_goes_on_under_any_other(self):
        whole = self.json_of("train", *SMALL, "model.hidden=[16,12]", "train.name=whole", "--quiet")
        began = {"none": [], "one": ["--mesh", "data=1"], "zero3": ["--mesh", "data=4", "parallel.zero=3"],
                 "tensor": ["--mesh", "tensor=2"], "pipeline": ["--mesh", "pipeline=2", "train.micro_batches=2"]}
        goes_on = {"zero3": (4, "allreduce", ["--mesh", "data=4", "parallel.zero=3"]),
                   "one": (1, None, ["--mesh", "data=1"]),
                   "both": (4, "allreduce", ["--mesh", "data=2,tensor=2"]),
                   "pipeline": (2, None, ["--mesh", "pipeline=2", "train.micro_batches=2"]),
                   "key": (2, "allreduce", ["parallel.data=2", "parallel.pipeline=1", "parallel.tensor=1"])}
        for before, first in began.items():
            self.run_paceline("train", *SMALL, "model.hidden=[16,12]", *first, "train.steps=5", f"train.name={before}", "--quiet")
            for after, (workers, strategy, then) in goes_on.items():
                with self.subTest(f"{before} to {after}"):
                    copy = f"runs/{before}-{after}"
                    shutil.copytree(self.folder / "runs" / before, self.folder / copy)
                    resumed = self.json_of("train", "--resume", copy, *then, "train.steps=0", "--quiet")
                    self.assertEqual((resumed["workers"], resumed["steps"]), (workers, whole["steps"]))
                    self.assertAlmostEqual(resumed["test_loss"], whole["test_loss"], delta=1e-4 * whole["test_loss"])
                    if strategy:
                        self.assertIn(f'name = "{strategy}"', self.run_paceline("checkpoint", "show", copy).stdout)

    def test_the_mesh_makes_room_for_the_workers_that_are_asked_for(self):
        self.run_paceline("train", *SMALL, "--mesh", "data=2", "train.steps=5", "train.name=x", "--quiet")
        self.assertEqual(self.json_of("train", "--resume", "runs/x", "--workers", "4", "train.steps=8", "--quiet")["workers"], 4)
        self.run_paceline("run", "-np", "2", "--", "train", "--resume", "runs/x", "train.steps=10", "--quiet")
        self.refused("train", "--resume", "runs/x", "--mesh", "data=2", "--workers", "3", says=["data=2", "3 ranks"])

    def test_nohup(self):
        process = self.start("train", *LONG, "train.name=x", "--quiet", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.wait_for_checkpoint(process, "runs/x")
        process.send_signal(signal.SIGHUP)
        _, err = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 0, err)

    def test_a_run_that_still_trains_is_left_alone(self):
        process = self.start("train", *LONG, "train.name=live", "--quiet")
        self.wait_for_checkpoint(process, "runs/live")
        process.send_signal(signal.SIGSTOP)  # so that it neither ends nor writes meanwhile
        # Before anything else is looked at, and so before a checkpoint is chosen: a later one could come, and would be set aside.
        self.refused("train", "--resume", "runs/live", "model.hidden=[24]", says=["runs/live: ", f"(pid {process.pid}) is training there"])
        self.run_paceline("train", "--resume", "runs/live", "--print-recipe")
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, STOPPED, err)
        self.assertFalse([file for file in self.files() if "aside" in file])

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
            self.assertRegex(done.stderr, r"^error: w.safetensors: [^\n]*model.weights=[^\n]*\n$")
            self.assertEqual(done.stdout, "")

    def test_wrong_ones_are_refused(self):
        self.run_paceline("train", *SMALL, "train.name=x", "--quiet")
        file, before = self.checkpoints("runs/x")[0], self.files()
        self.refused("train", "--resume", str(file), "model.hidden=[24]", says=["model.fc1.weight", "16x64", "24x64"])
        self.refused("train", "--resume", "nowhere", says=["nowhere", "no checkpoint"])
        self.refused("train", "r.toml", "--resume", "runs/x", says=["recipe"])
        self.refused("train", "--resume", "", says=["--resume", "run folder"])
        self.refused("train", "--resume", "runs/x", "strategy.name=single", "--workers", "2", says=["parallel.workers=2 needs a strategy"])
        for executor in ("virtual", "threads"):
            self.refused("train", "--resume", "runs/x", "strategy.name=asgd", "ps.executor=" + executor, says=["resume with the strategy"])
        self.refused("train", "--resume", "runs/x", "train.name=y", says=["runs/x", "train.name", "train.runs"])
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

    def test_data_that_changed_is_noticed(self):
        text = self.folder / "t.txt"
        words = ["train", "model.network=gpt", "model.layers=1", "model.width=16", "model.heads=2", "data.name=text", "data.root=t.txt",
                 "data.context=8", "data.batch=4", "train.epochs=3", "train.name=x", "--quiet"]
        text.write_text("abcdefgh" * 40)
        self.run_paceline(*words, "train.steps=5")
        before = self.files()
        text.write_text("abcdefgh" * 30)
        self.refused("train", "--resume", "runs/x", "train.steps=0", says=["35 training samples", "26 of them", "another place in the data"])
        text.write_text("stuvwxyz" * 40)
        self.refused("train", "--resume", "runs/x", "train.steps=0", says=["other characters"])
        self.assertEqual(self.files(), before)
        text.write_text("abcdefgh" * 40)
        self.run_paceline("train", "--resume", "runs/x", "train.steps=0", "--quiet")

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
        begun = [*SMALL, "model.weights=w.safetensors", "train.name=z"]
        whole = self.json_of("train", *begun, "--quiet")
        half = self.json_of("train", *begun, "train.steps=5", "--quiet")
        content = bytearray(weights.read_bytes())  # each number 1e25 times what it was
        values = struct.unpack(f"<{(len(content) - 8 - size) // 4}f", content[8 + size:])
        (self.folder / "big.safetensors").write_bytes(content[:8 + size] + struct.pack(f"<{len(values)}f", *[1e25 * v for v in values]))
        done = self.run_paceline("train", *SMALL, "model.weights=big.safetensors", "strategy.name=asgd", "--workers", "2", "train.name=big",
                                 "train.checkpoint_every=5", code=WRONG_INPUT)
        kept = done.stderr.split("The last good checkpoint is ")[1].split()[0]
        self.assertTrue((self.folder / kept).exists(), done.stderr)
        weights.unlink()  # the checkpoint has all that a run needs
        self.assertEqual(self.json_of("train", "--resume", half["run"], "train.steps=0", "--quiet")["state_hash"], whole["state_hash"])
        self.refused("checkpoint", "convert", "runs/x", "no/such/folder/w.safetensors", says=["no/such/folder"])
        shown = self.run_paceline("checkpoint", "show", "runs/x").stdout
        self.assertIn("state hash", shown)
        for fact in ["12 steps", "2 epochs done", "192 samples", 'name = "x"', "MB optim"]:
            self.assertIn(fact, shown)
        self.assertNotIn("conv1.weight", shown)
        # Of the recipe, what is not a default; all of it when asked for.
        changed, whole = tomllib.loads(shown[shown.index("\n["):]), tomllib.loads(self.json_of("checkpoint", "show", "runs/x")["recipe"])
        usual = {row["key"]: row["default"] for row in self.json_of("list", "keys")["keys"]}
        self.assertEqual(changed["data"]["batch"], 16)
        for section, keys in whole.items():
            for key, value in keys.items():
                differs = tomllib.loads(f"value = {usual[f'{section}.{key}']}")["value"] != value
                self.assertEqual(changed.get(section, {}).get(key), value if differs else None, f"{section}.{key}")
        everything = self.run_paceline("checkpoint", "show", "--recipe", "runs/x").stdout
        self.assertEqual(tomllib.loads(everything[everything.index("\n["):]), whole)
        self.assertRegex(self.run_paceline("checkpoint", "show", "runs/x", "--tensors").stdout, r"model\.\S+\.weight +\S+")
        self.run_paceline("train", *SMALL, "train.name=y", "train.steps=8", "--quiet")
        shown = self.run_paceline("checkpoint", "show", "runs/y").stdout
        for fact in ["8 steps", "1 epoch done, up to batch 2 of the next", "128 samples"]:
            self.assertIn(fact, shown)


class Restarts(CliTest):
    """`paceline run --max-restarts`: the run that was interrupted goes on, in its folder, to the same bits."""

    def wait_until(self, process, condition):
        end = time.monotonic() + DEADLINE_S
        while not condition():
            self.assertIsNone(process.poll(), "the run ended before it could be interrupted")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.002)

    def process_with(self, launcher, variable):
        """Pid of the process that the launcher started with that variable."""
        for child in pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split():
            if variable.encode() in pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                return int(child)
        self.fail(f"nobody was started with {variable}")

    def steps(self, run):
        """What the run has counted; its file is empty between its creation and the first step."""
        file = self.folder / run / ".steps"
        return int(file.read_text() or 0) if file.exists() else 0

    def train(self, launch, words, name):
        return self.start("run", *launch, "--grace", "1", "--", "train", *words, f"train.name={name}", "--quiet")

    def summary(self, process, run):
        _, err = process.communicate(timeout=DEADLINE_S)
        if "built without gRPC" in err or "libgrpc" in err:
            self.skipTest("this build has no gRPC")
        self.assertEqual(process.returncode, 0, err)
        return json.loads((self.folder / run / "summary.json").read_text()), err

    def check(self, launch, victim, words, interrupt, told=None):
        """Kills `victim` with -9 once there is something to lose; everything must be as if nothing had happened."""
        whole, _ = self.summary(self.train(launch, words, "whole"), "runs/whole")
        process = self.train([*launch, "--max-restarts", "1"], words, "killed")
        self.wait_until(process, lambda: interrupt("runs/killed"))
        pid = self.process_with(process, victim)
        os.kill(pid, signal.SIGSTOP)
        before, kept = self.steps("runs/killed"), self.checkpoints("runs/killed")
        os.kill(pid, signal.SIGKILL)
        summary, err = self.summary(process, "runs/killed")
        for key in ("state_hash", "steps", "samples", "workers"):
            self.assertEqual(summary[key], whole[key], key)
        self.assertEqual(sorted(path.name for path in (self.folder / "runs").iterdir()), ["killed", "whole"])
        with open(self.folder / "runs/killed/metrics.jsonl") as lines:
            steps = [row["step"] for row in map(json.loads, lines) if row["event"] == "step"]
        self.assertEqual(steps, sorted(set(steps)))
        if told:
            self.assertIn(told, err)
            return None
        words = re.search(r"restart 1: .*runs/killed .* from step (\d+).*; ([\d,]+) steps? .* lost", err)
        self.assertTrue(words, err)
        return int(words.group(1)), int(words.group(2).replace(",", "")), before, kept

    def test_a_killed_rank(self):
        for rank in range(2):
            with self.subTest(rank):
                step, lost, made, kept = self.check(["-np", "2"], f"RANK={rank}", LONG, self.checkpoints)
                self.assertGreater(step, 0)
                if rank == 0:  # who counts and writes: nothing changed after it was stopped
                    self.assertIn(f"step-{step:010}", kept[-1].name)
                    self.assertEqual(lost, made - step)
                shutil.rmtree(self.folder / "runs")

    def test_before_the_first_checkpoint(self):
        words = [*LONG, "train.checkpoints=false", "train.epochs=10"]
        step, lost, made, _ = self.check(["-np", "2"], "RANK=0", words, self.steps)
        self.assertEqual((step, lost), (0, made))

    def test_a_killed_server(self):
        step, lost, made, _ = self.check(["--servers", "1", "--workers", "3"], "PACELINE_SERVER=0", SERVED, self.checkpoints)
        self.assertGreater(step, 0)
        self.assertEqual(lost, made - step)

    def test_a_killed_server_of_several(self):
        """Its journal has what it did since its snapshot, so that nothing is lost."""
        for server in range(2):
            with self.subTest(server):
                self.check(["--servers", "2", "--workers", "3"], f"PACELINE_SERVER={server}", SERVED, self.checkpoints, told="restart 1 of")
                shutil.rmtree(self.folder / "runs")

    def test_a_killed_worker(self):
        """The others wait for it, and the round has the same minibatches."""
        self.check(["--servers", "1", "--workers", "3"], "PACELINE_WORKER=1", SERVED, self.checkpoints, told="restart 1 of")

    def test_a_resumed_run_goes_on_from_its_newest_checkpoint(self):
        whole, _ = self.summary(self.train(["-np", "2"], LONG, "whole"), "runs/whole")
        process = self.train(["-np", "2"], LONG, "x")
        self.wait_until(process, lambda: self.checkpoints("runs/x"))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE_S)
        first = self.checkpoints("runs/x")[0]
        process = self.start("run", "-np", "2", "--grace", "1", "--max-restarts", "1", "--", "train", "--resume", str(first), "--quiet")
        self.wait_until(process, lambda: not first.exists() and len(self.checkpoints("runs/x")) > 1)
        os.kill(self.process_with(process, "RANK=1"), signal.SIGKILL)
        summary, err = self.summary(process, "runs/x")
        self.assertIn("restart 1: ", err)
        self.assertEqual(summary["state_hash"], whole["state_hash"])


def damage(file):
    content = bytearray(file.read_bytes())
    content[-1] ^= 0x10
    file.write_bytes(content)


if __name__ == "__main__":
    unittest.main()
