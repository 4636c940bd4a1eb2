"""`paceline plan` and `paceline verify --table`: ranked plans that can be trained as they are, and tables of measured steps."""

import json
import os
import pathlib
import unittest

from support import SMALL as TINY
from support import BINARY, CliTest

SMALL = ["gpt", "model.layers=4", "model.width=64", "model.heads=4", "model.classes=100", "model.input=[32]"]
NAMES = ("# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor parallelism,data parallelism,"
         "pipeline parallelism,iteration time (ms)\n")


def cluster_with(bandwidth, kind="cpu"):
    return ('[cluster]\nname = "pair"\n[host]\ndevices = 2\nlink = "memory"\n'
            f'[device]\nname = "core"\nkind = "{kind}"\nflops = "10 Gflop/s (default)"\nmemory_bandwidth = "10 GB/s (default)"\n'
            f'memory = "4 GB (default)"\n[link.memory]\nbandwidth = "{bandwidth} (default)"\n')


class Plan(CliTest):
    def test_a_thousand_nodes(self):
        found = self.json_of("plan", "resnet50", "--cluster", "skylake", "--workers", "1000")
        self.assertEqual((found["workers"], found["batch"]), (1000, 32000))
        steps = [plan["step_s"] for plan in found["plans"]]
        self.assertEqual(steps, sorted(steps))
        for plan in found["plans"]:
            mesh = plan["mesh"]
            self.assertEqual(mesh["data"] * mesh["pipeline"] * mesh["tensor"], 1000)
            self.assertLessEqual(plan["step_low_s"], plan["step_s"])
            self.assertLessEqual(plan["step_s"], plan["step_high_s"])
            self.assertAlmostEqual(sum(plan["split_s"].values()), plan["step_s"], delta=1e-6 + plan["step_s"] * 1e-3)
            self.assertLessEqual(plan["memory_bytes"]["total"], 256e9)
        self.assertEqual(set(found["plans"][0]["doubled_step_s"]), {"processor", "memory bandwidth", "links"})
        names = {other["strategy"] for other in found["others"]} | {other["compression"] for other in found["others"]}
        self.assertLessEqual({"asgd", "local_sgd", "bf16", "topk"}, names)
        stale = next(other for other in found["others"] if other["strategy"] == "asgd")
        self.assertGreater(stale["staleness"], 100)
        shorter = {other["compression"] for other in found["others"] if "at most" in other["remark"]}
        self.assertEqual(shorter, {"threshold"}, "dgc needs the momentum of sgd")
        others = self.json_of("plan", *SMALL, "optim.name=sgd", "optim.momentum=0.9", "--cluster", "h100", "--workers", "8")["others"]
        self.assertEqual({other["compression"] for other in others if "at most" in other["remark"]}, {"dgc", "threshold"})

    def test_the_table_says_what_limits_and_what_would_help(self):
        text = self.run_paceline("plan", *SMALL, "--cluster", "h100", "--workers", "8", "--price", "3", "--explain", "1").stdout
        for word in ["efficiency", "bottleneck", "if doubled", "device-hours", "price", "parallel.data=", "step program", "memory of"]:
            self.assertIn(word, text)

    def test_a_written_recipe_trains_as_it_is(self):
        self.run_paceline("plan", "model.network=mlp", "data.name=shapes", "--cluster", "two_cores", "--workers", "2", "--batch", "16",
                          "--write-recipe", "planned.toml")
        result = self.json_of("train", "planned.toml", "data.train_samples=96", "train.threads=1", "train.steps=3", "train.checkpoints=false", "--quiet")
        self.assertEqual(result["steps"], 3)

    def test_a_written_recipe_has_the_network_that_was_planned(self):
        planned = self.json_of("plan", "resnet18", "--cluster", "two_cores", "--workers", "2", "--write-recipe", "planned.toml")["plans"][0]
        again = self.json_of("plan", "planned.toml", "--cluster", "two_cores")["plans"][0]
        self.assertEqual((again["step_s"], again["mesh"]), (planned["step_s"], planned["mesh"]))

    def test_data_say_the_networks_input(self):
        words = ["--cluster", "two_cores", "--workers", "1", "--batch", "8"]
        whole, small = (self.json_of("plan", "resnet18", *data, *words)["plans"][0]["step_s"] for data in ([], ["data.shape=[3,32,32]"]))
        self.assertLess(small, whole / 2)
        self.assertEqual(self.json_of("plan", "model.network=resnet18", "optim.name=adamw", "data.name=random", *words)["plans"][0]["step_s"], small)

    def test_what_no_plan_keeps_is_refused(self):
        for word in ("strategy.name=asgd", "comm.compression=topk", "comm.algorithm=ring", "train.recompute=all", "parallel.schedule=gpipe"):
            self.refused("plan", *SMALL, "--cluster", "h100", "--workers", "8", word, says=[word.split("=")[0], "paceline simulate"])
        (self.folder / "asgd.toml").write_text('[model]\nnetwork = "mlp"\n[strategy]\nname = "asgd"\n')
        self.assertTrue(any("strategy.name=asgd" in note for note in self.json_of("plan", "asgd.toml", "--cluster", "two_cores")["notes"]))

    def test_what_fits_nowhere_names_the_smallest_cluster(self):
        big = ["gpt", "model.layers=96", "model.width=12288", "model.heads=96", "model.classes=50257", "model.input=[2048]"]
        self.refused("plan", *big, "--cluster", "h100", "--workers", "8", says=["gpt", "80.0 GB", "--workers"])
        self.refused("plan", "resnet50", "--cluster", "laptop", "--workers", "4", "--memory", "0.1", says=["4 workers", "hosts"])
        self.refused("plan", "vgg16", "--cluster", "p100", "--workers", "4", "--memory", "0.0001", says=["vgg16", "even 65536 devices"])

    def test_any_batch_is_computed_in_parts_where_it_must(self):
        plan = self.json_of("plan", "resnet50", "--cluster", "laptop", "--workers", "1", "--batch", "31", "--memory", "1")["plans"][0]
        self.assertEqual(plan["micro_batches"], 31)
        plan = self.json_of("plan", "resnet50", "--cluster", "h100", "--workers", "8", "--batch", "7")["plans"][0]
        self.assertEqual(plan["micro_batches"], 7)

    def test_offload_is_not_planned(self):
        self.refused("plan", *SMALL, "--cluster", "h100", "--workers", "8", "parallel.offload=true", says=["parallel.offload", "host"])

    def test_what_cannot_be_asked(self):
        self.refused("plan", says=["network"])
        for command in ("plan", "memory", "simulate"):
            self.refused(command, "resnet51", *([] if command == "memory" else ["--cluster", "h100"]),
                         says=["unknown network 'resnet51'", "did you mean 'resnet50'?"])
        self.refused("plan", "missing.toml", "--cluster", "h100", says=["missing.toml", "no such recipe"])
        self.refused("plan", "resnet50", says=["--cluster", "paceline probe"])
        self.refused("plan", "resnet50", "--cluster", "h100", "--workers", "4096", says=["4096", "1024"])
        self.refused("plan", *SMALL, "--cluster", "h100", "--workers", "8", "--explain", "99", says=["--explain 99"])
        for flag in ("--memory", "--price"):
            for value in ("-1", "0", "inf", "nan", "2x"):
                self.refused("plan", *SMALL, "--cluster", "h100", f"{flag}={value}", says=[flag, value])
        self.refused("plan", *SMALL, "--cluster", "h100", "--workers", "8", "parallel.tensor=3", says=["8 workers", "tensor=3"])
        self.refused("plan", *SMALL, "--cluster", "h100", "--workers", "8", "--batch", "7", "parallel.tensor=1", "parallel.pipeline=1",
                     says=["batch of 7", "pipeline=1", "tensor=1"])
        self.refused("plan", *SMALL, "--cluster", "h100", "--workers", "2", "--probe-top", "1", "train.device=cpu", says=["h100", "cpu", "gpu"])

    def test_a_row_names_the_whole_plan(self):
        big = ["gpt", "model.layers=24", "model.width=2048", "model.heads=16", "model.input=[1024]", "train.precision=bf16"]
        arguments = ["plan", *big, "--cluster", "h100", "--workers", "64", "--memory", "10"]
        text = self.run_paceline(*arguments).stdout
        for plan in self.json_of(*arguments)["plans"]:
            self.assertIn(plan["title"].replace(" micro-batches", " micro"), text)
            if plan["algorithm"]:
                pieces = "units" if plan["zero"] == 3 else f"{plan['bucket_bytes'] >> 20} MiB"
                self.assertIn(f"{pieces} {plan['algorithm']}", text)

    def test_a_size_that_the_command_line_fixes(self):
        found = self.json_of("plan", *SMALL, "--cluster", "h100", "--workers", "8", "parallel.pipeline=2")
        self.assertEqual({plan["mesh"]["pipeline"] for plan in found["plans"]}, {2})


class Training(CliTest):
    def test_train_by_plan(self):
        result = self.json_of("train", *TINY, "strategy.name=plan", "--workers", "2", "train.steps=3", "train.checkpoints=false", "--quiet")
        self.assertEqual(result["steps"], 3)
        recipe = self.run_paceline("train", *TINY, "strategy.name=plan", "--workers", "2", "--print-recipe").stdout
        self.assertIn('name = "allreduce"', recipe)

    def test_worker_0_plans_for_all(self):
        """The files that a plan is made from differ, and so would the plans."""
        slow, fast = cluster_with("1 kB/s"), cluster_with("100 GB/s")
        for rank, text in enumerate((slow, fast)):
            (self.folder / f"rank{rank}").mkdir()
            (self.folder / f"rank{rank}" / "cluster.toml").write_text(text)
        command = " ".join([BINARY, "train", *TINY, "strategy.name=plan", "data.batch=16", "train.steps=3", "train.checkpoints=false",
                            "--json", "--quiet"])
        plans = []
        for first in (0, 1):
            folder = f"$(( (RANK + {first}) % 2 ))"
            done = self.run_paceline("run", "-np", "2", "--", "sh", "-c", f"cd rank{folder} && exec {command}")
            self.assertEqual(done.returncode, 0)
            plans.append(next(line for line in done.stderr.splitlines() if "plan:" in line))
            recipe = max((self.folder / f"rank{first}" / "runs").glob("*/recipe.toml"))
            self.assertNotIn('name = "plan"', recipe.read_text())
        self.assertNotEqual(plans[0], plans[1])

    def test_the_best_two_are_run(self):
        found = self.json_of("plan", "model.network=mlp", "data.name=shapes", "--cluster", "two_cores", "--workers", "2", "--batch", "16",
                             "--probe-top", "2")
        measured = [plan["measured_step_s"] for plan in found["plans"] if "measured_step_s" in plan]
        self.assertEqual(len(measured), 2)
        self.assertEqual(measured, sorted(measured))
        self.assertGreater(measured[0], 0)
        self.assertEqual(self.files(), ["two_cores.steps.json"])
        again = self.json_of("plan", "model.network=mlp", "data.name=shapes", "--cluster", "two_cores", "--workers", "2", "--batch", "16")
        kept = {plan["measured_step_s"] for plan in again["plans"] if "measured_step_s" in plan}
        self.assertTrue(kept and kept <= set(measured), (kept, measured))
        (self.folder / "two_cores.steps.json").write_text("[]")
        self.refused("plan", "model.network=mlp", "data.name=shapes", "--cluster", "two_cores", "--workers", "2", "--batch", "16",
                     says=["two_cores.steps.json"])


class Verify(CliTest):
    def test_one_odd_summary_is_left_out(self):
        self.run_paceline("train", *TINY, "train.cluster=two_cores", "train.name=one", "--quiet")
        for name, text in {"odd": "[1, 2", "older": '{"prediction": {"predicted": {"step_s": 1}}}'}.items():
            (self.folder / "runs" / name).mkdir()
            (self.folder / "runs" / name / "summary.json").write_text(text)
        done = self.run_paceline("verify", "--json")
        found = json.loads(done.stdout)
        self.assertEqual([run["run"] for run in found["runs"]], ["runs/one"])
        for name in ("odd", "older"):
            self.assertIn(f"{name}/summary.json", done.stderr)
        self.assertEqual(found["memory"]["runs"], 1)
        self.assertNotIn("nan", self.run_paceline("verify").stdout.lower())

    def test_what_a_run_took_corrects_the_next_prediction(self):
        def train(name):
            self.run_paceline("train", *TINY, "train.cluster=two_cores", f"train.name={name}", "--quiet")
            return json.loads((self.folder / "runs" / name / "summary.json").read_text())["prediction"]
        measured = train("first")["measured"]["step_s"]
        self.assertIn("two_cores.steps.json", self.run_paceline("verify", "runs/first", "--learn").stdout)
        self.assertAlmostEqual(train("second")["predicted"]["step_s"] / measured, 1, places=6)

    def test_a_cluster_file_of_another_kind_of_device_is_left_alone(self):
        for kind, predicted in {"gpu": False, "cpu": True}.items():
            (self.folder / "cluster.toml").write_text(cluster_with("1 GB/s", kind))
            self.run_paceline("train", *TINY, f"train.name={kind}", "--quiet")
            summary = json.loads((self.folder / "runs" / kind / "summary.json").read_text())
            self.assertEqual("prediction" in summary, predicted)


class Table(CliTest):
    def test_tables_that_are_none(self):
        folder = pathlib.Path(self.folder)
        (folder / "few.csv").write_text(NAMES + "8,16,4,64,4,6,128,2,2,2,10\n" * 20)
        self.refused("verify", "--table", "few.csv", "--calibrate", "0.1", says=["--calibrate", "20"])
        (folder / "bad.csv").write_text(NAMES + "8,16,4,64,4,6,128,2,2,1,10\n")
        self.refused("verify", "--table", "bad.csv", says=["bad.csv", "line 2", "8 GPUs"])
        self.refused("verify", "--table", "nowhere.csv", says=["nowhere.csv"])
        self.refused("verify", "--calibrate", "0.5", says=["--calibrate", "--table"])
        self.refused("verify", "runs", "--table", "few.csv", says=["--table", "runs"])
        self.refused("verify", "--learn", "--table", "few.csv", says=["--table", "--learn"])

    def test_a_tenth_of_vtrain_predicts_the_rest(self):
        table = pathlib.Path(os.environ.get("PACELINE_DATA", "/nonexistent")) / "vtrain_single_node.csv"
        if not table.exists():
            self.skipTest("PACELINE_DATA has no vtrain_single_node.csv")
        found = self.json_of("verify", "--table", str(table), "--calibrate", "0.1", "--write-cluster", "a100.toml")
        self.assertEqual((found["seen"]["rows"], found["others"]["rows"]), (144, 1296))
        self.assertLessEqual(found["others"]["mean"], 0.06)
        plans = self.json_of("plan", *SMALL, "--cluster", "a100.toml", "--workers", "8")
        self.assertTrue(plans["plans"])


if __name__ == "__main__":
    unittest.main()
