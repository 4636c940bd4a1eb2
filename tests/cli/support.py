"""What the tests of the command line share: the program run in an empty folder of its own, and what a refusal looks like."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

DONE, FAILED, WRONG_INPUT, STOPPED = 0, 1, 2, 3
BINARY = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else sys.exit(f"usage: {sys.argv[0]} BINARY [unittest's own arguments]")
DEADLINE_S = 120  # of one invocation; only a hang takes so long

# A run of a second: twelve steps of a small perceptron on drawn shapes.
SMALL = ["model.network=mlp", "model.hidden=[16]", "data.shape=[1,8,8]", "data.train_samples=96", "data.test_samples=32", "data.batch=16",
         "train.epochs=2", "train.threads=1", "train.device=cpu", "train.checkpoint_share=1"]


class CliTest(unittest.TestCase):
    """Runs the program in an empty folder of its own."""

    deadline_s = DEADLINE_S

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="paceline-cli-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.environment = {key: value for key, value in os.environ.items() if key != "PACELINE_DATA"}

    def run_paceline(self, *arguments, code=DONE):
        done = subprocess.run([BINARY, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True,
                              timeout=self.deadline_s, check=False)
        self.assertEqual(done.returncode, code, f"paceline {' '.join(arguments)}\n{done.stdout}\n{done.stderr}")
        return done

    def json_of(self, *arguments, code=DONE):
        return json.loads(self.run_paceline(*arguments, "--json", code=code).stdout)  # anything around the document would not parse

    def copy_programs(self, *names):
        """Copies programs to a folder of their own, where the others are missing."""
        (self.folder / "a folder").mkdir(exist_ok=True)
        for name in names:
            shutil.copy(pathlib.Path(BINARY).with_name(name), self.folder / "a folder")

    def start(self, *arguments, **options):
        process = subprocess.Popen([BINARY, *arguments], cwd=self.folder, env=self.environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, **options)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def files(self):
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))

    def checkpoints(self, run):
        """The complete ones: files, and folders with an index."""
        found = (self.folder / run / "checkpoints").glob("step-*")
        return sorted(path for path in found if path.suffix == ".safetensors" or (path / "model.safetensors.index.json").is_file())

    def refused(self, *arguments, says=(), code=WRONG_INPUT):
        """Wrong input: one line that says what is wrong, nothing on standard output, nothing written."""
        before = self.files()
        done = self.run_paceline(*arguments, code=code)
        self.assertEqual(done.stdout, "")
        *progress, error = done.stderr.splitlines()  # of a command that ran for more than two seconds
        self.assertTrue(error.startswith("error: "), done.stderr)
        self.assertFalse([line for line in progress if line.startswith(("error", "warning"))], done.stderr)
        for words in says:
            self.assertIn(words, error)
        self.assertEqual([path for path in self.files() if path not in before and path != "runs"], [])
        return error
