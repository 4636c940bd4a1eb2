"""A rank of a mesh that is killed or stopped in the middle of a pipeline, of a tensor group, or while ZeRO gathers parameters and reduces
gradients: every other rank ends by itself within the recipe's deadline, and names it.

    python3 mesh_faults_test.py PACELINE
"""

import json
import os
import pathlib
import re
import signal
import sys
import unittest

from run_support import FAILED, RunTest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from processes import ranks_of  # noqa: E402

RANKS = 4
DEADLINE_S = 30  # of every operation
LOAD_S = 60  # what a busy machine may add to it
PIPELINE = ["parallel.pipeline=2", "parallel.tensor=2", "train.micro_batches=4"]
SHARDED_PIPELINE = ["parallel.data=2", "parallel.pipeline=2", "parallel.zero=2", "train.micro_batches=4", "strategy.bucket_mb=0.01"]
NETWORK = ["model.network=mlp", "model.hidden=[64, 64, 64]", "data.name=random", "data.shape=[1, 8, 8]", "data.classes=8", "data.batch=32",
           "data.train_samples=3200", "train.epochs=1000000", "train.device=cpu", "train.evaluate_every=0", "train.checkpoints=false",
           f"comm.deadline_s={DEADLINE_S}"]


class RankLost(RunTest):
    def lose(self, victim, how, mesh):
        """Runs a mesh, loses a rank in its steps, and tells what the others said, what the launcher says, and the ranks' processes. The
        launcher waits until the others have ended: what they do is their own."""
        errors = self.folder / "errors"
        within = DEADLINE_S + LOAD_S
        with errors.open("w") as file:
            job = self.start("-np", RANKS, "--grace", within, "--json", "--log-dir", self.folder / "logs", "--", "train", *NETWORK, *mesh,
                             "train.runs=runs", "train.name=run", stderr=file)
            metrics = self.folder / "runs" / "run" / "metrics.jsonl"
            self.wait_until(lambda: job.poll() is not None or (metrics.exists() and metrics.read_text().count("\n") > 20),
                            "no steps are made", within)
            self.assertIsNone(job.poll(), errors.read_text())
            processes = ranks_of(job.pid)
            self.assertEqual(set(processes), set(range(RANKS)))
            os.kill(processes[victim], how)
            self.assert_gone([pid for rank, pid in processes.items() if rank != victim], within)
            out, _ = job.communicate(timeout=2 * within + LOAD_S)
        return errors.read_text(), json.loads(out), processes

    def blamed_by(self, rank, text):
        """The rank that stands in the last error of `rank`; of a chain of ranks that wait for one another, its end. Where rank 0 was lost,
        the store that would tell the whole chain is lost with it, and the error says so behind its semicolon."""
        said = re.findall(rf"^\[{rank}\] error: (?!rank {rank}, operation)(.*)", text, re.M)
        self.assertTrue(said, f"rank {rank} says nothing:\n{text}")
        found = re.findall(r"(?:because of|itself waited for|;|^)\s?rank (\d+)", said[-1])
        self.assertTrue(found, said[-1])
        return int(found[-1])

    def assert_named(self, victim, how, *mesh):
        text, document, processes = self.lose(victim, how, mesh)
        codes = {rank["rank"]: rank["code"] for rank in document["ranks"]}
        for rank in set(range(RANKS)) - {victim}:
            self.assertEqual(codes[rank], FAILED, f"rank {rank} was ended by another, {mesh}:\n{text}")
            self.assertEqual(self.blamed_by(rank, text), victim, f"rank {rank}, {mesh}:\n{text}")
        self.assertEqual(document["failed_first"]["rank"], victim, document)
        self.assert_gone(list(processes.values()))

    def test_killed_on_the_first_stage(self):
        self.assert_named(1, signal.SIGKILL, *PIPELINE, "parallel.schedule=1f1b")

    def test_killed_on_the_last_stage(self):
        self.assert_named(2, signal.SIGKILL, *PIPELINE, "parallel.schedule=zero_bubble")

    def test_rank_0_killed(self):
        self.assert_named(0, signal.SIGKILL, *PIPELINE, "parallel.schedule=gpipe")

    def test_stopped(self):
        self.assert_named(3, signal.SIGSTOP, *PIPELINE, "parallel.schedule=interleaved_1f1b")

    def test_stopped_on_the_first_stage(self):
        self.assert_named(1, signal.SIGSTOP, *PIPELINE, "parallel.schedule=1f1b")

    def test_stopped_on_the_last_stage(self):
        self.assert_named(2, signal.SIGSTOP, *PIPELINE, "parallel.schedule=1f1b")

    def test_killed_in_a_tensor_group(self):
        self.assert_named(2, signal.SIGKILL, "parallel.tensor=4")

    def test_stopped_in_a_tensor_group(self):
        self.assert_named(1, signal.SIGSTOP, "parallel.data=2", "parallel.tensor=2")

    def test_killed_where_parameters_are_gathered(self):
        self.assert_named(3, signal.SIGKILL, "parallel.data=4", "parallel.zero=3")

    def test_stopped_where_parameters_are_gathered(self):
        self.assert_named(2, signal.SIGSTOP, "parallel.data=4", "parallel.zero=3")

    def test_killed_where_gradients_are_reduced_in_the_pass(self):
        self.assert_named(1, signal.SIGKILL, "parallel.data=4", "parallel.zero=2", "strategy.bucket_mb=0.01")

    def test_stopped_where_gradients_are_reduced_in_the_pass(self):
        self.assert_named(2, signal.SIGSTOP, "parallel.data=4", "parallel.zero=2", "strategy.bucket_mb=0.01")

    def test_killed_where_stages_reduce_gradients_in_the_pass(self):
        self.assert_named(3, signal.SIGKILL, *SHARDED_PIPELINE, "parallel.schedule=1f1b")

    def test_stopped_where_stages_reduce_gradients_in_the_pass(self):
        self.assert_named(1, signal.SIGSTOP, *SHARDED_PIPELINE, "parallel.schedule=zero_bubble")


if __name__ == "__main__":
    unittest.main()
