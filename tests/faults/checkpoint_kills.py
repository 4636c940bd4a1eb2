#!/usr/bin/env python3
"""Kills a run while its workers write a checkpoint, and checks that it goes on to the state of a run that nobody disturbed.

    checkpoint_kills.py build/bin/paceline --runs 20 --seed 1 [--workers 4] [--workers-are threads|processes|servers|all] [key=value ...]

Prints a Markdown table. Every run has several workers whose checkpoint is a folder of shards, one after every few steps. It is killed
(SIGKILL, all processes at once) a random moment after it began to write a random one of them, then resumed. `servers`: of a parameter server,
with one worker, which has residuals. Exits with 1 if a resumed run ends in another state_hash than the undisturbed run, if it began from
anything but the newest complete checkpoint, or if what it leaves is not whole. A kill is drawn again if no checkpoint was being written when
it came, or none was complete yet: `--runs` counts those that interrupted a write and left something to resume from.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

INDEX = "model.safetensors.index.json"
WORDS = ["model.network=mlp", "model.hidden=[512,256]", "data.shape=[1,16,16]", "data.batch=32", "data.train_samples=640",
         "data.test_samples=32", "train.epochs=4", "train.threads=1", "train.device=cpu", "train.checkpoint_every=4", "train.keep=3",
         "optim.name=adam", "optim.rate=0.001", "--quiet", "--json"]
ALLREDUCE = ["strategy.update=sharded", "comm.algorithm=direct"]
SERVED = ["strategy.name=asgd", "comm.compression=topk"]
DEADLINE_S = 240  # of one run; only a hang takes so long
DRAWS = 20  # of one kill, at most, until it interrupts a write


class Jobs:
    """Commands of a run in a folder of its own."""

    def __init__(self, paceline, workers, kind, words):
        self.paceline, self.words = paceline, [*(SERVED if kind == "servers" else ALLREDUCE), *words]
        how = {"threads": [], "processes": ["-np", str(workers)], "servers": ["--servers", str(workers), "--workers", "1"]}[kind]
        self.launcher = ["run", *how, "--only-rank-output", "0", "--"] if how else []
        self.workers = [] if how else ["--workers", str(workers)]

    def command(self, *words):
        return [self.paceline, *self.launcher, "train", *words, *self.workers]

    def start(self, folder):
        return subprocess.Popen(self.command(*WORDS, *self.words, f"train.runs={folder}", "train.name=x"), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, start_new_session=True)

    def whole(self, folder):
        job = self.start(folder)
        out, err = job.communicate(timeout=DEADLINE_S)
        if job.returncode != 0:
            sys.exit(f"the undisturbed run failed:\n{err}")
        return json.loads(out)

    def resume(self, folder):
        return subprocess.run(self.command("--resume", f"{folder}/x", "--quiet", "--json"), capture_output=True, text=True,
                              timeout=DEADLINE_S, check=False)


def step_of(path):
    return int(re.search(r"step-(\d+)", path.name)[1])


def folders(run):
    try:
        return sorted(path for path in (run / "checkpoints").iterdir() if path.name.startswith("step-"))
    except OSError:
        return []


def complete(run):
    """The steps of the complete checkpoints."""
    return [step_of(path) for path in folders(run) if (path / INDEX).is_file()]


def wait_until_gone(folder):
    """Ranks follow their launcher a moment later; until then the run is theirs."""
    needle, until = os.fsencode(f"train.runs={folder}") + b"\0", time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        alive = False
        for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                alive = alive or needle in process.read_bytes()
            except OSError:
                pass
        if not alive:
            return
        time.sleep(0.02)


def kill_in_write(job, run, nth, after):
    """Waits until the nth checkpoint is being written, then `after` seconds, and kills everybody. Says what there was of the newest one, and
    whether it was still being written."""
    began = set()
    until = time.monotonic() + DEADLINE_S
    while job.poll() is None and time.monotonic() < until:
        began.update(path.name for path in folders(run))
        if len(began) >= nth:
            time.sleep(after)
            break
        time.sleep(0.0005)
    try:
        os.killpg(job.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    job.communicate(timeout=DEADLINE_S)
    wait_until_gone(run.parent)
    newest = max(folders(run), default=None)
    if newest is None:
        return "nothing", False
    parts = sum(1 for path in newest.iterdir() if path.name.startswith("shard-"))
    if (newest / INDEX).is_file():
        return f"step {step_of(newest)}: complete", False
    return f"step {step_of(newest)}: {parts} shards, no index", True


def interrupted_run(jobs, scratch, number, chance):
    """The folder of a run that was killed in mid-write, when and with what left; and how many kills that took."""
    for draw in range(1, DRAWS + 1):
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"kill-{number}-", dir=scratch))
        nth, after = chance.randint(2, 12), chance.choice([0, chance.uniform(0, 0.004), chance.uniform(0, 0.03)])
        found, writing = kill_in_write(jobs.start(folder), folder / "x", nth, after)
        if writing and complete(folder / "x"):
            return folder, nth, after, found, draw
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(f"none of {DRAWS} kills interrupted a write after a complete checkpoint; give the model more parameters (model.hidden), so that a write takes longer")


def one_run(jobs, scratch, number, chance, expected):
    folder, nth, after, found, draws = interrupted_run(jobs, scratch, number, chance)
    newest, problem = max(complete(folder / "x")), ""
    shown = subprocess.run([jobs.paceline, "checkpoint", "show", str(folder / "x"), "--json"], capture_output=True, text=True, check=False)
    if shown.returncode != 0 or json.loads(shown.stdout)["step"] != newest:
        problem = "the newest complete checkpoint does not count: " + (shown.stderr.strip() or shown.stdout[:60])
    done = jobs.resume(folder)
    resumed = json.loads(done.stdout) if done.returncode == 0 else None
    verified = subprocess.run([jobs.paceline, "checkpoint", "verify", str(folder / "x")], capture_output=True, text=True, check=False)
    if resumed is None:
        problem = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
    elif (began := json.loads((folder / "x/summary.json").read_text())["first_step"]) != newest:
        problem = f"resumed from step {began}, not {newest}"
    elif resumed["state_hash"] != expected["state_hash"]:
        problem = f"state_hash {resumed['state_hash']}"
    elif not problem and verified.returncode != 0:
        problem = verified.stdout + verified.stderr
    shutil.rmtree(folder, ignore_errors=True)
    return nth, after, found, draws, newest, problem


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paceline")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--workers-are", choices=["threads", "processes", "servers", "all"], default="all")
    parser.add_argument("words", nargs="*", help="settings of the run")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    kinds = ["threads", "processes", "servers"] if options.workers_are == "all" else [options.workers_are]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="paceline-kills-") as scratch:
        for kind in kinds:
            jobs = Jobs(os.path.abspath(options.paceline), options.workers, kind, options.words)
            expected = jobs.whole(os.path.join(scratch, kind))
            print(f"\n{options.workers} {'servers' if kind == 'servers' else f'workers as {kind}'}; undisturbed: step {expected['steps']}, state_hash {expected['state_hash']}\n")
            print("| run | killed in checkpoint | after ms | left of the newest | kills until a write was interrupted | resumed from step | ends in the same state |\n|---|---|---|---|---|---|---|")
            for number in range(1, options.runs + 1):
                nth, after, found, draws, start, problem = one_run(jobs, scratch, number, chance, expected)
                failed += bool(problem)
                print(f"| {number} | {nth} | {after * 1e3:.1f} | {found} | {draws} | {start} | {'yes' if not problem else 'NO: ' + problem} |", flush=True)
    print(f"\n{failed} of {len(kinds) * options.runs} runs failed" if failed else f"\nall {len(kinds) * options.runs} runs ended in the same state")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
