"""Stops or kills a random rank of a small training at a random moment, again and again, and tells who was blamed, by whom and how soon.

    python3 stopped_rank.py PACELINE [--times N] [--seed S] [--ranks N] [--engine auto|shm|gloo]

Every round is `paceline run -np 3 -- train` of the built-in demonstration. Its victim gets SIGSTOP, or, one time in five, SIGKILL. A round
is good if every other rank and the launcher's last line name the victim, and nothing is left running. The exit code is 0 if all are.
"""

import argparse
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from processes import ranks_of  # noqa: E402

LONGEST_START_S, LONGEST_END_S = 120, 60


def is_alive(process):
    try:
        status = pathlib.Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status[status.rindex(")") + 2] not in "ZX"


class Round:
    def __init__(self, arguments, chance, folder):
        self.how = signal.SIGKILL if chance.random() < 0.2 else signal.SIGSTOP
        self.victim = chance.randrange(arguments.ranks)
        self.moment = chance.uniform(0, 6)  # seconds after the first step
        self.words = [arguments.paceline, "run", "-np", str(arguments.ranks), "--json", "--log-dir", folder / "logs", "--",
                      "train", f"comm.engine={arguments.engine}", "train.epochs=1000", "data.batch=96", f"train.runs={folder}/runs",
                      "train.name=run"]
        if arguments.engine == "gloo":
            self.words.append("comm.per_host=1")
        self.ranks, self.folder = arguments.ranks, folder
        self.named, self.launcher, self.problem = {}, "-", ""
        self.seconds = self.ranks_named_after = float("nan")

    def wait_for_training(self, job):
        """Until rank 0 has said something of its first step."""
        log = self.folder / "logs" / "rank-0.log"
        until = time.monotonic() + LONGEST_START_S
        while time.monotonic() < until:
            if job.poll() is not None:
                raise RuntimeError(f"the job ended by itself: {log.read_text(errors='replace') if log.exists() else ''}")
            if log.exists() and re.search(r"epoch|step|\d+/\d+", log.read_text(errors="replace")):
                return
            time.sleep(0.05)
        raise RuntimeError("the training did not begin")

    def run(self):
        with (self.folder / "document").open("w+") as document, (self.folder / "stderr").open("w+") as errors:
            job = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=document, stderr=errors, text=True)
            try:
                self.wait_for_training(job)
                processes = ranks_of(job.pid)
                time.sleep(self.moment)
                if job.poll() is not None:
                    raise RuntimeError("the job ended before its victim was chosen")
                began = time.monotonic()
                subprocess.run(["kill", f"-{int(self.how)}", str(processes[self.victim])], check=True)
                self.wait_for_end(job, began)
                time.sleep(0.2)
                if left := [rank for rank, process in processes.items() if is_alive(process)]:
                    self.problem = f"left running: {left}"
            finally:
                if job.poll() is None:
                    job.kill()
                    job.wait()
            document.seek(0), errors.seek(0)
            self.judge(json.load(document), errors.read())

    def wait_for_end(self, job, began):
        """Notes when the last of the ranks has said whom it blames, and when the launcher ends."""
        told = {}
        while job.poll() is None:
            now = time.monotonic() - began
            if now > LONGEST_END_S:
                raise RuntimeError("the job does not end")
            for rank in re.findall(r"^\[(\d+)\] error: (?!rank \d+, operation)", (self.folder / "stderr").read_text(errors="replace"), re.M):
                told.setdefault(rank, now)
            time.sleep(0.02)
        self.seconds = time.monotonic() - began
        self.ranks_named_after = max(told.values(), default=self.seconds)

    def judge(self, document, text):
        for rank in set(range(self.ranks)) - {self.victim}:
            said = re.findall(rf"^\[{rank}\] error: (?!rank {rank}, operation)(.*)", text, re.M)
            # What an error is about stands at its end where others are in between.
            found = re.search(r"because of rank (\d+)|itself waited for rank (\d+)|^rank (\d+)", said[-1]) if said else None
            self.named[rank] = next(number for number in found.groups() if number) if found else "-"
        failed = document["failed_first"]
        self.launcher = str(failed["rank"]) if failed else "-"
        expected = "no heartbeat" if self.how == signal.SIGSTOP else "SIGKILL"
        if {*self.named.values(), self.launcher} != {str(self.victim)}:
            self.problem = self.problem or "another was named"
        elif expected not in document["why"]:
            self.problem = self.problem or f"why: {document['why']}"

    def row(self, number):
        named = ", ".join(f"{rank}: {name}" for rank, name in sorted(self.named.items()))
        return (f"| {number} | {self.how.name} | {self.moment:.2f} | {self.victim} | {named} | {self.ranks_named_after:.2f} | {self.launcher} | {self.seconds:.2f} | "
                f"{self.problem or 'good'} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paceline", type=pathlib.Path)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--engine", default="auto")
    arguments = parser.parse_args()
    arguments.paceline = arguments.paceline.resolve()
    chance, good = random.Random(arguments.seed), 0
    print("| # | signal | moment, s | victim | named by rank | after, s | by the launcher | after, s | result |\n|" +
          "---:|---|---:|---:|---|---:|---:|---:|---|")
    for number in range(1, arguments.times + 1):
        with tempfile.TemporaryDirectory() as folder:
            one = Round(arguments, chance, pathlib.Path(folder))
            try:
                one.run()
            except (RuntimeError, subprocess.SubprocessError, ValueError, KeyError) as problem:
                one.problem = f"{type(problem).__name__}: {problem}".replace("\n", " ")[:300]
            good += not one.problem
            print(one.row(number), flush=True)
    print(f"\n{good} of {arguments.times} good, seed {arguments.seed}")
    return 0 if good == arguments.times else 1


if __name__ == "__main__":
    sys.exit(main())
