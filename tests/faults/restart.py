#!/usr/bin/env python3
"""Kills a random rank of a job of collectives at random moments and checks that `paceline run --max-restarts` loses nothing but time.

    restart.py build/bin/paceline --runs 20 --seed 1 [key=value ...]

Prints a Markdown table. Each run has two to four ranks and one or two kills. Exits with 1 unless every run ends with the undisturbed
state_hash, in one folder, with the same number of steps.
"""
import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

SMALL = ["model.network=mlp", "model.hidden=[64]", "data.shape=[1,12,12]", "data.train_samples=4800", "data.test_samples=96", "data.batch=48",
         "train.epochs=40", "train.threads=1", "train.checkpoint_every=150", "train.device=cpu", "--json"]
STRATEGIES = ["allreduce", "allreduce", "local_sgd", "easgd", "gossip"]


def rank_of(job, rank, other_than):
    """The pid of a rank of the job, unless it is `other_than`."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if int(stat.read().rsplit(")", 1)[1].split()[1]) != job.pid:
                    continue
            with open(f"/proc/{pid}/environ") as environment:
                if f"RANK={rank}" in environment.read().split("\0") and int(pid) != other_than:
                    return int(pid)
        except (OSError, IndexError, ValueError):
            continue
    return None


def train(paceline, ranks, words, kills=()):
    """(summary, standard error, folders, times at which a kill struck, seconds in all) of one job."""
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "err"), "w+") as err:
        runs = os.path.join(folder, "runs")
        job = subprocess.Popen([paceline, "run", "-np", str(ranks), "--max-restarts", "3", "--grace", "2", "--only-rank-output", "0", "--", "train",
                                *words, "train.runs=" + runs], stdout=subprocess.PIPE, stderr=err, text=True)
        began, struck, last = time.monotonic(), [], None
        try:
            for after, victim in kills:
                time.sleep(after)
                until = time.monotonic() + 60
                while (pid := rank_of(job, victim, last)) is None and job.poll() is None and time.monotonic() < until:
                    time.sleep(0.01)
                if pid is None or job.poll() is not None:
                    break
                os.kill(pid, signal.SIGKILL)
                struck.append((time.monotonic() - began, victim))
                last = pid
            out, _ = job.communicate(timeout=300)
        finally:
            job.kill()
        err.seek(0)
        said = err.read()
        folders = len(os.listdir(runs)) if os.path.isdir(runs) else 0
        # --only-rank-output shows what every start of rank 0 printed; the last document is the run's.
        summary = json.loads(out[out.rindex("\n{") + 1 if "\n{" in out else 0:]) if job.returncode == 0 else None
        return summary, said, folders, struck, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paceline")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("words", nargs="*")
    arguments = parser.parse_args()
    chance, undisturbed, failures = random.Random(arguments.seed), {}, 0
    print("| run | strategy | ranks | killed: rank at s | went on from step (lost) | seconds (undisturbed) | result |\n|---:|---|---:|---|---|---:|---|")
    for number in range(1, arguments.runs + 1):
        strategy, ranks = chance.choice(STRATEGIES), chance.choice([2, 2, 3, 4])
        words = [*SMALL, f"strategy.name={strategy}", *arguments.words]
        if (strategy, ranks) not in undisturbed:
            undisturbed[strategy, ranks] = train(arguments.paceline, ranks, words)
        expected, _, _, _, usual = undisturbed[strategy, ranks]
        if expected is None:
            sys.exit(f"{strategy} on {ranks} ranks does not run undisturbed:\n{undisturbed[strategy, ranks][1]}")
        kills = [(chance.uniform(0.2, 0.85 * usual), chance.randrange(ranks))]  # later it might be over
        if chance.random() < 0.4:
            kills.append((chance.uniform(0.1, usual / 2), chance.randrange(ranks)))
        got, err, folders, struck, lasted = train(arguments.paceline, ranks, words, kills)
        same = got is not None and got["state_hash"] == expected["state_hash"] and got["steps"] == expected["steps"]
        good = same and folders == 1
        failures += not good
        went_on = ", ".join(f"{step} ({lost})" for step, lost in re.findall(r"from step (\d+)[^;]*; ([\d,]+) steps?", err)) or "–"
        where = ", ".join(f"{rank} at {moment:.1f}" for moment, rank in struck) or "none: it was over"
        print(f"| {number} | {strategy} | {ranks} | {where} | {went_on} | {lasted:.1f} ({usual:.1f}) | "
              f"{'same hash' if good else 'FAILED'} |", flush=True)
        if not good:
            print(err, file=sys.stderr)
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
