"""`paceline probe` and `paceline profile`: the files that they write, and what reads them."""

import json
import unittest

from support import BINARY, CliTest


class Probe(CliTest):
    def test_a_cluster_file_that_a_study_takes(self):
        document = self.json_of("probe", "--device", "cpu", "--seconds", "0", "--name", "My Machine")
        cluster = document["cluster"]
        self.assertEqual((cluster["name"], cluster["hosts"], cluster["devices"]), ("my_machine", 1, 2))
        device = cluster["device"]
        for quantity in [device["memory_bandwidth"], device["memory"], device["launch"], device["update_bandwidth"], device["reduce_bandwidth"],
                         device["page_bandwidth"], device["slowdown"], device["speeds"]["fp32"]["flops"], cluster["inside"]["latency"], cluster["inside"]["bandwidth"]]:
            self.assertEqual(quantity["source"], "measured")
            self.assertGreater(quantity["value"], 0)
        self.assertIn(("allreduce", "ring"), {(row["collective"], row["algorithm"]) for row in cluster["collectives"]})
        self.assertEqual({row["ranks"] for row in cluster["collectives"]}, {2, 4}, "four ranks take turns on two devices")
        self.assertEqual(self.files(), ["cluster.toml"])
        study = self.json_of("study", "ccgrid2019", "--networks", "lenet5", "--cluster", "cluster.toml")
        self.assertEqual(study["cluster"]["flops"]["value"], device["speeds"]["fp32"]["flops"]["value"])

    def test_refusals(self):
        self.refused("probe", "--precision", "fp31", says=["fp31", "fp32"])
        self.refused("probe", "--device", "gpu", says=["gpu", "cpu"])


class Profile(CliTest):
    def test_adds_to_its_file(self):
        small = ["profile", "mlp", "model.input=[1,8,8]", "model.classes=4", "train.device=cpu", "--seconds", "0"]
        text = self.run_paceline(*small, "--batch", "2,4").stdout
        for word in ["fc1", "fc2", "batch 2", "batch 4", "adamw", "mlp.profile.json"]:
            self.assertIn(word, text)
        profile = self.json_of(*small, "--batch", "2", "--workers", "2", "--optimizers", "sgd")
        self.assertEqual(profile, json.loads((self.folder / "mlp.profile.json").read_text()))
        self.assertEqual([table["workers"] for table in profile["tables"]], [1, 2])
        self.assertEqual([[point["samples"] for point in table["units"][0]["measured"]] for table in profile["tables"]], [[2, 4], [2]])
        self.assertEqual([sorted(table["update_s"]) for table in profile["tables"]], [["adamw", "sgd"], ["sgd"]])
        for table in profile["tables"]:
            for unit in table["units"]:
                for point in unit["measured"]:
                    self.assertGreater(point["forward"], 0)
                    self.assertGreater(point["backward"], 0)

    def test_is_refused_for_another_kind_of_device(self):
        mlp = ["mlp", "model.input=[1,8,8]", "model.classes=4"]
        self.run_paceline("profile", *mlp, "train.device=cpu", "--seconds", "0", "--batch", "2")
        for command in ("plan", "simulate"):
            self.refused(command, *mlp, "--profile", "mlp.profile.json", "--cluster", "h100", "--workers", "2",
                         says=["mlp.profile.json", "cpu", "h100", "gpu"])
        notes = self.json_of("plan", *mlp, "--profile", "mlp.profile.json", "--cluster", "two_cores", "--workers", "2", "--batch", "4")["notes"]
        self.assertTrue(any("--workers 2" in note for note in notes), notes)

    def test_ranks_of_a_job_measure_together(self):
        self.run_paceline("run", "-np", "2", "--", BINARY, "profile", "mlp", "train.device=cpu", "--batch", "2", "--seconds", "0")
        profile = json.loads((self.folder / "mlp.profile.json").read_text())
        self.assertEqual([table["workers"] for table in profile["tables"]], [2])

    def test_refusals(self):
        self.refused("profile", says=["network"])
        self.refused("profile", "lenet6", says=["lenet6", "lenet5"])
        self.refused("profile", "mlp", "--batch", "0", says=["--batch", "0"])
        self.refused("profile", "mlp", "--batch", ",", says=["--batch"])
        self.refused("profile", "mlp", "--workers", "two", says=["--workers", "two"])
        self.refused("profile", "mlp", "--precision", "fp31", says=["fp31", "fp32"])
        self.refused("profile", "mlp", "--optimizers", "sdg", says=["sdg", "sgd"])
        (self.folder / "mine.json").write_text("{}")
        self.refused("profile", "mlp", "-o", "mine.json", says=["mine.json", "network"])


if __name__ == "__main__":
    unittest.main()
