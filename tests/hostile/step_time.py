#!/usr/bin/env python3
"""What attacks cost a job: its step time with a continuous attack, against that without, in turns within one run.

    python3 step_time.py FOLDER_OF_PROGRAMS [--turns 5] [--seconds 2.5] [--only ATTACK,ATTACK]

Not a test: it prints a table. The job has one core and the attacker another, so that what counts is the victim's part, not the attacker's
hunger. A turn is a while without an attack and a while with it; the ratio is the median over turns, the noise is what the same division
gives between neighbouring whiles without an attack. Where others use the machine meanwhile, the time that the job computed for a step says
more than the clock.
"""

import argparse
import glob
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

from support import Attacker, children, store_name, wait_for_port

ASYNCHRONOUS = ["--servers", "1", "--workers", "2", "--", "train", "strategy.name=asgd"]
SYNCHRONOUS = ["-np", "2", "--", "train"]
DATA = ["data.batch=32", "data.train_samples=3000", "data.test_samples=100", "train.threads=1", "train.device=cpu", "train.epochs=100000",
        "--quiet"]
OF_SERVER = ["random", "http2", "silent", "slow", "half_open", "churn", "wrong_key", "heads", "streams_few", "incomplete_joins"]
OF_STORE = ["random", "http2", "silent", "slow", "churn", "wrong_key", "members", "hellos"]


class Job:
    def __init__(self, programs, words, variable, core):
        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen([programs / "paceline", "run", *words, *DATA, "train.runs=" + self.folder.name],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        self.pid, self.variables = self.first(variable)

    def first(self, variable):
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            for pid, variables in children(self.process.pid):
                if variables.get(variable) == "0" and (variable == "PACELINE_SERVER" or store_name(pid)):
                    return pid, variables
            time.sleep(0.1)
        raise SystemExit(f"nobody serves as {variable}=0")

    def steps(self):
        """(when its metrics were last written to, the last step in them)."""
        for path in glob.glob(os.path.join(self.folder.name, "*", "metrics.jsonl")):
            with open(path, "rb") as lines:
                lines.seek(max(0, os.path.getsize(path) - 20000))
                for line in reversed(lines.read().decode(errors="replace").splitlines()):
                    try:
                        entry = json.loads(line)
                    except ValueError:
                        continue
                    if entry.get("event") == "step":
                        return os.stat(path).st_mtime, entry["step"]
        return None

    def step_time(self, seconds):
        """Of the steps made in so many seconds, and the time computed for one. The metrics are up to a second late, hence the wait before."""
        time.sleep(1.2)
        begin = (*self.steps(), self.cpu())
        time.sleep(seconds)
        end = (*self.steps(), self.cpu())
        if end[1] <= begin[1]:
            return None
        return (end[0] - begin[0]) / (end[1] - begin[1]), (end[2] - begin[2]) / (end[1] - begin[1])

    def cpu(self):
        """Seconds that its processes have computed."""
        ticks = 0
        for pid, _ in children(self.process.pid):
            with open(f"/proc/{pid}/stat") as stat:
                ticks += sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def end(self):
        self.process.terminate()
        self.process.wait(timeout=60)
        self.folder.cleanup()


class Barrage:
    """One attack after another, on a core of its own."""

    def __init__(self, attacker, name, core):
        words = [*attacker.words[:1], name, *attacker.words[1:], "0", "1"]
        quoted = " ".join(f"'{word}'" for word in words)
        self.shell = subprocess.Popen(["sh", "-c", f"for i in $(seq 100000); do {quoted}; done"], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, start_new_session=True,
                                      preexec_fn=lambda: os.sched_setaffinity(0, {core}))

    def end(self):
        os.killpg(self.shell.pid, 15)
        self.shell.wait()


def measure(job, attacker, name, turns, seconds, core):
    alone, attacked = [], []
    for _ in range(turns):
        alone.append(job.step_time(seconds))
        barrage = Barrage(attacker, name, core)
        attacked.append(job.step_time(seconds))
        barrage.end()
    cells = [name]
    for kind in (0, 1):  # by the clock, and computed
        ratios = [with_it[kind] / without[kind] for without, with_it in zip(alone, attacked) if without and with_it]
        noise = [max(a[kind] / b[kind], b[kind] / a[kind]) - 1 for a, b in zip(alone, alone[1:]) if a and b]
        quiet = [without[kind] for without in alone if without]
        cells += [f"{statistics.median(quiet) * 1e3:.2f} ms", f"{statistics.median(ratios):.3f}", f"{statistics.median(noise) * 100:.0f}%"]
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    programs = options.programs.resolve()
    cores = sorted(os.sched_getaffinity(0))
    for title, words, variable, names in (("parameter server, TCP", ASYNCHRONOUS, "PACELINE_SERVER", OF_SERVER),
                                          ("store, one host", SYNCHRONOUS, "RANK", OF_STORE)):
        job = Job(programs, words, variable, cores[0])
        try:
            key = job.variables["PACELINE_JOB"]
            if variable == "PACELINE_SERVER":
                wait_for_port(job.variables["PACELINE_SERVERS"])
                attacker = Attacker(programs / "attacker", "tcp:" + job.variables["PACELINE_SERVERS"], "servers", key)
            else:
                attacker = Attacker(programs / "attacker", "unix:" + store_name(job.pid), "store", key)
            while not job.steps() or job.steps()[1] < 50:
                time.sleep(0.2)
            print(f"\n{title}; {options.turns} turns of 2 × {options.seconds} s\n\n"
                  "| attack | step | ÷ alone | noise | CPU of a step | ÷ alone | noise |\n|---|---|---|---|---|---|---|",
                  flush=True)
            for name in names:
                if not options.only or name in options.only.split(","):
                    measure(job, attacker, name, options.turns, options.seconds, cores[-1])
        finally:
            job.end()


if __name__ == "__main__":
    main()
