"""A rank that is killed, stopped or late: every other rank gets a PeerError in time, none hangs, none aborts, nothing is left behind.

    python3 faults_test.py FOLDER_OF_PROGRAMS
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

PROGRAMS = pathlib.Path(sys.argv.pop(1))
ALGORITHMS = {"shm": ["direct", "ring"], "gloo": ["ring"]}
COLLECTIVES = ["allreduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Job:
    def __init__(self, engine, collective, algorithm, deadline, size=3, per_host=0):
        variables = dict(os.environ, WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1",
                         MASTER_PORT=str(free_port()), PACELINE_JOB=f"faults-{os.getpid()}-{time.monotonic_ns()}")
        words = [PROGRAMS / "fault_rank", engine, collective, algorithm, str(deadline), str(per_host)]
        self.ranks = [subprocess.Popen(words, env=dict(variables, RANK=str(rank), LOCAL_RANK=str(rank)), stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True) for rank in range(size)]
        for rank in self.ranks:
            line = rank.stdout.readline()
            if line.strip() != "ready":
                self.end()
                raise AssertionError(f"a rank did not start: {line}")

    def end(self):
        for rank in self.ranks:
            if rank.poll() is None:
                rank.send_signal(signal.SIGCONT)
                rank.kill()
            rank.communicate()


def engines_here():
    listed = subprocess.run([PROGRAMS / "paceline", "list", "engines"], capture_output=True, text=True, check=False).stdout
    return [engine for engine in ALGORITHMS if re.search(rf"\b{engine}\b", listed)]


class Faults(unittest.TestCase):
    def others_notice(self, how, within, deadline, cases):
        for engine, collective, algorithm in cases:
            with self.subTest(engine=engine, collective=collective, algorithm=algorithm):
                job = Job(engine, collective, algorithm, deadline, per_host=1 if engine == "gloo" else 0)
                try:
                    job.ranks[1].send_signal(how)
                    began = time.monotonic()
                    for rank in (0, 2):
                        output, _ = job.ranks[rank].communicate(timeout=within + 10)
                        self.assertEqual(job.ranks[rank].returncode, 7, output)
                        # Over TCP rank 2 may see first that rank 0 went, which had noticed before.
                        gone = "[01]" if engine == "gloo" and rank == 2 else "1"
                        self.assertRegex(output, rf"peer {gone} \w+ \d+ .*rank {gone}")
                    self.assertLess(time.monotonic() - began, within)
                finally:
                    job.end()

    def test_a_killed_rank(self):
        cases = [("shm", collective, "direct") for collective in COLLECTIVES] + [("shm", "allreduce", "ring"), ("gloo", "allreduce", "ring")]
        self.others_notice(signal.SIGKILL, 5, 30, [case for case in cases if case[0] in engines_here()])

    def test_a_stopped_rank(self):
        cases = [(engine, "allreduce", algorithm) for engine in engines_here() for algorithm in ALGORITHMS[engine]]
        self.others_notice(signal.SIGSTOP, 8, 1, cases)

    def test_nothing_is_left_behind(self):
        before = set(os.listdir("/dev/shm"))
        job = Job("shm", "allreduce", "direct", 30)
        for rank in job.ranks:
            rank.kill()
        job.end()
        self.assertEqual(set(os.listdir("/dev/shm")) - before, set())


if __name__ == "__main__":
    unittest.main()
