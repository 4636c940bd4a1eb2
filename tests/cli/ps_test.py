#!/usr/bin/env python3
"""The parameter server as scripts meet it: processes that die and join, ranks of MPI."""
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PACELINE = os.path.abspath(sys.argv.pop(1))
RECIPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "recipes")

# Small steps, and enough of them that every run learns as well to within 0.03, on however busy a machine. Where they are larger, or end
# while much is left to learn, chance alone takes some runs 0.1 below others.
ASGD = ["train", "strategy.name=asgd", "data.batch=32", "data.train_samples=4000", "data.test_samples=1000", "train.epochs=6",
        "train.threads=1", "--json"]


def run(*words, **options):
    return subprocess.run([PACELINE, *words], capture_output=True, text=True, timeout=240, **options)


class Processes(unittest.TestCase):
    """Two servers and four workers over gRPC."""

    WORDS = ASGD

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    quiet = None  # the run that nothing disturbs, once for all tests

    def train(self, disturb=None, more=()):
        words = [*self.WORDS, *more, "train.runs=" + self.folder.name]
        job = subprocess.Popen([PACELINE, "run", "--servers", "2", "--workers", "4", "--max-restarts", "1", "--only-rank-output", "0", "--",
                                *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.kill)
        if disturb:
            disturb(job, words)
        out, err = job.communicate(timeout=200)
        if "built without gRPC" in err or "libgrpc" in err:
            self.skipTest("this build has no gRPC")
        self.assertEqual(job.returncode, 0, err[-3000:])
        return json.loads(out), err

    @staticmethod
    def children(job):
        """(pid, environment) of the job's processes."""
        for pid in os.listdir("/proc"):
            try:
                with open(f"/proc/{pid}/stat") as stat:
                    if int(stat.read().rsplit(")", 1)[1].split()[1]) != job.pid:
                        continue
                with open(f"/proc/{pid}/environ") as environment:
                    yield int(pid), dict(e.split("=", 1) for e in environment.read().split("\0") if "=" in e)
            except (OSError, ValueError, IndexError):
                continue

    def undisturbed(self):
        if Processes.quiet is None:
            Processes.quiet, _ = self.train()
            self.assertGreater(self.quiet["test_accuracy"], 0.6)
            self.assertEqual(self.quiet["workers"], 4)
        return self.quiet

    def find(self, job, variable, number):
        """Pid of a worker or server, and the servers' addresses."""
        deadline = time.time() + 60
        while time.time() < deadline:
            for pid, environment in self.children(job):
                if environment.get(variable) == number:
                    return pid, environment["PACELINE_SERVERS"]
            time.sleep(0.2)
        self.fail(f"nobody was started as {variable}={number}")

    def kept(self, pattern):
        """Waits until the run has kept something."""
        deadline = time.time() + 60
        while time.time() < deadline and not glob.glob(os.path.join(self.folder.name, "*", pattern)):
            time.sleep(0.05)

    def check_against_undisturbed(self, disturbed):
        quiet = self.undisturbed()
        self.assertEqual(disturbed["samples"], quiet["samples"])
        self.assertGreater(disturbed["test_accuracy"], quiet["test_accuracy"] - 0.08)

    def test_a_server_dies_and_goes_on_from_its_snapshot(self):
        def disturb(job, _):
            self.kept("servers/server-1.safetensors")
            os.kill(self.find(job, "PACELINE_SERVER", "1")[0], signal.SIGKILL)

        disturbed, err = self.train(disturb, ["ps.snapshot_s=0.5"])
        self.assertRegex(err, r"server 1 was restarted and resumes from its snapshot of .* s ago, version [1-9]\d*; later updates")
        self.assertRegex(err, r"server 1 at .* is back")
        self.check_against_undisturbed(disturbed)

    def test_the_first_server_dies_and_goes_on_from_its_checkpoint(self):
        def disturb(job, _):
            self.kept("checkpoints/step-*/model.safetensors.index.json")
            os.kill(self.find(job, "PACELINE_SERVER", "0")[0], signal.SIGKILL)

        disturbed, err = self.train(disturb, ["ps.snapshot_s=0.5", "train.checkpoint_share=1"])
        self.assertRegex(err, r"server 0 was restarted and resumes from the run's last checkpoint, version [1-9]\d*; later updates")
        self.assertEqual(len(os.listdir(self.folder.name)), 1)  # one run, one folder
        self.check_against_undisturbed(disturbed)

    def written(self, server):
        """Bytes of a server's journals, which grow with every push."""
        sizes = []
        for name in glob.glob(os.path.join(self.folder.name, "*", "servers", f"server-{server}.journal-*")):
            try:
                sizes.append(os.path.getsize(name))
            except OSError:  # forgotten meanwhile
                continue
        return sum(sizes)

    def exactly_once(self, *words, servers, kills):
        """A run of 400 minibatches whose servers are killed; kills: shares of the run, and who is then killed. Updates and gradients of each
        server, and what was said."""
        words = ["train", "model.network=mlp", "model.hidden=[16]", "data.shape=[1,8,8]", "data.batch=16", "data.train_samples=1600",
                 "data.test_samples=100", "train.epochs=2", "train.threads=1", "optim.momentum=0", "ps.replica=true",
                 "ps.snapshot_s=1000", "--json", "train.runs=" + self.folder.name, *words]
        job = subprocess.Popen([PACELINE, "run", "--servers", str(servers), "--workers", "2", "--max-restarts", "9", "--only-rank-output", "0",
                                "--", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.kill)
        for share, victims in kills:
            deadline = time.time() + 60  # a push is 4 bytes for each of 1210 parameters, and something more
            while time.time() < deadline and job.poll() is None and self.written(servers - 1) < share * 400 * 4840 / servers:
                time.sleep(0.002)
            for victim in victims:
                try:
                    os.kill(self.find(job, "PACELINE_SERVER", str(victim))[0], signal.SIGKILL)
                except ProcessLookupError:  # it ends, and its successor is on its way
                    pass
        out, err = job.communicate(timeout=100)
        if "built without gRPC" in err or "libgrpc" in err:
            self.skipTest("this build has no gRPC")
        self.assertEqual(job.returncode, 0, err[-3000:])
        summary = json.loads(out)
        self.assertEqual((summary["steps"], summary["samples"]), (400, 3200))
        counts = [[summary["server"][key]] for key in ("updates", "gradients")]
        for index in range(1, servers):
            for all_of_them, said in zip(counts, re.search(rf"server {index} made (\d+) updates with (\d+) gradients", err).groups()):
                all_of_them.append(int(said))
        return *counts, err

    def test_with_a_replica_every_minibatch_counts_once(self):
        chance = random.Random(5)
        kills = [(chance.uniform(0, 0.3), [0]), (chance.uniform(0.3, 0.6), [1, 1]), (chance.uniform(0.6, 0.9), [0, 1, 0])]
        updates, gradients, err = self.exactly_once("strategy.name=asgd", servers=2, kills=kills)
        self.assertEqual((updates, gradients), ([400, 400], [400, 400]), err[-3000:])
        for number in (0, 1):
            self.assertRegex(err, rf"server {number} was restarted and .* pushes were replayed from its journal,.* and none is lost")
        self.assertNotRegex(err, "updates .*lost")
        with open(glob.glob(os.path.join(self.folder.name, "*", "metrics.jsonl"))[0]) as lines:
            steps = [event["step"] for event in map(json.loads, lines) if event["event"] == "step"]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertEqual(steps[-1], 400)

    def test_with_a_replica_every_minibatch_counts_once_behind_a_barrier_too(self):
        # In one epoch: the journal of the first server begins anew with each.
        _, gradients, err = self.exactly_once("strategy.name=ssgd", "train.epochs=1", "data.train_samples=3200", servers=1,
                                              kills=[(0.2, [0]), (0.6, [0, 0])])
        self.assertEqual(gradients, [400], err[-3000:])

    def test_a_worker_dies_and_another_joins(self):
        joined = []

        def disturb(job, words):
            victim, servers = self.find(job, "PACELINE_WORKER", "2")
            time.sleep(3)  # it computes by then
            os.kill(victim, signal.SIGKILL)
            self.kept("servers/key")
            (key,) = glob.glob(os.path.join(self.folder.name, "*", "servers", "key"))
            self.assertEqual(os.stat(key).st_mode & 0o777, 0o600)
            other_key = os.path.join(self.folder.name, "other key")
            with open(os.open(other_key, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
                file.write("0" * 32)
            for uninvited, says in [((), "--key-file"), (("--key-file", other_key), "key")]:
                stranger = run(*words, "--workers", "4", "--join", servers, *uninvited)
                self.assertEqual(stranger.returncode, 2, stranger.stderr)
                self.assertIn(says, stranger.stderr)
            invited = ("--join", servers, "--key-file", key)
            stranger = run(*words, "data.batch=96", "--workers", "3", *invited)
            self.assertEqual(stranger.returncode, 2, stranger.stderr)
            self.assertIn("data.batch is 96 here and 32 there, parallel.workers is 3 here and 4 there", stranger.stderr)
            joined.append(subprocess.Popen([PACELINE, *words, "--workers", "4", *invited], stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, text=True))
            self.addCleanup(joined[0].kill)

        disturbed, err = self.train(disturb)
        _, comer = joined[0].communicate(timeout=60)
        self.assertIn("worker 2", err)  # who died is told
        self.assertRegex(err, r"refused a connection from 127\.0\.0\.1:\d+")
        finished = re.search(r"finished (\d+) minibatches", comer)
        self.assertTrue(finished and int(finished.group(1)) > 0, comer)
        self.check_against_undisturbed(disturbed)
        self.assertEqual(disturbed["server"]["updates"], disturbed["steps"])

    def small(self, workers, *words, servers=1):
        result = run("run", "--grace", "2", "--servers", str(servers), "--workers", str(workers), "--", "train", "model.network=mlp",
                     "model.hidden=[8]", "data.shape=[1,8,8]", "data.batch=24", "data.test_samples=24", "train.threads=1", "optim.momentum=0", "--json",
                     "train.runs=" + self.folder.name, *words)
        if "built without gRPC" in result.stderr or "libgrpc" in result.stderr:
            self.skipTest("this build has no gRPC")
        return result

    def test_whoever_waits_for_a_late_worker_is_told_its_number(self):
        late = self.small(3, "strategy.name=ssgd", "ps.deadline_s=1.5", "data.train_samples=240", "timing.slow_workers=[1]",
                          "timing.slow_factor=1000000")
        self.assertEqual(late.returncode, 1, late.stderr)
        for who in ("server 0", "worker [02]"):
            self.assertRegex(late.stderr, rf"\[{who}\] .*worker [02] waited 1\.5 s for worker 1 at version \d+\b.*ps\.deadline_s")

    def test_a_minibatch_may_take_longer_than_the_deadline_where_nobody_waits(self):
        # The worker may need some seconds to start on a busy machine, and server 0 gives it twice the deadline.
        slow = self.small(1, "strategy.name=asgd", "ps.deadline_s=4", "data.train_samples=24", "train.epochs=1",
                          "timing.pause_probability=1", "timing.pause_ms=10000")
        self.assertEqual(slow.returncode, 0, slow.stderr)
        self.assertIn("no worker finished a minibatch for 8.0 s (computing: 0)", slow.stderr)

    def test_told_to_stop_it_keeps_what_was_under_way(self):
        job = subprocess.Popen([PACELINE, "run", "--servers", "2", "--workers", "2", "--", *self.WORDS, "train.epochs=1000",
                                "train.checkpoint_every=20", "train.runs=" + self.folder.name], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.kill)
        self.kept("checkpoints/step-*/model.safetensors.index.json")
        job.terminate()
        _, err = job.communicate(timeout=100)
        if "built without gRPC" in err or "libgrpc" in err:
            self.skipTest("this build has no gRPC")
        self.assertEqual(job.returncode, 3, err[-3000:])
        said = re.search(r"paceline run --servers 2 --workers 2 -- train --resume (\S+)\n", err)
        self.assertTrue(said, err[-3000:])
        files = glob.glob(os.path.join(self.folder.name, "*", "checkpoints", "step-*", "model.safetensors.index.json"))
        step = max(int(re.search(r"step-(\d+)", name).group(1)) for name in files)
        resumed = run("run", "--servers", "2", "--workers", "2", "--only-rank-output", "0", "--", "train", "--resume", said.group(1),
                      f"train.steps={step + 20}", "--json")
        self.assertEqual(resumed.returncode, 0, resumed.stderr[-3000:])
        self.assertEqual(json.loads(resumed.stdout)["steps"], step + 20)
        self.assertEqual(json.loads(resumed.stdout)["server"]["gradients"], step + 20)

    def test_resumed_one_worker_ends_in_the_bits_of_a_run_in_one_piece(self):
        def ended(*words):
            result = run("run", "--servers", "2", "--workers", "1", "--only-rank-output", "0", "--", "train", *words, "--json")
            if "built without gRPC" in result.stderr or "libgrpc" in result.stderr:
                self.skipTest("this build has no gRPC")
            self.assertEqual(result.returncode, 0, result.stderr[-3000:])
            return json.loads(result.stdout)

        words = ["strategy.name=asgd", "model.network=mlp", "model.hidden=[16]", "data.shape=[1,8,8]", "data.batch=16", "data.train_samples=160",
                 "data.test_samples=40", "train.threads=1", "train.epochs=4", "comm.compression=topk", "train.runs=" + self.folder.name]
        whole = ended(*words, "train.steps=30")
        part = ended(*words, "train.steps=14", "train.name=part")
        self.assertEqual(part["steps"], 14)
        resumed = ended("--resume", os.path.join(self.folder.name, "part"), "train.steps=30")
        self.assertEqual((resumed["steps"], resumed["state_hash"]), (30, whole["state_hash"]))

    def test_servers_of_a_resumed_run_die_and_nothing_is_lost(self):
        for before, after in ((1, 1), (2, 1), (1, 2)):  # of other numbers, server 0 reads its own range of the same checkpoint twice
            with self.subTest(before=before, after=after):
                self.check_a_resumed_run(before, after, f"first-{before}-{after}")

    def check_a_resumed_run(self, before, after, name):
        first = self.small(2, "strategy.name=asgd", "data.train_samples=4800", "train.epochs=2", "train.steps=100", "train.name=" + name,
                           servers=before)
        self.assertEqual(first.returncode, 0, first.stderr[-3000:])
        job = subprocess.Popen([PACELINE, "run", "--servers", str(after), "--workers", "2", "--max-restarts", "9", "--only-rank-output", "0", "--",
                                "train", "--resume", os.path.join(self.folder.name, name), "train.steps=700", "ps.replica=true",
                                "ps.snapshot_s=1000", "train.checkpoint_share=0", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.kill)
        deadline = time.time() + 60  # a push is 4 bytes for each of 610 parameters, and something more
        begun = self.written(0)
        while time.time() < deadline and job.poll() is None and self.written(0) - begun < 100 * 2440 / after:
            time.sleep(0.002)
        os.kill(self.find(job, "PACELINE_SERVER", "0")[0], signal.SIGKILL)
        out, err = job.communicate(timeout=100)
        self.assertEqual(job.returncode, 0, err[-3000:])
        summary = json.loads(out)
        self.assertEqual((summary["steps"], summary["server"]["gradients"]), (700, 700), err[-3000:])
        self.assertRegex(err, "pushes were replayed from its journal,.* and none is lost")

    def test_needs_its_launcher(self):
        alone = run("train", "strategy.name=asgd", "ps.executor=processes", "--workers", "2", "train.runs=" + self.folder.name)
        self.assertEqual(alone.returncode, 2)
        self.assertIn("paceline run --servers", alone.stderr)


class Ranks(unittest.TestCase):
    """Servers and workers under mpirun."""

    WORDS = [*ASGD, "--quiet"]

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        if not shutil.which("mpirun"):
            self.skipTest("there is no mpirun here; install openmpi-bin")
        if "mpi" not in [row["key"] for row in json.loads(run("list", "engines", "--json").stdout)["engines"]]:
            self.skipTest("this build has no MPI")

    def ranks(self, count, *words):
        environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return subprocess.run(["mpirun", "--oversubscribe", "-np", str(count), PACELINE, *self.WORDS, "train.runs=" + self.folder.name,
                               "ps.executor=processes", "ps.transport=mpi", *words],
                              capture_output=True, text=True, timeout=240, env=environment)

    def train(self, count, *words):
        result = self.ranks(count, *words)
        self.assertEqual(result.returncode, 0, result.stderr[-3000:])
        return json.loads(result.stdout)

    def test_train_like_threads(self):
        result = run(*self.WORDS, "train.runs=" + self.folder.name, "ps.executor=threads", "--workers", "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        threads = json.loads(result.stdout)
        self.assertGreater(threads["test_accuracy"], 0.6)
        # Neighbours that count as hosts of their own send everything through MPI, the others through memory.
        for servers, words in [(1, []), (2, ["comm.per_host=1"])]:
            ranks = self.train(servers + 2, f"ps.servers={servers}", *words)
            self.assertEqual(ranks["samples"], threads["samples"])
            self.assertEqual(ranks["workers"], 2)
            self.assertGreater(ranks["test_accuracy"], threads["test_accuracy"] - 0.08, servers)

    def test_a_straggler_is_told_that_its_minibatch_is_cancelled(self):
        # Were the slow worker to finish its minibatches, it would get very few of them.
        ranks = self.train(3, "strategy.name=k_sync", "train.epochs=1", "timing.slow_workers=[1]", "timing.slow_factor=1000")
        self.assertEqual(ranks["samples"], 4000)
        self.assertGreater(ranks["server"]["dropped"], 5)

    def test_what_cannot_be_is_refused_before_it_starts(self):
        for words, says in [((), "mpirun -np 2"), (("--workers", "2"), "mpirun -np 3"), (("comm.engine=shm",), "comm.engine"),
                            (("--join", "h:1"), "--join"), (("ps.optimizer=worker", "strategy.name=dana"), "ps.optimizer=server")]:
            result = self.ranks(1 if "-np 2" in says else 2, *words)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(says, result.stderr)
        self.assertEqual(os.listdir(self.folder.name), [])


if __name__ == "__main__":
    unittest.main()
