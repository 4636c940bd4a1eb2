"""`paceline study ccgrid2019`: its tables, figures and page, and clusters that cannot be."""

import csv
import json
import unittest
import xml.etree.ElementTree

from support import CliTest

FIGURES = ["intensity", "intensity_whole", "batch", "flops", "memory_bandwidth", "processes", "link_bandwidth", "fusion"]
TABLES = ["steps", "intensity", "fusion", "schedules"]


class Study(CliTest):
    def test_tables_figures_and_one_page(self):
        text = self.run_paceline("study", "ccgrid2019", "--out", "made").stdout
        for word in ["AlexNet", "ResNet-50 v2", "Inception v3", "VGG16", "star BKT", "mesh MST", "made/index.html"]:
            self.assertIn(word, text)
        folder = self.folder / "made"
        made = {path.name for path in folder.iterdir()}
        self.assertEqual(made, {"index.html", "study.json", *(f"{name}.svg" for name in FIGURES), *(f"{name}.csv" for name in TABLES)})
        page = (folder / "index.html").read_text()
        self.assertEqual(page.count("<svg"), len(FIGURES))
        document = json.loads((folder / "study.json").read_text())
        for name in TABLES:
            with open(folder / f"{name}.csv", newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            self.assertEqual(len(rows), len(document[name]))
            self.assertEqual(list(rows[0]), list(document[name][0]))
        self.assertEqual(document["conclusions"][0]["follows"], "no")
        for name in FIGURES:
            root = xml.etree.ElementTree.parse(folder / f"{name}.svg").getroot()
            texts = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
            for network in ["AlexNet", "ResNet-50 v2", "Inception v3", "VGG16"]:
                self.assertIn(network, texts, name)

    def test_the_reference_figures(self):
        steps = self.json_of("study", "ccgrid2019")["steps"]
        found = {(row["network"], row["topology"], row["allreduce"]): row for row in steps if row["sweep"] == "batch" and row["samples_per_process"] == 60}
        for network, method, expected in [("resnet50_v2", "BKT", (229, 62, 230)), ("alexnet_ungrouped", "MST", (52, 200, 218)),
                                          ("alexnet_ungrouped", "BKT", (52, 28, 53)), ("vgg16", "BKT", (825, 60, 826))]:
            row = found[network, "star", method]
            for key, value in zip(("compute_ms", "communication_ms", "overlapped_ms"), expected):
                self.assertAlmostEqual(row[key], value, delta=0.5)

    def test_a_preset_as_a_file_gives_the_same_study(self):
        flags = ["study", "ccgrid2019", "--networks", "lenet5", "--batch", "8", "--cluster"]
        (self.folder / "own.toml").write_text(self.run_paceline(*flags, "laptop", "--print-cluster").stdout)
        self.assertEqual(self.json_of(*flags, "own.toml"), self.json_of(*flags, "laptop"))
        clusters = [row["key"] for row in self.json_of("list", "clusters")["clusters"]]
        self.assertEqual(clusters, ["skylake", "p100", "v100", "h100", "h200", "laptop", "two_cores"])

    def test_counting_the_output_twice_takes_longer(self):
        flags = ["study", "ccgrid2019", "--networks", "alexnet", "--cluster", "two_cores"]
        once, twice = self.json_of(*flags)["steps"][0], self.json_of(*flags, "--traffic", "2mn")["steps"][0]
        self.assertLess(once["compute_ms"], twice["compute_ms"])

    def test_refusals(self):
        self.refused("study", "ccgrid2018", says=["ccgrid2018", "ccgrid2019"])
        self.refused("study", "ccgrid2019", "--cluster", "skylark", says=["skylark", "skylake"])
        self.refused("study", "ccgrid2019", "--networks", "vgg61", says=["vgg61", "vgg16"])
        self.refused("study", "ccgrid2019", "--traffic", "3mn", says=["--traffic", "3mn"])
        self.refused("study", "ccgrid2019", "--batch", "0", says=["--batch"])
        self.refused("study", "ccgrid2019", "--networks", ",", says=["--networks"])
        self.refused("study", "ccgrid2019", "--out", "/proc/nowhere", says=["/proc/nowhere"])
        text = self.run_paceline("study", "ccgrid2019", "--print-cluster").stdout
        for old, new, key in [("128 GB/s", "128", "device.memory_bandwidth"), ("25 GB/s", "-25 GB/s", "link.infiniband.bandwidth"),
                              ('link = "infiniband"', 'link = "ether"', "cluster.link")]:
            line = 1 + next(number for number, words in enumerate(text.splitlines()) if old in words)
            (self.folder / "bad.toml").write_text(text.replace(old, new))
            self.refused("study", "ccgrid2019", "--cluster", "bad.toml", says=[f"bad.toml, line {line}: {key}"])


if __name__ == "__main__":
    unittest.main()
