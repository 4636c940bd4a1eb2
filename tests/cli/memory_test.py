"""`paceline memory`: what formulas say of a network and a recipe."""

import re
import unittest

from support import CliTest

CATEGORIES = ["parameters", "gradients", "masters", "moments", "activations", "buffers", "communication", "host"]
BILLION = ["gpt", "model.layers=24", "model.width=1792", "model.heads=14", "model.classes=16384", "model.input=[256]", "data.batch=8"]
TINY = ["model.network=mlp", "data.name=shapes", "data.train_samples=64", "data.test_samples=16", "train.steps=2", "train.device=cpu",
        "train.checkpoints=false"]
DEEP = ["model.hidden=[" + ",".join(["256"] * 16) + "]", "data.shape=[1,16,16]", "strategy.bucket_mb=0.1"]


class Memory(CliTest):
    def test_a_billion_parameters_as_the_decks_count(self):
        found = self.json_of("memory", *BILLION)
        parameters = found["parameters"]
        self.assertAlmostEqual(parameters / 1e9, 1, delta=0.02)
        slides = {(row["workers"], row["zero"]): row["bytes"] for row in found["slides"]}
        self.assertEqual(slides[2, 0], 20 * parameters)
        self.assertAlmostEqual(slides[8, 1], 4 * parameters + 16 * parameters / 8, delta=8)
        self.assertAlmostEqual(slides[64, 3], 20 * parameters / 64, delta=8)
        text = self.run_paceline("memory", *BILLION).stdout
        for word in [*CATEGORIES, "2M parameters + 2M gradients + 16M optimizer", "ZeRO 3", "█"]:
            self.assertIn(word, text)

    def test_every_category_of_every_kind_of_rank(self):
        found = self.json_of("memory", *BILLION, "--mesh", "data=4,pipeline=2,tensor=2", "parallel.zero=1", "train.micro_batches=2")
        self.assertEqual(found["mesh"], {"data": 4, "pipeline": 2, "tensor": 2})
        self.assertEqual(len(found["formula"]), 2)
        for row in found["formula"]:
            self.assertEqual(list(row["bytes"]), CATEGORIES)
            self.assertEqual(row["total"], sum(row["bytes"].values()) - row["bytes"]["host"])  # what the device holds
            self.assertEqual(row["count"], 8)
            self.assertAlmostEqual(row["bytes"]["moments"], 2 * 4 * row["parameters"] / 4, delta=64)

    def test_experts_are_divided_over_the_data_axis(self):
        experts = ["gpt", "model.experts=4", "model.layers=2"]
        parameters = [self.json_of("memory", *experts, "--mesh", f"data={data}")["formula"][0]["parameters"] for data in (1, 2, 4)]
        whole = 4 * (2 * 128 * 512 + 512 + 128)
        self.assertEqual([parameters[0] - held for held in parameters], [0, whole // 2, whole * 3 // 4])
        self.assertIn("ZeRO 3", self.run_paceline("memory", *experts).stdout, "the table of 2, 8 and 64 workers, whom 4 experts do not divide")
        graph = self.json_of("graph", *experts)
        self.assertEqual([layer["parameters"] for layer in graph["layers"] if layer["kind"] == "experts"], [whole + 4 * 128])

    def test_a_recipe_without_a_file(self):
        found = self.json_of("memory", "model.network=mlp", "data.name=shapes", "train.recompute=units", "optim.name=sgd", "optim.momentum=0")
        self.assertEqual(found["network"], "mlp")
        self.assertEqual(found["recompute"], "units")
        self.assertEqual(found["formula"][0]["bytes"]["moments"], 0)

    def test_what_is_measured_is_what_the_formulas_say(self):
        words = ["mlp", "data.shape=[1,28,28]", "model.hidden=[256,256,256]", "data.batch=32", "strategy.bucket_mb=0.1"]
        for mesh in (["data=4", "parallel.zero=0"], ["data=4", "parallel.zero=2"], ["data=4", "parallel.zero=3"], ["tensor=2"],
                     ["pipeline=2", "train.micro_batches=2"], ["data=2", "train.precision=bf16", "parallel.zero=3"]):
            with self.subTest(mesh):
                found = self.json_of("memory", *words, "--mesh", *mesh, "--measure")
                formulas, ranks = found["formula"], found["measured"]
                self.assertEqual(len(ranks), sum(row["count"] for row in formulas))
                for rank, held in enumerate(ranks):
                    formula = formulas[rank * len(formulas) // len(ranks)]["bytes"]
                    for category in ["parameters", "gradients", "masters", "moments"]:
                        self.assertAlmostEqual(held[category], formula[category], delta=0.1 * formula[category] + 8192, msg=category)  # pages
        lines = self.run_paceline("memory", *words, "--mesh", "pipeline=2", "train.micro_batches=2", "--measure").stdout.splitlines()
        self.assertEqual(sum(line.split() == ["formula", "measured"] for line in lines), 2, "a table for each stage")
        self.assertEqual([line for line in lines if line != line.rstrip()], [])
        moments = [line.split() for line in lines if line.split()[:1] == ["moments"]]
        self.assertEqual([(words[1:3], words[5]) for words in moments], [(words[3:5], "100%") for words in moments])

    def test_a_run_that_does_not_fit_is_refused(self):
        self.refused("train", "model.network=mlp", "model.hidden=[512,512]", "data.name=shapes", "train.memory_gb=0.02",
                     says=["mlp", "train.memory_gb", "parameters"])

    def test_what_passes_and_exchanges_hold_is_what_the_formulas_say(self):
        words = ["mlp", "data.shape=[1,28,28]", "model.hidden=[256,256,256]", "data.batch=32", "strategy.bucket_mb=0.1"]
        for mesh, close in ((["data=2", "comm.gradient_dtype=bf16"], ["activations", "buffers", "communication"]),
                            (["data=2", "parallel.zero=2"], ["activations", "buffers", "communication"]),
                            (["data=2", "train.storage=bf16", "train.gradients=fp32"], ["parameters", "gradients", "masters", "moments"]),
                            (["data=2", "train.storage=bf16", "train.gradients=fp32", "parallel.zero=2"], ["parameters", "masters", "moments"]),
                            (["data=2,pipeline=2", "train.micro_batches=2"], ["activations", "communication"])):
            with self.subTest(mesh):
                found = self.json_of("memory", *words, "--mesh", *mesh, "--measure")
                formulas, ranks = found["formula"], found["measured"]
                for rank, held in enumerate(ranks):
                    formula = formulas[rank * len(formulas) // len(ranks)]["bytes"]
                    # A message that the next stage has not taken yet is among the activations.
                    sent = formula["communication"] if len(formulas) > 1 else 0
                    for category in close:
                        of_sent = sent if category == "activations" else 0
                        self.assertAlmostEqual(held[category], formula[category], delta=0.1 * formula[category] + 1024 + of_sent, msg=category)
                    travels = any("gradient_dtype" in word or "pipeline" in word for word in mesh)
                    self.assertEqual(held["communication"] > 0, travels, "fp32 gradients travel from the arena")

    def advised(self, *words):
        """Runs the refused command again with what the refusal advises: as flags, it replaces the flags of the command."""
        error = self.refused("train", *TINY, *words, says=["train.memory_gb"])
        advice = re.search(r"With ((?:--workers \d+ ?|--mesh \S+ ?|[a-z_]+\.[a-z_]+=\S+ ?)+)it needs", error)
        if not advice:
            self.assertIn("was found to fit", error)
            return None
        changed, kept = advice[1].split(), list(words)
        for flag in {"--workers", "--mesh"} & set(changed) & set(kept):
            del kept[kept.index(flag):kept.index(flag) + 2]
        self.run_paceline("train", *TINY, *kept, *changed, "--quiet")
        return advice[1].strip()

    def test_what_a_refusal_advises_trains(self):
        wide, deep = ["model.hidden=[512,512]", "data.batch=8"], DEEP
        whole = wide + ["strategy.update=whole", "train.memory_gb=0.02"]
        for words, advised in ((wide + ["train.memory_gb=0.02"], "--workers 2 --mesh data=2 strategy.name=auto"),
                               (whole, "--workers 2 --mesh data=1,pipeline=2"),
                               (whole + ["parallel.costs=measured"], "--workers 2 --mesh data=1,pipeline=2"),
                               (deep + ["data.batch=2", "--mesh", "data=2", "train.memory_gb=0.006"], "--workers 4 --mesh data=2,pipeline=2"),
                               (deep + ["data.batch=2", "--workers", "2", "train.memory_gb=0.012", "comm.compression=topk"], ...),
                               (deep + ["data.batch=2", "--workers", "2", "train.memory_gb=0.012", "strategy.update=whole"], ...),
                               (deep + ["data.batch=2", "--workers", "2", "train.memory_gb=0.012", "strategy.name=local_sgd"], None),
                               (wide + ["--workers", "2", "train.memory_gb=0.02", "strategy.name=local_sgd"], None),
                               (whole + ["--workers", "2", "strategy.batch_norm=sync"], None),
                               (deep + ["data.batch=6", "--mesh", "data=2,pipeline=2", "train.micro_batches=3", "train.memory_gb=0.004"], ...),
                               (deep + ["data.batch=2", "strategy.name=single", "train.memory_gb=0.005"], ...)):
            with self.subTest(words):
                found = self.advised(*words)
                if advised is ...:
                    self.assertIsNotNone(found)
                else:
                    self.assertEqual(found, advised)

    def test_a_mesh_that_cannot_be(self):
        self.refused("memory", "gpt", "--mesh", "tensor=3", says=["heads"])

    def test_what_a_run_refuses_is_refused_in_the_same_words(self):
        (self.folder / "t.txt").write_text("the quick brown fox jumps over lazy dogs\n" * 90)
        mlp = ["model.network=mlp", "model.hidden=[16,16,16]", "data.name=shapes", "data.shape=[1,8,8]", "data.batch=16", "train.device=cpu"]
        gpt = ["model.network=gpt", "model.layers=4", "model.width=16", "model.heads=4", "data.name=text", "data.root=t.txt",
               "data.context=8", "data.batch=24", "train.device=cpu"]
        for words, says in ((mlp + ["parallel.workers=4", "parallel.tensor=3"], ["4 ranks", "--mesh data=1,pipeline=1,tensor=4"]),
                            (mlp + ["--mesh", "pipeline=9"], ["4 units", "--mesh data=2,pipeline=4,tensor=1"]),
                            (mlp + ["--mesh", "data=3"], ["3 workers", "data.batch=15 or 18"]),
                            (mlp + ["--mesh", "data=8", "train.micro_batches=4"], ["2 samples", "train.micro_batches=2"]),
                            (mlp + ["--mesh", "data=2", "model.hidden=[]", "parallel.zero=3"], ["single unit", "parallel.zero=2"]),
                            (mlp + ["--mesh", "data=2,tensor=2", "parallel.hybrid=fc*"], ["parallel.hybrid", "--mesh data=4"]),
                            (gpt + ["--mesh", "tensor=3"], ["4 heads", "--mesh data=3,pipeline=1,tensor=1"]),
                            (gpt + ["parallel.sequence=true"], ["parallel.sequence", "--mesh data=1,pipeline=1,tensor=2"]),
                            (gpt + ["model.experts=4", "--mesh", "data=3"], ["model.experts=3 or 6", "--mesh data=1,pipeline=3,tensor=1"])):
            with self.subTest(words):
                self.assertEqual(self.refused("memory", *words, says=says), self.refused("train", *words))


if __name__ == "__main__":
    unittest.main()
