"""`paceline simulate`: what it prints, its trace and its picture, and questions that it refuses."""

import json
import unittest
import xml.etree.ElementTree

from support import CliTest

SMALL = ["simulate", "lenet5", "--cluster", "p100", "--workers", "8", "--steps", "5"]


class Simulate(CliTest):
    def test_a_job_that_nothing_disturbs_takes_the_closed_form(self):
        found = self.json_of(*SMALL, "comm.algorithm=ring")
        self.assertEqual(found["mesh"], {"data": 8, "pipeline": 1, "tensor": 1})
        self.assertEqual(len(found["steps"]), 5)
        self.assertAlmostEqual(found["step_s"]["mean"], found["step_s"]["closed_form"], delta=0.03 * found["step_s"]["closed_form"])
        self.assertAlmostEqual(sum(found["utilisation"].values()), 1, places=6)
        self.assertAlmostEqual(found["samples_per_s"], 8 * 32 / found["step_s"]["mean"], delta=1e-3 * found["samples_per_s"])

    def test_jitter_and_slow_links_take_time(self):
        even, uneven = self.json_of(*SMALL), self.json_of(*SMALL, "--jitter", "exponential_tail:0.5")
        self.assertGreater(uneven["step_s"]["mean"], 1.1 * even["step_s"]["mean"])
        self.assertGreater(uneven["utilisation"]["waiting"], even["utilisation"]["waiting"])
        self.assertEqual(uneven["steps"], self.json_of(*SMALL, "--jitter", "exponential_tail:0.5")["steps"])
        slow = self.json_of(*SMALL, "--slow-host", "1:1000")
        self.assertGreater(slow["step_s"]["mean"], 2 * even["step_s"]["mean"])

    def test_a_parameter_server(self):
        flags = [*SMALL, "optim.momentum=0", "--jitter", "gamma:25"]
        together = self.json_of(*flags, "strategy.name=ssgd", "ps.servers=2")
        self.assertTrue(together["synchronous"])
        self.assertEqual(together["servers"]["mean_staleness"], 0)
        alone = self.json_of(*flags, "strategy.name=asgd", "ps.servers=2")
        self.assertFalse(alone["synchronous"])
        self.assertGreater(alone["servers"]["mean_staleness"], 4)
        self.assertGreater(alone["samples_per_s"], together["samples_per_s"])
        self.assertIn("arrivals at random", self.run_paceline(*flags, "strategy.name=asgd", "ps.servers=2").stdout)

    def test_failures(self):
        found = self.json_of(*SMALL, "--mtbf", "2d", "--restart-time", "10m", "--checkpoint-time", "30s")
        self.assertAlmostEqual(found["failures"]["goodput_share"], found["failures"]["daly_share"], delta=0.02)
        self.assertLess(found["goodput_samples_per_s"], 0.98 * found["samples_per_s"])
        self.assertAlmostEqual(found["failures"]["job_mtbf_s"], 2 * 86400 / 8, places=3)

    def test_a_checkpoint_behind_every_step(self):
        found = self.json_of(*SMALL, "--mtbf", "4y", "--checkpoint-every", "0s", "--checkpoint-time", "0s")
        self.assertGreater(found["failures"]["goodput_share"], 0.99)

    def test_workers_that_meet_every_few_steps(self):
        often, rarely = (self.json_of(*SMALL, "strategy.name=local_sgd", f"strategy.period={period}") for period in (1, 8))
        self.assertEqual((len(often["steps"]), len(rarely["steps"])), (5, 8))
        self.assertLess(rarely["step_s"]["mean"], 0.9 * often["step_s"]["mean"])
        self.assertAlmostEqual(rarely["step_s"]["mean"], rarely["step_s"]["closed_form"], delta=0.03 * rarely["step_s"]["closed_form"])

    def test_a_server_that_workers_visit_every_few_steps(self):
        flags = ["simulate", "lenet5", "--cluster", "p100", "--workers", "8", "--steps", "32", "--jitter", "gamma:25", "strategy.name=downpour", "optim.momentum=0"]
        often, rarely = (self.json_of(*flags, f"ps.period={period}") for period in (1, 8))
        for of in ("mean", "closed_form"):
            self.assertLess(rarely["step_s"][of], 0.9 * often["step_s"][of])
        self.assertLess(rarely["servers"]["updates"], often["servers"]["updates"] / 7)
        self.assertAlmostEqual(rarely["servers"]["mean_staleness"], 7, delta=2)

    def test_a_trace_and_a_picture(self):
        text = self.run_paceline(*SMALL, "--trace", "trace.json", "--trace-ranks", "3", "--svg", "picture.svg", "--mtbf", "4y").stdout
        for word in ["throughput", "goodput", "closed form", "hosts' links", "picture.svg"]:
            self.assertIn(word, text)
        spans = [event for event in json.loads((self.folder / "trace.json").read_text())["traceEvents"] if event["ph"] == "X"]
        self.assertEqual({span["pid"] for span in spans}, {0, 1, 2})
        self.assertTrue(any(span["name"].startswith("allreduce along data") for span in spans))
        self.assertTrue(any(span["name"].startswith("forward") for span in spans))
        root = xml.etree.ElementTree.parse(self.folder / "picture.svg").getroot()
        texts = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
        for title in ["How long a step takes", "Where the ranks' time goes", "How busy the links are", "Where the job's weeks go"]:
            self.assertIn(title, texts)

    def test_refusals(self):
        self.refused(*SMALL[:4], "--workers", "600", says=["600", "p100", "512"])
        self.refused(*SMALL, "--jitter", "gama:3", says=["--jitter", "gama", "gamma"])
        self.refused(*SMALL, "--mtbf", "4", says=["--mtbf", "4", "unit"])
        self.refused(*SMALL, "--mtbf", "1s", says=["fails every"])
        self.refused(*SMALL, "--checkpoint-every", "30m", says=["--checkpoint-every", "--mtbf"])
        self.refused(*SMALL, "--trace-ranks", "3", says=["--trace-ranks", "--trace"])
        self.refused(*SMALL, "--slow-host", "2:10", says=["no host 2"])
        self.refused(*SMALL, "--slow-host", "1:inf", says=["--slow-host", "inf"])
        self.refused(*SMALL, "--slow-host", "1e30:2", says=["--slow-host", "1e30"])
        self.refused(*SMALL, "--slow-host", "3", says=["--slow-host", "3:10"])
        self.refused(*SMALL, "--batch", "12", says=["data.batch"])
        self.refused(*SMALL, "timing.slow_workers=[8]", says=["timing.slow_workers", "8"])
        self.refused(*SMALL, "strategy.name=plan", says=["strategy.name=plan", "--write-recipe"])
        self.refused("simulate", "lenet6", says=["lenet6"])


if __name__ == "__main__":
    unittest.main()
