#!/usr/bin/env python3
"""Kills parameter servers and workers at random moments and checks that with ps.replica=true every minibatch still counts once on every server.

    exactly_once.py build/bin/paceline --runs 20 --seed 1 [--strategy asgd] [--workers 2] [--kill servers|workers] [key=value ...]

Prints a Markdown table. Each run has one or two servers and up to three kills: the first when the run has reached a random step, the others
some time after the previous victim is back, or (marked &) while it is still starting and replaying its journal. Exits with 1 if a server
counted other gradients or updates than the undisturbed run, if the steps or samples of the run differ, or, with the synchronous strategy
ssgd, its state_hash.
"""
import argparse
import glob
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

SMALL = ["data.batch=32", "data.train_samples=3200", "data.test_samples=200", "train.epochs=3", "train.threads=1", "ps.replica=true",
         "ps.snapshot_s=2", "timing.pause_probability=1", "timing.pause_ms=5", "--json"]
RESTARTS = 8


def processes_of(job):
    """Maps the job's servers and workers, like "server 0", to their pids."""
    found = {}
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if int(stat.read().rsplit(")", 1)[1].split()[1]) != job.pid:
                    continue
            with open(f"/proc/{pid}/environ") as environment:
                variables = dict(e.split("=", 1) for e in environment.read().split("\0") if "=" in e)
            for role in ("server", "worker"):
                if number := variables.get("PACELINE_" + role.upper()):
                    found[f"{role} {number}"] = int(pid)
        except (OSError, ValueError, IndexError):
            continue
    return found


def journals(folder, server):
    """Maps the numbers of the journals of "server 0" or the like to their sizes."""
    sizes = {}
    for name in glob.glob(os.path.join(folder, "*", "servers", f"{server.replace(' ', '-')}.journal-*")):
        try:
            sizes[int(name.rsplit("-", 1)[1])] = os.path.getsize(name)
        except OSError:  # deleted meanwhile
            continue
    return sizes


def wait_for(condition, job, seconds=60):
    """Returns the first true result of the condition, or None if the job ends first."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and job.poll() is None:
        if result := condition():
            return result
        time.sleep(0.005)
    return None


class Run:
    """One job and its results."""

    def __init__(self, paceline, servers, workers, words, kills):
        self.seconds, self.killed = [], {}
        with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "err"), "w+") as err:
            runs = os.path.join(folder, "runs")
            self.job = subprocess.Popen([paceline, "run", "--servers", str(servers), "--workers", str(workers), "--max-restarts", str(RESTARTS),
                                         "--only-rank-output", "0", "--", "train", *words, "train.runs=" + runs],
                                        stdout=subprocess.PIPE, stderr=err, text=True)
            try:
                began = time.monotonic()
                for i, (step, after, victim, _) in enumerate(kills):
                    wait_for(lambda: max(self.steps(runs), default=0) >= step, self.job, 240)
                    self.kill(runs, after, victim, waits=i + 1 == len(kills) or not kills[i + 1][3])
                out, _ = self.job.communicate(timeout=300)
            finally:
                self.job.kill()
            self.lasted = time.monotonic() - began
            err.seek(0)
            self.err = err.read()
            self.logged = self.steps(runs)
            self.logged_samples = self.metric(runs, "samples")
        self.code = self.job.returncode
        self.summary = json.loads(out) if self.code == 0 else None
        self.restarts = self.err.count("restarting it")
        self.counts = {}  # (updates, gradients) by server
        if self.summary:
            self.counts[0] = self.summary["server"]["updates"], self.summary["server"]["gradients"]
        for server, updates, gradients in re.findall(r"server (\d+) made (\d+) updates with (\d+) gradients", self.err):
            self.counts[int(server)] = int(updates), int(gradients)

    @staticmethod
    def pushes(folder, server, behind):
        """Whether the server has journalled a push after journal `behind`; no other event is as large."""
        return any(number > behind and size > 4000 for number, size in journals(folder, server).items())

    @staticmethod
    def metric(folder, key):
        """A number of each step event in metrics.jsonl, in file order; the last line may be incomplete."""
        for name in glob.glob(os.path.join(folder, "*", "metrics.jsonl")):
            with open(name) as lines:
                return [int(number) for number in re.findall(rf'"event":"step".*?"{key}":(\d+),', lines.read())]
        return []

    def steps(self, folder):
        return self.metric(folder, "step")

    def kill(self, folder, after, victim, waits):
        """Kills a server or worker, and waits until the successor of a server has journalled a push, or that of a worker is there."""
        time.sleep(after)
        another = lambda: next((p for name, p in processes_of(self.job).items() if name == victim and p != self.killed.get(name)), None)
        pid = wait_for(another, self.job)
        if not pid:
            return  # the run is over
        last = max(journals(folder, victim), default=-1)
        os.kill(pid, signal.SIGKILL)
        self.killed[victim] = pid
        moment = time.monotonic()
        serves = waits and wait_for(another if victim.startswith("worker") else lambda: self.pushes(folder, victim, last), self.job)
        self.seconds.append(f"{time.monotonic() - moment:.1f}" if serves else "-")


def show(count, gathers):
    return f"{count[0]}/{count[1]}" if gathers else str(count[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paceline")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--strategy", default="asgd")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 2], help="how many servers runs have; one of these each")
    parser.add_argument("--kill", choices=["servers", "workers"], default="servers")
    parser.add_argument("words", nargs="*")
    options = parser.parse_intermixed_args()
    chance = random.Random(options.seed)
    words = ["strategy.name=" + options.strategy, *SMALL, *options.words]
    quiet = {servers: Run(options.paceline, servers, options.workers, words, []) for servers in options.servers}
    for servers, run in quiet.items():
        if run.code != 0 or len(set(run.counts.values())) != 1 or len(run.counts) != servers:
            sys.exit(f"the undisturbed run with {servers} servers: code {run.code}, counts {run.counts}\n{run.err[-3000:]}")
    expected = {servers: run.counts[0] for servers, run in quiet.items()}
    gathers = any(updates != gradients for updates, gradients in expected.values())
    undisturbed = ", ".join(f"{show(expected[n], gathers)} in {run.lasted:.1f} s with {n}" for n, run in quiet.items())
    print(f"Strategy {options.strategy}, seed {options.seed}, {options.workers} workers. Undisturbed, by servers: {undisturbed}.\n")
    print(f"| run | servers | kills: step, seconds after it or after the previous kill, victim | restarts | {'updates/gradients' if gathers else 'updates'} per "
          f"server | expected | steps, samples{' and state_hash' if options.strategy == 'ssgd' else ''} as expected | seconds until service | result |\n|---:|---:|---|---:|---|---:|---|---|---|")
    bad = 0
    for number in range(1, options.runs + 1):
        servers = chance.choice(options.servers)
        victim = lambda: f"server {chance.randrange(servers)}" if options.kill == "servers" else f"worker {chance.randrange(options.workers)}"
        kills = [(chance.randrange(int(0.9 * quiet[servers].summary["steps"])), chance.uniform(0, 0.3), victim(), False)]
        while chance.random() < 0.6 and len(kills) < 3:
            at_once = chance.random() < 0.7
            kills.append((0, chance.uniform(0, 2.5 if at_once else 0.5), victim(), at_once))
        run = Run(options.paceline, servers, options.workers, words, kills)
        counts = [run.counts.get(i, (-1, -1)) for i in range(servers)]
        same = run.summary is not None and all(run.summary[key] == quiet[servers].summary[key] for key in ("steps", "samples"))
        same = same and run.logged == sorted(set(run.logged)) and run.logged[-1] == run.summary["steps"]  # none twice
        same = same and sum(run.logged_samples) == run.summary["samples"]
        same = same and (options.strategy != "ssgd" or run.summary["state_hash"] == quiet[servers].summary["state_hash"])
        exact = all(count == expected[servers] for count in counts)
        good = run.code == 0 and exact and same
        bad += not good
        moments = ", ".join(f"{'& ' if at_once else ''}{f'step {step} ' if step else ''}+{after:.2f} s: {name}"
                            for step, after, name, at_once in kills)
        print(f"| {number} | {servers} | {moments} | {run.restarts} | {', '.join(show(c, gathers) for c in counts)} | {show(expected[servers], gathers)} | "
              f"{'yes' if same else 'no'} | {', '.join(run.seconds)} | {'exact' if good else f'WRONG (exit {run.code})'} |", flush=True)
        if not good:
            print(run.err[-6000:], file=sys.stderr)
    print(f"\n{options.runs - bad} of {options.runs} exact")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
