"""A rank that is killed, stopped or late: every other rank gets a PeerError in time, none hangs, none aborts, nothing is left behind.

    python3 faults_test.py FOLDER_OF_PROGRAMS
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAMS = pathlib.Path(sys.argv.pop(1))
ALGORITHMS = {"shm": ["direct", "ring"], "gloo": ["ring"]}
COLLECTIVES = ["allreduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce"]
SIZE = 4
SILENCE = 4  # seconds: the default of comm.silence_s
NOTICED = 15  # seconds: SILENCE and a moment, on a machine that does much else


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Job:
    """Processes with the variables of a launcher."""

    def __init__(self, engine, collective, algorithm, deadline, per_host=0, *more):
        variables = dict(os.environ, WORLD_SIZE=str(SIZE), LOCAL_WORLD_SIZE=str(SIZE), MASTER_ADDR="127.0.0.1",
                         MASTER_PORT=str(free_port()), PACELINE_JOB=f"faults-{os.getpid()}-{time.monotonic_ns()}")
        words = [PROGRAMS / "fault_rank", engine, collective, algorithm, str(deadline), str(per_host), *map(str, more)]
        self.ranks = [subprocess.Popen(words, env=dict(variables, RANK=str(rank), LOCAL_RANK=str(rank)), stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for rank in range(SIZE)]
        for rank in self.ranks:
            line = rank.stdout.readline()
            if not line.startswith("ready"):
                self.end()
                raise AssertionError(f"a rank did not start: {line}")

    def signal(self, rank, how):
        self.ranks[rank].send_signal(how)

    def answer(self, rank, timeout):
        """What a rank said, and its exit code."""
        output, _ = self.ranks[rank].communicate(timeout=timeout)
        return output, self.ranks[rank].returncode

    def end(self):
        for rank in self.ranks:
            if rank.poll() is None:
                rank.send_signal(signal.SIGCONT)
                rank.kill()
            rank.communicate()


class MpiJob:
    """The same under mpirun, told to leave the others the time to say what they saw."""

    def __init__(self, collective, algorithm, deadline, per_host, mapped=True):
        variables = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        # Who does not know its neighbours may be on another host, so that the ranks meet over TCP.
        forget = [] if mapped else ["env", "-u", "OMPI_COMM_WORLD_LOCAL_RANK", "-u", "OMPI_COMM_WORLD_LOCAL_SIZE"]
        words = ["mpirun", "--oversubscribe", "--enable-recovery", "--mca", "orte_abort_on_non_zero_status", "0", "-np", str(SIZE), *forget,
                 PROGRAMS / "fault_rank", "mpi", collective, algorithm, str(deadline), str(per_host)]
        self.mpirun = subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes, self.said = {}, {}
        while len(self.processes) < SIZE:
            line = self.mpirun.stdout.readline()
            if not line.startswith("ready"):
                self.mpirun.kill()
                raise AssertionError(f"a rank did not start: {line}{self.mpirun.communicate()[1]}")
            _, rank, process = line.split()
            self.processes[int(rank)] = int(process)

    def signal(self, rank, how):
        os.kill(self.processes[rank], how)

    def answer(self, rank):
        while rank not in self.said:
            line = self.mpirun.stdout.readline()
            if not line:
                raise AssertionError(f"rank {rank} said nothing")
            if found := re.match(r"rank (\d+): ", line):
                self.said[int(found[1])] = line
        return self.said[rank]

    def end(self):
        for rank in self.processes.keys() - self.said.keys():
            with contextlib.suppress(ProcessLookupError):
                self.signal(rank, signal.SIGKILL)
        self.mpirun.kill()  # it would wait for ranks that left without MPI_Finalize
        self.mpirun.communicate()


def engines_here():
    listed = subprocess.run([PROGRAMS / "paceline", "list", "engines"], capture_output=True, text=True, check=False).stdout
    return [engine for engine in [*ALGORITHMS, "mpi"] if re.search(rf"\b{engine}\b", listed)]


def here(cases):
    engines = engines_here()
    return [case for case in cases if case[0] in engines]


class Faults(unittest.TestCase):
    def others_notice(self, victim, how, within, deadline, cases, says):
        for engine, collective, algorithm, per_host in cases:
            with self.subTest(engine=engine, collective=collective, algorithm=algorithm, per_host=per_host):
                job = Job(engine, collective, algorithm, deadline, per_host)
                try:
                    time.sleep(0.6)  # ranks tell what they do a few times a second
                    job.signal(victim, how)
                    began = time.monotonic()
                    for rank in set(range(SIZE)) - {victim}:
                        output, code = job.answer(rank, within + 10)
                        self.assertEqual(code, 7, output)
                        self.assertRegex(output, rf"rank {rank}: peer {victim} \w+ \d+ .*{says}")
                    self.assertLess(time.monotonic() - began, within)
                finally:
                    job.end()

    def test_a_killed_rank(self):
        cases = [("shm", collective, "direct", 0) for collective in COLLECTIVES]
        cases += [("shm", "allreduce", "ring", 0), ("gloo", "allreduce", "ring", 1), ("gloo", "allreduce", "hierarchical", 2)]
        self.others_notice(1, signal.SIGKILL, NOTICED, 30, here(cases), "last known operation of rank 1")

    def test_rank_0_killed(self):
        cases = [("shm", "allreduce", "direct", 0), ("shm", "allreduce", "ring", 0), ("gloo", "allreduce", "ring", 1),
                 ("gloo", "allreduce", "hierarchical", 2)]
        self.others_notice(0, signal.SIGKILL, NOTICED, 30, here(cases), "rank 0")

    STOPPED = [(engine, "allreduce", algorithm, 1 if engine == "gloo" else 0) for engine in ALGORITHMS for algorithm in ALGORITHMS[engine]]

    def test_a_stopped_rank(self):
        """Its heartbeats stop: nobody waits for the deadline of the collective."""
        for victim, cases in ((1, self.STOPPED), (0, self.STOPPED[-1:])):
            # A rank may hear from one that has left already, rather than from the store.
            says = f"(no heartbeat|because of rank {victim}|waited for rank {victim})"
            self.others_notice(victim, signal.SIGSTOP, NOTICED, 120, here(cases), says)

    def test_a_stopped_rank_and_a_deadline_that_passes_before(self):
        self.others_notice(1, signal.SIGSTOP, NOTICED, 1, here(self.STOPPED[:1] + self.STOPPED[-1:]), "last known operation of rank 1")

    def test_rank_0_stopped_and_a_deadline_that_passes_before(self):
        self.others_notice(0, signal.SIGSTOP, NOTICED, 1, here(self.STOPPED[:1] + self.STOPPED[-1:]), "rank 0")

    def test_a_pause_of_two_seconds_passes(self):
        for engine, collective, algorithm, per_host in here(self.STOPPED[:1] + self.STOPPED[-1:]):
            for victim in (0, 2):
                with self.subTest(engine=engine, victim=victim):
                    job = Job(engine, collective, algorithm, 120, per_host)
                    try:
                        job.signal(victim, signal.SIGSTOP)
                        time.sleep(2)
                        job.signal(victim, signal.SIGCONT)
                        time.sleep(1)
                        self.assertEqual([rank.poll() for rank in job.ranks], [None] * SIZE)
                    finally:
                        job.end()

    def test_a_rank_that_computes_is_not_accused(self):
        """It computes for longer than anybody may be silent, and beats."""
        nobody, busy = -1, 2
        for late in ((), ("late",)):
            with self.subTest(late=late):
                job = Job("shm", "allreduce", "ring", 120, 0, nobody, busy, *late)
                try:
                    time.sleep(SILENCE + 1.5)
                    self.assertEqual([rank.poll() for rank in job.ranks], [None] * SIZE)
                    job.ranks[busy].stdin.close()  # it goes on
                    job.ranks[busy].stdin = None
                    time.sleep(1)
                    self.assertEqual([rank.poll() for rank in job.ranks], [None] * SIZE)
                finally:
                    job.end()

    def test_a_killed_rank_while_another_computes(self):
        """Who has begun the collective and computes on passes the news to those who wait for it; who has not, they do not wait for."""
        victim, busy = 1, 2
        cases = [("shm", "ring", 0, ()), ("shm", "ring", 0, ("late",)), ("gloo", "ring", 1, ()), ("gloo", "ring", 1, ("late",)),
                 ("gloo", "ring", 2, ()), ("gloo", "hierarchical", 2, ())]
        for engine, algorithm, per_host, late in here(cases):
            with self.subTest(engine=engine, algorithm=algorithm, per_host=per_host, late=late):
                job = Job(engine, "allreduce", algorithm, 30, per_host, victim, busy, *late)
                try:
                    job.signal(victim, signal.SIGKILL)
                    began = time.monotonic()
                    for rank in (0, 3, busy):
                        if rank == busy:
                            self.assertLess(time.monotonic() - began, NOTICED)
                        output, code = job.answer(rank, 40)  # which ends its input, too
                        self.assertEqual(code, 7, output)
                        self.assertRegex(output, rf"rank {rank}: peer {victim} allreduce \d+ ")
                finally:
                    job.end()

    def test_a_rank_that_comes_too_late(self):
        for engine, algorithm, per_host in (("shm", "direct", 0), ("shm", "ring", 0), ("gloo", "ring", 1)):
            if engine not in engines_here():
                continue
            with self.subTest(engine=engine, algorithm=algorithm, per_host=per_host):
                job = Job(engine, "allreduce", algorithm, 1, per_host)
                try:
                    job.signal(1, signal.SIGSTOP)
                    for rank in (0, 2, 3):
                        self.assertRegex(job.answer(rank, 20)[0], rf"rank {rank}: peer 1 ")
                    job.signal(1, signal.SIGCONT)
                    output, code = job.answer(1, 20)
                    self.assertEqual(code, 7, output)
                    # Over sockets its own deadline, which passed while it was stopped, may come before the news that it was given up.
                    too_late = "rank 1: peer 1 .*the others gave up on this rank: it came too late"
                    alone = "rank 1: peer 0 .*rank 0, which serves the store, does not answer"
                    self.assertRegex(output, f"{too_late}|{alone}" if engine == "gloo" else too_late)
                finally:
                    job.end()

    def test_a_rank_under_mpirun(self):
        if "mpi" not in engines_here() or not shutil.which("mpirun") or "Open MPI" not in subprocess.getoutput("mpirun --version"):
            self.skipTest("there is no Open MPI here")
        for how, deadline, mapped in ((signal.SIGSTOP, 2, True), (signal.SIGSTOP, 2, False), (signal.SIGKILL, 30, True)):
            with self.subTest(how=how, mapped=mapped):
                job = MpiJob("allreduce", "ring", deadline, per_host=1, mapped=mapped)
                try:
                    time.sleep(0.6)
                    job.signal(1, how)
                    began = time.monotonic()
                    answers = [job.answer(rank) for rank in (0, 2, 3)]
                    for rank, answer in zip((0, 2, 3), answers):
                        self.assertRegex(answer, rf"rank {rank}: peer 1 \w+ \d+ ")
                    # Who is late may find the store closed, where the others told what rank 1 did.
                    self.assertIn("last known operation of rank 1", "".join(answers))
                    self.assertLess(time.monotonic() - began, NOTICED)
                finally:
                    job.end()

    def test_nothing_is_left_behind(self):
        before = set(os.listdir("/dev/shm"))
        job = Job("shm", "allreduce", "direct", 30)
        for rank in range(SIZE):
            job.signal(rank, signal.SIGKILL)
        job.end()
        self.assertEqual(set(os.listdir("/dev/shm")) - before, set())


class UnderTheLauncher(unittest.TestCase):
    """The launcher's last line names the rank that the ranks name."""

    SIZE = 3

    def run_job(self, engine, victim, how):
        """The launcher's code, what it and the ranks said, and its document."""
        words = [PROGRAMS / "paceline", "run", "-np", str(self.SIZE), "--json", "--", PROGRAMS / "fault_rank", engine, "allreduce", "ring",
                 "120", "1" if engine == "gloo" else "0"]
        with tempfile.TemporaryFile("w+") as document:
            job = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=document, stderr=subprocess.PIPE, text=True)
            processes, lines = {}, []
            try:
                while len(processes) < self.SIZE:
                    lines.append(job.stderr.readline())
                    self.assertNotEqual(lines[-1], "", lines)
                    if found := re.search(r"ready (\d+) (\d+)", lines[-1]):
                        processes[int(found[1])] = int(found[2])
                time.sleep(0.6)
                began = time.monotonic()
                os.kill(processes[victim], how)
                text = "".join(lines) + job.communicate(timeout=NOTICED + 30)[1]
                self.assertLess(time.monotonic() - began, NOTICED)
            finally:
                if job.poll() is None:
                    job.kill()
                    job.communicate()
            document.seek(0)
            ending = json.load(document)
        self.assertNotIn("@paceline", text)
        self.assertEqual(ending["code"], job.returncode)
        self.assertEqual(ending["failed_first"], ending["ranks"][victim])
        self.assertIn(ending["why"], text.splitlines()[-1])
        self.assertIn(f"rank {victim} (pid {processes[victim]}, ", ending["why"])
        for rank in set(range(self.SIZE)) - {victim}:
            self.assertRegex(text, rf"rank {rank}: peer {victim} ")
        return ending

    def test_a_stopped_rank(self):
        for (engine,) in here([("shm",), ("gloo",)]):
            for victim in (2, 0):
                with self.subTest(engine=engine, victim=victim):
                    ending = self.run_job(engine, victim, signal.SIGSTOP)
                    self.assertEqual(ending["code"], 1)
                    self.assertIn("stopped: no heartbeat", ending["why"])

    def test_a_killed_rank(self):
        ending = self.run_job("shm", 1, signal.SIGKILL)
        self.assertEqual(ending["code"], 128 + signal.SIGKILL)
        self.assertIn("SIGKILL", ending["why"])


if __name__ == "__main__":
    unittest.main()
