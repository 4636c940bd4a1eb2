#!/usr/bin/env python3
"""Strangers, and members that turned against their job: the victim's memory, threads and descriptors stay bounded, and its result is that
of a job which nobody disturbed. All of it on this host.

    python3 hostile_test.py FOLDER_OF_PROGRAMS [unittest's own arguments]
"""

import itertools
import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile
import time
import unittest

from support import (DESCRIPTORS, MEMORY_MB, SANITIZE, THREADS, Attacker, Victim, Watch, children, environment, free_port, make_certificates, process_ended,
                     store_name, usage, wait_for_port)

PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else sys.exit(f"usage: {sys.argv[0]} FOLDER_OF_PROGRAMS")
PACELINE = PROGRAMS / "paceline"

# Attacks without the key, or within the handshake; the victim hangs up on all of them.
STRANGERS = ["random", "client_hello", "half_hello", "http2", "lengths", "slow", "half_open", "replay", "dies"]
# Beside these a member of the job must still get in.
FLOODS = ["silent", "churn"]


class Attacked(unittest.TestCase):
    """Attacks one process, of whatever kind."""

    def attack(self, victim, attacker, name, beside=(), rounds_of=None, **more):
        """What the attack found out. `beside`: other attacks at the same time."""
        with self.subTest(attack=name, target=attacker.words[1].split(":")[0]):
            before = rounds_of.rounds() if rounds_of else 0
            with Watch(victim) as watch:
                others = [attacker.start(name, **more), *(attacker.start(other) for other in beside)]
                facts, *of_others = [attacker.facts_of(other) for other in others]
            if os.environ.get("PACELINE_HOSTILE_VERBOSE"):
                print(f"{attacker.words[2]:<8}{name:<18}{watch.growth()}  {facts} {of_others or ''}", file=sys.stderr)
            growth = watch.growth()
            self.assertLess(growth["memory_mb"], MEMORY_MB, (growth, facts))
            self.assertLess(growth["threads"], THREADS, (growth, facts))
            self.assertLess(growth["descriptors"], DESCRIPTORS, (growth, facts))
            for other in of_others:
                self.assertEqual(other["entered"], other["opened"], "a member of the job does not get in")
            if "refused" in facts:
                self.assertEqual(facts["refused"], facts["opened"], facts)
            self.assertFalse(facts.get("client_fooled"), facts)
            self.let_go(victim, watch.before[2])
            self.assertTrue(rounds_of is None or rounds_of.goes_on(before), "the job stands still")
            return facts

    def let_go(self, victim, descriptors):
        """Nothing of an attack that is over stays behind."""
        deadline = time.monotonic() + 30
        while usage(victim)[2] > descriptors + 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertLessEqual(usage(victim)[2], descriptors + 4)

    def refuse_wrong_key(self, victim, attacker):
        """Before any other attack: of refusals the log has one line a second."""
        facts = self.attack(victim.pid, attacker, "wrong_key")
        if facts:
            self.assertLess(facts["quickest"], 1)
            self.assertTrue(victim.said(facts["first"]), (facts, victim.lines))

    def attack_as_stranger(self, victim, attacker, rounds_of, skipped=()):
        self.refuse_wrong_key(victim, attacker)
        for name in STRANGERS:
            if name not in skipped:
                self.attack(victim.pid, attacker, name, rounds_of=rounds_of)
        for name in FLOODS:
            self.attack(victim.pid, attacker, name, beside=["guest"], rounds_of=rounds_of)


class Store(Attacked):
    """Two ranks and the attacker, who is the third."""

    def start(self, where):
        key = secrets.token_hex(16)
        ranks = []
        for rank in (0, 1):
            ranks.append(Victim(PROGRAMS / "store_victim", rank, where, key))
            self.addCleanup(ranks[-1].kill)
        return key, ranks

    def begin(self, attacker, ranks):
        self.assertTrue(attacker.run("come")["joined"])
        for rank in ranks:
            self.assertTrue(rank.hear()["ready"])

    def attack_as_member(self, victim, attacker, rounds_of):
        for name in ("members", "hellos", "impostors"):
            self.attack(victim.pid, attacker, name, rounds_of=rounds_of)
        facts = self.attack(victim.pid, attacker, "rank", rounds_of=rounds_of)
        if facts:
            self.assertGreater(facts["too_many"], 0, "there is no limit to a rank's connections")
            self.assertLess(facts["asked"], 400, "whoever does not read its answers may ask on")

    def finish(self, ranks):
        serving, asking = ranks[0], ranks[1]
        asked = asking.end()
        served = serving.end()
        self.assertGreater(asked["rounds"], 0)
        self.assertEqual(asked["count"], str(asked["rounds"]))
        self.assertEqual((served["count"], served["cell"]), (asked["count"], asked["cell"]))

    def test_over_tcp(self):
        port = free_port()
        key, ranks = self.start(f"tcp:{port}")
        attacker = Attacker(PROGRAMS / "attacker", f"tcp:127.0.0.1:{port}", "store", key)
        self.begin(attacker, ranks)
        self.attack_as_stranger(ranks[0], attacker, ranks[1])
        self.attack_as_member(ranks[0], attacker, ranks[1])
        self.finish(ranks)

    def test_on_one_host(self):
        key, ranks = self.start("unix")
        name = None
        deadline = time.monotonic() + 60
        while name is None and time.monotonic() < deadline:
            name = store_name(ranks[0].pid)
        self.assertIsNotNone(name, "rank 0 serves no store")
        self.assertNotIn(key, name)
        attacker = Attacker(PROGRAMS / "attacker", f"unix:{name}", "store", key)
        self.begin(attacker, ranks)
        self.attack_as_stranger(ranks[0], attacker, ranks[1], skipped=["half_open"])  # nothing vanishes within a host
        self.attack_as_member(ranks[0], attacker, ranks[1])
        facts = self.attack(ranks[0].pid, attacker, "user", rounds_of=ranks[1])
        self.finish(ranks)
        if facts and "skipped" in facts:
            self.skipTest(facts["skipped"])


class Server(Attacked):
    """A parameter server and its worker."""

    MEMBERS = ["connections", "streams_few", "streams_many", "heads", "messages", "incomplete_beats", "incomplete_joins", "one_stream",
               "dying_joins"]

    def start(self, purpose, *folder, **more):
        """Victim, attacker, and the words with which a further worker joins."""
        key = secrets.token_hex(16)
        victim = Victim(PROGRAMS / "server_victim", key, *folder, **more)
        self.addCleanup(victim.kill)
        try:
            address = victim.hear()["address"]
        except AssertionError:
            if victim.process.returncode == 77:
                self.skipTest("this build has no gRPC")
            raise
        self.assertTrue(victim.hear()["ready"])
        attacker = Attacker(PROGRAMS / "attacker", f"tcp:{address}", purpose, key)
        return victim, attacker, [PROGRAMS / "server_victim", key, *folder, address]

    def certificates(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        if not make_certificates(folder.name):
            self.skipTest("openssl is not installed")
        return folder.name

    def finish(self, victim):
        end = victim.end()
        self.assertTrue(end["same"])
        self.assertEqual(end["updates"], end["rounds"])
        self.assertGreater(end["rounds"], 0)

    def test_with_tls(self):
        victim, attacker, worker = self.start("servers_tls", self.certificates())
        self.attack_as_stranger(victim, attacker, victim)
        for name in ("connections", "proved"):
            self.attack(victim.pid, attacker, name, rounds_of=victim)
        self.assertTrue(victim.said("TLS"), victim.lines)
        self.join(worker)
        self.finish(victim)

    def test_tls_that_does_not_fit(self):
        """Each side says so: the worker at once, the server with the worker's address."""
        folder = self.certificates()
        victim, attacker, (program, key, _, address) = self.start("servers_tls", folder)
        with tempfile.TemporaryDirectory() as strange:
            for name in ("worker.pem", "worker.key"):
                os.symlink(os.path.join(folder, name.replace("worker", "stranger")), os.path.join(strange, name))
            os.symlink(os.path.join(folder, "ca.pem"), os.path.join(strange, "ca.pem"))
            for certificates in (strange, ""):
                refused = subprocess.run([program, key, certificates, address], capture_output=True, text=True, env=environment(), timeout=60)
                self.assertEqual(refused.returncode, 1, refused)
                self.assertIn("TLS", refused.stderr)
                self.assertIn(address, refused.stderr)
                self.assertEqual(len(refused.stderr.splitlines()), 1, refused.stderr)
        self.finish(victim)
        said = [line for line in victim.lines if "TLS" in line and "refused a connection from 127.0.0.1:" in line]
        self.assertEqual(len(said), 2, victim.lines)

    def test_few_descriptors(self):
        """As many as shells allow by default, and floods that would take them all: afterwards a worker joins as before."""
        for folder, purpose in ((self.certificates(), "servers_tls"), ("", "servers")):
            victim, attacker, worker = self.start(purpose, folder, descriptors=1024)
            for name in ("silent", "client_hello"):
                self.attack(victim.pid, attacker, name, beside=["guest"], rounds_of=victim, count=1500)
            self.join(worker)
            self.finish(victim)

    def join(self, worker):
        joined = subprocess.run(worker, capture_output=True, text=True, env=environment(), timeout=120)
        self.assertEqual(joined.returncode, 0, joined.stderr)

    def test_a_parameter_server(self):
        victim, attacker, *_ = self.start("servers")
        self.attack_as_stranger(victim, attacker, victim)
        for name in self.MEMBERS:
            self.attack(victim.pid, attacker, name, rounds_of=victim)
        facts = self.attack(victim.pid, attacker, "other_model", rounds_of=victim)
        if facts:
            self.assertIn("other.weight", facts["why"])
        self.finish(victim)


@unittest.skipIf(SANITIZE, "a job under a sanitizer takes minutes; its parts are the victims above")
class Jobs(Attacked):
    """Real jobs, attacked from their beginning to their end, against the same jobs left alone."""

    ASYNCHRONOUS = ["--servers", "1", "--workers", "2", "--", "train", "strategy.name=asgd", "train.epochs=5"]
    SYNCHRONOUS = ["-np", "2", "--", "train", "train.epochs=3"]
    DATA = ["data.batch=32", "data.train_samples=3000", "data.test_samples=1000", "train.threads=1", "train.device=cpu", "--json"]

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def start(self, words):
        job = subprocess.Popen([PACELINE, "run", "--only-rank-output", "0", *words, *self.DATA, "train.runs=" + self.folder.name],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        self.addCleanup(job.kill)
        return job

    def result_of(self, job):
        out, err = job.communicate(timeout=400)
        if "built without gRPC" in err:
            self.skipTest("this build has no gRPC")
        self.assertEqual(job.returncode, 0, err[-3000:])
        return json.loads(out), err

    def first_process(self, job, variable):
        """Pid and variables of rank 0 or server 0, once it serves."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and job.poll() is None:
            for pid, variables in children(job.pid):
                if variables.get(variable) == "0" and (variable == "PACELINE_SERVER" or store_name(pid)):
                    return pid, variables
            time.sleep(0.05)
        self.fail(f"nobody serves as {variable}=0: {self.result_of(job)[1][-2000:]}")

    def attack_until_end(self, job, victim, attacker, names):
        """In turn, until the job has ended; returns how many attacks were over by then."""
        watch, done = Watch(victim), 0
        with watch:
            for name in itertools.cycle(names):
                process = attacker.start(name, time_s=2)
                self.addCleanup(process.kill)
                out, err = process.communicate(timeout=120)
                # One that is about to end hangs up before it is gone.
                until = time.monotonic() + (20 if process.returncode != 0 else 0)
                while not process_ended(victim) and time.monotonic() < until:
                    time.sleep(0.02)
                if process_ended(victim):
                    break
                self.assertEqual(process.returncode, 0, (name, err))
                done += 1
        if os.environ.get("PACELINE_HOSTILE_VERBOSE"):
            print(f"{done} attacks on a job: {watch.growth()}", file=sys.stderr)
        self.assertLess(watch.growth()["threads"], THREADS + 32, watch.growth())  # the job starts threads of its own meanwhile
        self.assertLess(watch.growth()["descriptors"], DESCRIPTORS + 64, watch.growth())
        return done

    def join_uninvited(self, address, key=None):
        """`paceline train --join`, as anybody can type it."""
        variables = dict(environment(), **({"PACELINE_JOB": key} if key else {}))
        return subprocess.Popen([PACELINE, "train", "strategy.name=asgd", *self.DATA, "--join", address], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=variables, cwd=self.folder.name)

    def test_asynchronous(self):
        alone, _ = self.result_of(self.start(self.ASYNCHRONOUS))
        job = self.start(self.ASYNCHRONOUS)
        server, variables = self.first_process(job, "PACELINE_SERVER")
        address, key = variables["PACELINE_SERVERS"], variables["PACELINE_JOB"]
        strangers = [self.join_uninvited(address), self.join_uninvited(address, secrets.token_hex(16))]
        attacker = Attacker(PROGRAMS / "attacker", f"tcp:{address}", "servers", key)
        wait_for_port(address)
        done = self.attack_until_end(job, server, attacker, ["wrong_key", "silent", "http2", "heads", "streams_few", "churn", "random"])
        disturbed, err = self.result_of(job)
        self.assertGreater(done, 0)
        for stranger in strangers:
            self.assertEqual(stranger.wait(timeout=120), 2)
            said = stranger.communicate()[1]
            self.assertIn("key", said)
            self.assertEqual(len(said.splitlines()), 1, said)
        self.assertRegex(err, r"refused a connection from 127\.0\.0\.1:\d+")
        for fact in ("workers", "steps", "samples"):
            self.assertEqual(disturbed[fact], alone[fact])
        for fact in ("updates", "gradients", "dropped", "refused"):
            self.assertEqual(disturbed["server"][fact], alone["server"][fact])
        self.assertGreater(disturbed["test_accuracy"], alone["test_accuracy"] - 0.15)

    def test_synchronous(self):
        alone, _ = self.result_of(self.start(self.SYNCHRONOUS))
        job = self.start(self.SYNCHRONOUS)
        rank, variables = self.first_process(job, "RANK")
        attacker = Attacker(PROGRAMS / "attacker", f"unix:{store_name(rank)}", "store", variables["PACELINE_JOB"])
        done = self.attack_until_end(job, rank, attacker, ["wrong_key", "silent", "http2", "members", "hellos", "churn", "random"])
        disturbed, err = self.result_of(job)
        self.assertGreater(done, 0)
        self.assertIn("refused a connection from pid", err)
        for fact in ("workers", "steps", "samples", "state_hash", "parameters_hash"):
            self.assertEqual(disturbed[fact], alone[fact])


if __name__ == "__main__":
    unittest.main()
