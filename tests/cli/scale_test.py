"""`paceline scale`: the document that scripts read, the table and the picture that people do, and nothing left behind.

    python3 scale_test.py BINARY
    python3 scale_test.py BINARY Scaling.test_json -v    unittest's own arguments
"""

import signal
import unittest
import xml.etree.ElementTree

from support import SMALL, STOPPED, WRONG_INPUT, CliTest

QUICK = ["--steps", "6", "--warm-up", "2"]
ROW_KEYS = ["mode", "workers", "batch", "step_ms", "samples_per_s", "speed_up", "efficiency", "exposed", "hidden", "straggler_spread",
            "bytes_per_step"]


class Scaling(CliTest):
    def setUp(self):
        super().setUp()
        self.scratch = self.folder / "scratch"  # where the runs of the trials are, while they last
        self.scratch.mkdir()
        self.environment["TMPDIR"] = str(self.scratch)

    def assert_nothing_left(self, *but):
        self.assertEqual(self.files(), sorted(["scratch", *but]))

    def test_json(self):
        report = self.json_of("scale", *SMALL, *QUICK, "--workers", "2,1,2")
        self.assertEqual(list(report), ["network", "dataset", "strategy", "threads", "warm_up", "steps", "rows"])
        self.assertEqual((report["network"], report["dataset"], report["threads"]), ("mlp", "shapes", 1))
        rows = report["rows"]
        # 16 of a worker, then 16 of all together
        self.assertEqual([(row["mode"], row["workers"], row["batch"]) for row in rows],
                         [("weak", 1, 16), ("weak", 2, 32), ("strong", 1, 16), ("strong", 2, 16)])
        for row in rows:
            self.assertEqual(list(row), ROW_KEYS)
            one = next(other for other in rows if other["mode"] == row["mode"])
            self.assertAlmostEqual(row["samples_per_s"], row["batch"] / row["step_ms"] * 1e3, delta=row["samples_per_s"] * 1e-6)
            self.assertAlmostEqual(row["speed_up"], row["samples_per_s"] / one["samples_per_s"])
            self.assertAlmostEqual(row["efficiency"], row["speed_up"] / row["workers"])
            for share in ["exposed", "hidden", "straggler_spread"]:
                self.assertTrue(0 <= row[share] <= 1, row)
            if row["workers"] == 1:
                self.assertEqual((row["exposed"], row["bytes_per_step"]), (0, 0))
            else:
                self.assertGreater(row["bytes_per_step"], 0)
        self.assertEqual(rows[0]["samples_per_s"], rows[2]["samples_per_s"])  # one worker is measured once
        self.assert_nothing_left()

    def test_fewest_workers_stand_in_for_one(self):
        rows = self.json_of("scale", *SMALL, *QUICK, "--workers", "2", "--mode", "weak")["rows"]
        self.assertEqual([(row["workers"], row["speed_up"], row["efficiency"]) for row in rows], [(2, 2, 1)])

    def test_table_and_picture(self):
        done = self.run_paceline("scale", *SMALL, *QUICK, "--workers", "1,2", "--mode", "strong", "--svg", "scaling.svg")
        self.assertIn("efficiency", done.stdout)
        self.assertEqual(sum("strong" in line for line in done.stdout.splitlines()), 2)
        self.assertIn("measuring strong scaling, 2 workers, batch 16", done.stderr)
        drawn = "".join(xml.etree.ElementTree.parse(self.folder / "scaling.svg").getroot().itertext())
        for words in ["mlp on shapes", "speed-up", "strong, exposed"]:
            self.assertIn(words, drawn)
        self.assert_nothing_left("scaling.svg")

    def test_what_cannot_be_is_refused_before_anything_runs(self):
        self.refused("scale", *SMALL, "data.batch=15", "--workers", "1,2", says=["batch of 15", "14 or 16"])
        self.refused("scale", "none.toml", says=["none.toml"])
        self.refused("scale", *SMALL, "data.bach=16", says=["'bach'", "'batch'"])
        self.refused("scale", *SMALL, "--workers", "1,0", says=["--workers", "at least 1"])
        self.refused("scale", *SMALL, "--mode", "wide", says=["--mode"])
        self.assert_nothing_left()

    def test_a_child_that_fails_says_why(self):
        done = self.run_paceline("scale", *SMALL, "data.name=cifar10", code=WRONG_INPUT)
        self.assertIn("error: 1 worker, data.batch=16: ", done.stderr.splitlines()[-1])
        self.assertIn("data.root", done.stderr.splitlines()[-1])
        self.assert_nothing_left()

    def test_interrupted(self):
        process = self.start("scale", *SMALL, "--steps", "1000000")
        self.assertIn("measuring", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(self.deadline_s), STOPPED)
        self.assertEqual(process.stdout.read(), "")
        self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main()
