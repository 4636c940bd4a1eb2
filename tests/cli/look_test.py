"""What the program tells about itself: lists, layer tables, the machine, benchmarks."""

import json
import os
import re
import subprocess
import unittest

from support import BINARY, DEADLINE_S, FAILED, WRONG_INPUT, CliTest


class Looking(CliTest):
    def test_list(self):
        shelves = self.json_of("list")
        self.assertEqual(list(shelves), ["networks", "datasets", "optimizers", "schedules", "engines", "collectives", "compressors",
                                         "update_rules", "consistencies", "predictors", "executors", "strategies", "pipelines", "clusters"])
        for name, rows in shelves.items():
            for row in rows:
                self.assertEqual(list(row)[:2], ["key", "help"], name)
                self.assertTrue(name == "strategies" or len(row) == 2, name)
                self.assertTrue(row["key"] and row["help"], row)
        strategies = {row["key"]: {key: row[key] for key in list(row)[2:]} for row in shelves["strategies"]}
        self.assertEqual(strategies["asgd"], {"rule": "asgd", "consistency": "asp"})
        self.assertEqual(strategies["ssgd"], {"rule": "average", "consistency": "bsp", "synchronous_with": ""})
        self.assertEqual(strategies["local_sgd"], {"synchronous_with": "strategy.period=1"})
        keys = {name: [row["key"] for row in rows] for name, rows in shelves.items()}
        for network in ["mlp", "lenet5", "alexnet", "vgg16", "vgg19", "resnet18", "resnet50", "resnet50_v2", "inception_v3", "mobilenet_v1", "gpt"]:
            self.assertIn(network, keys["networks"])
        for dataset in ["shapes", "random", "mnist", "cifar10", "cifar100", "image_folder", "text", "tokens"]:
            self.assertIn(dataset, keys["datasets"])
        for optimizer in ["sgd", "adam", "adamw", "lars", "lamb"]:
            self.assertIn(optimizer, keys["optimizers"])
        for schedule in ["constant", "step", "multi_step", "polynomial", "cosine", "one_cycle"]:
            self.assertIn(schedule, keys["schedules"])
        self.assertIn("single", keys["strategies"])
        self.assertEqual(self.json_of("list", "optimizers"), {"optimizers": shelves["optimizers"]})
        self.assertIn("resnet50_v2", self.run_paceline("list").stdout)

    def test_graph_shows_the_stages_of_a_pipeline(self):
        lines = self.run_paceline("graph", "resnet18", "--mesh", "pipeline=2").stdout.splitlines()
        stages = [line for line in lines if line.startswith("stage ")]
        self.assertEqual([line.split(":")[0] for line in stages], ["stage 0", "stage 1"])
        self.assertAlmostEqual(sum(int(re.search(r"(\d+)% of", line).group(1)) for line in stages), 100, delta=1)
        held = [int(re.search(r"([\d,]+) parameters on a rank", line).group(1).replace(",", "")) for line in stages]
        self.assertEqual(held, self.json_of("graph", "resnet18", "--mesh", "pipeline=2")["parameters_of_rank"])
        self.assertIn(f"at most {max(held):,} of {sum(held):,} parameters on a rank", "\n".join(lines))
        both = self.run_paceline("graph", "gpt", "--mesh", "pipeline=2,tensor=2").stdout
        self.assertRegex(both, r"tensor=2: at most [\d,]+ of [\d,]+ parameters on a rank \(27\.2%\)")
        self.assertRegex(self.run_paceline("graph", "gpt", "--mesh", "tensor=2").stdout, r"tensor=2: at most [\d,]+ of [\d,]+ parameters on a rank \(50\.5%\)")
        named = self.json_of("graph", "resnet18", "--mesh", "pipeline=2")["stages"]
        self.assertEqual(len(named), 2)
        self.assertEqual([f"stage {i}: {names[0]} … {names[-1]}" for i, names in enumerate(named)], [line.split(",")[0] for line in stages])

    def test_graph_totals(self):
        # network: (conv, fc, pool, trainable parameters, GMAC to three places); tests/graph holds all the others against their totals
        totals = {
            "alexnet": (5, 3, 3, 61_100_840, 0.714),
            "resnet50_v2": (53, 1, 1, 25_549_480, 3.858),
            "inception_v3": (94, 1, 14, 23_817_352, 5.713),
        }
        for network, (conv, fc, pool, parameters, gmac) in totals.items():
            with self.subTest(network):
                graph = self.json_of("graph", network)
                self.assertEqual(set(graph), {"network", "input", "parameters", "macs", "counts", "layers"})
                self.assertEqual(graph["network"], network)
                self.assertEqual(graph["input"], [3, *[299 if network == "inception_v3" else 224] * 2])
                self.assertEqual(graph["parameters"], parameters)
                self.assertEqual(graph["counts"], {"conv": conv, "fc": fc, "pool": pool})
                self.assertEqual(round(graph["macs"] / 1e9, 3), gmac)
                for layer in graph["layers"]:
                    self.assertLessEqual({"name", "kind", "output", "parameters", "macs", "activation_bytes"}, set(layer))
                self.assertEqual(sum(layer["parameters"] for layer in graph["layers"]), parameters)
                self.assertEqual(sum(layer["macs"] for layer in graph["layers"]), graph["macs"])

    def test_graph_takes_settings(self):
        graph = self.json_of("graph", "resnet18", "model.input=[3,32,32]", "model.classes=10")
        self.assertEqual(graph["input"], [3, 32, 32])
        self.assertIn("conv1", self.run_paceline("graph", "lenet5").stdout)

    def test_graph_shows_how_ranks_share_layers(self):
        graph = self.json_of("graph", "gpt", "model.heads=4", "--mesh", "tensor=2")
        forms = {layer["name"]: layer["form"] for layer in graph["layers"]}
        self.assertEqual(forms["transformer.h.0.mlp.c_fc"], "column")
        self.assertEqual(forms["transformer.h.0.mlp.c_proj"], "row")
        self.assertLess(max(graph["parameters_of_rank"]), 0.51 * graph["parameters"])
        self.assertIn("allreduce", self.run_paceline("graph", "vgg16", "--mesh", "tensor=4").stdout)
        stages = self.json_of("graph", "gpt", "--mesh", "data=2,pipeline=2")
        self.assertEqual(len(stages["parameters_of_rank"]), 4)
        self.assertEqual(sum(stages["parameters_of_rank"]), 2 * stages["parameters"])

    def test_graph_shows_what_data_parallel_workers_share(self):
        arguments = ["graph", "alexnet", "--mesh", "data=4", "--hybrid", "auto", "--batch", "128"]
        graph = self.json_of(*arguments)
        forms = {layer["name"]: layer["form"] for layer in graph["layers"]}
        self.assertEqual((forms["features.0"], forms["classifier.4"], forms["classifier.6"]), ("whole", "column", "row"))
        self.assertEqual((graph["data"], graph["batch"]), (4, 128))
        self.assertLess(graph["bytes_of_step"]["activations"], graph["bytes_of_step"]["gradients"] / 10)
        self.assertIn("a step of 128 samples", self.run_paceline(*arguments).stdout)

    def test_pipeline_schedules_are_drawn(self):
        keys = [row["key"] for row in self.json_of("list", "pipelines")["pipelines"]]
        self.assertEqual(keys, ["gpipe", "1f1b", "interleaved_1f1b", "zero_bubble"])
        for key in keys:
            drawn = self.json_of("algorithm", key, "--stages", "4", "--micro-batches", "8")
            self.assertAlmostEqual(drawn["bubble"], drawn["formula"]["bubble"], msg=key)
            self.assertEqual(drawn["in_flight"], drawn["formula"]["in_flight"], key)
            self.assertEqual(len(drawn["steps"]), 4, key)
            self.assertIn(key, self.run_paceline("algorithm").stdout)
        lines = self.run_paceline("algorithm", "1f1b", "--stages", "2", "--micro-batches", "2").stdout.splitlines()
        self.assertEqual([line.split()[2:] for line in lines if line.startswith("  stage")],
                         [["F0", "F1", "··", "··", "B0───", "··", "B1───"], ["··", "F0", "B0───", "F1", "B1───", "··", "··"]])
        for words, expected in [(["1f1b", "--chunks", "2"], "interleaved_1f1b"), (["1f1"], "1f1b"), (["gpipe", "--costs", "1,0,1"], "--costs"),
                                (["ring", "--stages", "4"], "--stages"), (["tree", "--transfer", "1"], "--transfer"), (["gpipe", "-n", "4"], "--ranks"),
                                (["zero_bubble", "--root", "0"], "--root"), (["ring", "--root", "1"], "--root")]:
            self.assertIn(expected, self.run_paceline("algorithm", *words, code=WRONG_INPUT).stderr)

    def test_colours_are_for_terminals_that_want_them(self):
        for wish, coloured in [("", True), ("1", False)]:
            master, slave = os.openpty()
            subprocess.run([BINARY, "help", "trian"], stderr=slave, timeout=DEADLINE_S, check=False,
                           env={**os.environ, "TERM": "xterm", "NO_COLOR": wish})
            self.assertEqual(b"\x1b[" in os.read(master, 4096), coloured, f"NO_COLOR={wish}")
            os.close(master), os.close(slave)
        self.assertNotIn("\x1b[", self.run_paceline("help", "trian", code=WRONG_INPUT).stderr)

    def test_doctor(self):
        report = self.json_of("doctor")
        for key in ["paceline", "libtorch", "compiler", "cores", "threads", "blas", "product_gflops", "memory_gb_per_s", "devices", "engines",
                    "advice"]:
            self.assertIn(key, report)
        self.assertGreater(report["product_gflops"], 0)
        self.assertGreater(report["memory_gb_per_s"], 0)
        self.assertIn("cpu", report["devices"])
        if "openblas" in report["blas"]:
            self.assertNotIn("install OpenBLAS", "\n".join(report["advice"]))

    def test_fewer_threads_than_cores_are_waited_for_by_nobody(self):
        self.environment["OMP_THREAD_LIMIT"] = "1"
        self.assertEqual(self.json_of("doctor")["threads"], 1)

    def test_bench(self):
        report = self.json_of("bench", "data", "--rounds", "1")
        self.assertEqual(list(report), ["benchmark", "machine", "rows"])
        self.assertEqual(report["benchmark"], "data")
        self.assertGreater(report["machine"]["cores"], 0)
        self.assertTrue(report["rows"])
        for row in report["rows"]:
            self.assertGreater(row.get("images_per_s") or row["tokens_per_s"], 0)

    def test_bench_of_collectives(self):
        words = [self.folder / "a folder" / "paceline", "bench", "allreduce", "--rounds", "1", "--sizes", "4K", "--engines", "shm", "--json"]
        self.copy_programs("paceline", "paceline-train", "paceline-tools")
        without = subprocess.run(words, env=self.environment, capture_output=True, text=True)
        self.assertEqual(without.returncode, WRONG_INPUT, without.stderr)
        for fact in ["paceline-bench", "make bench"]:
            self.assertIn(fact, without.stderr)
        self.copy_programs("paceline-bench", "bench_rank")
        self.assertEqual(len(json.loads(subprocess.run(words, env=self.environment, capture_output=True, check=True).stdout)["rows"]), 2)
        for collective in ("allreduce", "reduce_scatter", "all_gather", "broadcast"):
            rows = self.json_of("bench", collective, "--rounds", "1", "--sizes", "4K", "--engines", "local")["rows"]
            self.assertEqual([(row["engine"], row["peer"], row["bytes"]) for row in rows], [("local", "", 4096), ("", "memory roofline", 4096)])
            self.assertTrue(all(row["seconds"] > 0 for row in rows))
        rows = self.json_of("bench", "allreduce", "--ranks", "2", "--rounds", "1", "--sizes", "1K,64K,1M", "--engines", "local",
                            "--algorithms", "ring,direct", "--svg", "times.svg")["rows"]
        drawn = (self.folder / "times.svg").read_text()
        for words in ["allreduce of 2 ranks", "local, ring", "local, direct", "memory roofline"]:
            self.assertIn(words, drawn)
        self.refused("bench", "optim", "--svg", "none.svg", says=["bench optim has no curve to draw", "allreduce"])
        fits = [row for row in rows if "alpha_us" in row]
        self.assertEqual([fit["algorithm"] for fit in fits], ["ring", "direct"])
        for fit in fits:
            self.assertGreaterEqual(fit["alpha_us"], 0)
            self.assertTrue(fit["B_gb_per_s"] is None or fit["B_gb_per_s"] > 0, fit)

    def test_json_of_names_that_are_not_utf8(self):
        file = os.fsdecode(b"step-\xff.safetensors")
        (self.folder / file).write_bytes(b"damaged")
        report = self.json_of("checkpoint", "verify", file, code=FAILED)
        self.assertEqual([row["file"] for row in report["checkpoints"]], ["step-\ufffd.safetensors"])

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            for words in [["list", "--json"], ["train", "--print-recipe"], ["--help"]]:
                done = subprocess.run([BINARY, *words], cwd=self.folder, stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=False)
                self.assertEqual(done.returncode, FAILED, words)
                self.assertRegex(done.stderr, "^error: [^\n]*standard output[^\n]*\n$")


if __name__ == "__main__":
    unittest.main()
