"""Processes that train on a GPU, over NCCL or sharing it. One GPU is enough: NCCL takes ranks with different NCCL_HOSTID for ranks of
different hosts."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import unittest

from support import BINARY, CliTest, SMALL

STRATEGIES = [["strategy.name=allreduce"], ["strategy.name=allreduce", "strategy.batch_norm=sync"], ["strategy.name=local_sgd"],
              ["strategy.name=easgd"], ["strategy.name=diloco", "strategy.period=3"], ["strategy.name=stale_sync"]]


def own_address():
    """Of this host, other than loopback; None where it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            return probe.getsockname()[0]
        except OSError:
            return None


ON_GPU = [*[word for word in SMALL if not word.startswith("train.device")], "train.device=cuda"]


class SharedGpu(CliTest):
    """More ranks than GPUs."""

    def setUp(self):
        super().setUp()
        devices = self.json_of("doctor")["devices"]
        if devices == ["cpu"]:
            self.skipTest("no GPU here")
        self.ranks = len(devices)  # the CPU is one of them

    def launched(self, *words, ranks=None):
        done = self.run_paceline("run", "--no-prefix", "-np", str(ranks or self.ranks), "--only-rank-output", "0", "--", "train", *ON_GPU, *words,
                                 "--quiet", "--json")
        return json.loads(done.stdout)

    def test_processes_have_the_bits_of_threads(self):
        ways = [*STRATEGIES, ["strategy.name=gossip"], ["strategy.name=sgp"], ["strategy.name=allreduce", "parallel.zero=1"], ["strategy.name=allreduce", "parallel.zero=2"],
                ["parallel.tensor=2"], ["parallel.pipeline=2", "model.hidden=[16,16]"]]
        for words in ways:
            with self.subTest(words=words):
                threads = self.json_of("train", *ON_GPU, *words, "--workers", str(self.ranks), "--quiet")
                processes = self.launched(*words)
                self.assertEqual(processes["state_hash"], threads["state_hash"])

    def test_recorded_evaluations(self):
        """Of whole batches and a shorter last one: loss and accuracy are those of passes that are not recorded, to the bit."""
        for words in [["model.network=lenet5", "data.shape=[1,28,28]"], ["model.network=resnet18", "data.shape=[3,32,32]", "train.precision=bf16"]]:
            with self.subTest(words=words):
                run = ["train", *ON_GPU, *words, "data.residency=device", "data.name=shapes", "data.batch=16", "data.train_samples=64",
                       "data.test_samples=150", "train.epochs=3", "--quiet"]
                recorded, plain = (self.json_of(*run, f"train.record_steps={how}") for how in ["true", "false"])
                self.assertEqual(recorded["state_hash"], plain["state_hash"])
                self.assertEqual((recorded["test_loss"], recorded["test_accuracy"]), (plain["test_loss"], plain["test_accuracy"]))

    def test_compressed_gradients(self):
        """Kernels: processes have the bits of threads, and the loss is that of a CPU, whose codes these are."""
        for compression in ["fp16", "bf16", "int8", "dynamic8", "onebit", "sign", "ternary", "threshold", "topk", "dgc", "powersgd"]:
            with self.subTest(compression=compression):
                words = ["strategy.name=allreduce", f"comm.compression={compression}"]
                threads = self.json_of("train", *ON_GPU, *words, "--workers", str(self.ranks), "--quiet")
                self.assertEqual(self.launched(*words)["state_hash"], threads["state_hash"])
                on_cpu = self.json_of("train", *ON_GPU, "train.device=cpu", *words, "--workers", str(self.ranks), "--quiet")
                self.assertAlmostEqual(threads["test_loss"], on_cpu["test_loss"], delta=0.02 * on_cpu["test_loss"])

    def test_norms_of_tensors_in_pieces(self):
        """LARS and LAMB where each rank has a part of a tensor: the loss is that of one worker on the CPU."""
        for optimizer in [["optim.name=lars", "optim.rate=0.5", "optim.trust=0.01"], ["optim.name=lamb", "optim.rate=0.01", "optim.clip_norm=1"]]:
            words = [*optimizer, "optim.weight_decay=0.01", "model.hidden=[16,16]"]
            on_cpu = self.json_of("train", *ON_GPU, "train.device=cpu", *words, "--quiet")
            for way in [["--workers", "2", "parallel.zero=1"], ["--workers", "2", "parallel.zero=2"], ["--workers", "2", "parallel.zero=3"],
                        ["--mesh", "tensor=2"], ["--mesh", "data=2,tensor=2", "parallel.zero=2"], ["--mesh", "data=2,pipeline=2", "parallel.zero=1"]]:
                with self.subTest(optimizer=optimizer, way=way):
                    on_gpu = self.json_of("train", *ON_GPU, *words, *way, "--quiet")
                    self.assertAlmostEqual(on_gpu["test_loss"], on_cpu["test_loss"], delta=1e-3 * on_cpu["test_loss"])

    def test_gradients_under_way_are_resumed(self):
        words = ["strategy.name=stale_sync", "strategy.staleness=2"]
        through = self.launched(*words, "train.name=through")
        self.launched(*words, "train.name=half", "train.steps=5")
        resumed = self.run_paceline("run", "--no-prefix", "-np", str(self.ranks), "--only-rank-output", "0", "--", "train", "--resume",
                                    "runs/half", "train.steps=0", "--quiet", "--json")
        self.assertEqual(json.loads(resumed.stdout)["state_hash"], through["state_hash"])

    def test_the_gpu_may_be_named(self):
        self.assertEqual(self.launched("train.device=cuda:0")["workers"], self.ranks)

    def has_trained(self):
        return any('"step"' in path.read_text() for path in self.folder.glob("runs/*/metrics.jsonl"))

    def test_a_killed_rank_ends_the_others(self):
        job = self.start("run", "-np", str(self.ranks), "--", "train", *ON_GPU, "train.epochs=100000", "train.checkpoints=false", "--quiet",
                         start_new_session=True)
        self.addCleanup(lambda: job.poll() is None and os.killpg(job.pid, signal.SIGKILL))
        until = time.monotonic() + 60
        while not self.has_trained() and time.monotonic() < until and job.poll() is None:
            time.sleep(0.1)
        self.assertTrue(self.has_trained(), "no step within a minute")
        listed = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(job.pid)], capture_output=True, text=True, check=True).stdout
        victims = [int(line.split()[0]) for line in listed.splitlines() if " run " not in line]
        self.assertEqual(len(victims), self.ranks, listed)
        os.kill(next(pid for pid in victims if b"RANK=1" in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")), signal.SIGKILL)
        _, said = job.communicate(timeout=60)
        self.assertNotEqual(job.returncode, 0)
        self.assertIn("rank 1", said)


class Nccl(CliTest):
    words = ON_GPU

    def setUp(self):
        super().setUp()
        known = self.json_of("doctor")
        if "nccl" not in known["engines"] or known["devices"] == ["cpu"]:
            self.skipTest("no GPU here, or no NCCL in this build")
        self.address = own_address()
        if not self.address:
            self.skipTest("this host has no address, so ranks cannot pass for those of two")

    def ranks(self, *words):
        """What worker 0 of two says."""
        with socket.socket() as probe:
            probe.bind((self.address, 0))
            port = probe.getsockname()[1]
        processes = []
        for rank in range(2):
            variables = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "GROUP_RANK": rank, "MASTER_ADDR": self.address,
                         "MASTER_PORT": port, "NCCL_HOSTID": f"host{rank}", "PACELINE_JOB": f"gpu_test of {os.getpid()} at {port}"}
            environment = self.environment | {key: str(value) for key, value in variables.items()}
            processes.append(subprocess.Popen([BINARY, "train", *self.words, *words, "--quiet", "--json"], cwd=self.folder, env=environment,
                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        said = [process.communicate(timeout=self.deadline_s) for process in processes]
        for process, (output, problems) in zip(processes, said):
            self.assertEqual(process.returncode, 0, f"{words}\n{output}\n{problems}")
        return json.loads(said[0][0])

    def test_ranks_train_as_threads_do(self):
        for words in STRATEGIES:
            with self.subTest(words=words):
                threads = self.json_of("train", *self.words, *words, "--workers", "2", "--quiet")
                ranks = self.ranks(*words)
                self.assertEqual((ranks["workers"], ranks["steps"], ranks["samples"]), (2, threads["steps"], threads["samples"]))
                self.assertAlmostEqual(ranks["test_loss"], threads["test_loss"], delta=1e-3)

    def test_a_run_repeats_and_resumes(self):
        through = self.ranks("train.name=through", "comm.engine=nccl")
        self.assertEqual(self.ranks("train.name=again")["state_hash"], through["state_hash"])
        self.ranks("train.name=half", "train.steps=5")
        self.words = ["--resume", "runs/half", "train.steps=0"]
        self.assertEqual(self.ranks()["state_hash"], through["state_hash"])


if __name__ == "__main__":
    unittest.main()
