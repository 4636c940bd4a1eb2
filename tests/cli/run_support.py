"""What the tests of `paceline run` share: ranks that are real processes, and a script that stands in for ssh."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

DONE, FAILED, WRONG_INPUT, STOPPED = 0, 1, 2, 3
BINARY = os.path.abspath(sys.argv.pop(1))
DEADLINE_S = 60  # only a hang takes so long

# Runs here what ssh would run elsewhere: in a session of its own and with an almost empty environment, as after a login.
FAKE_SSH = """#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
host=$1; shift
[ "$host" != unreachable ] || { echo "ssh: connect to host $host: No route to host" >&2; exit 255; }
echo "$host" >> "$(dirname "$0")/hosts"
exec setsid --wait env -i PATH="$PATH" FAKE_HOST="$host" sh -c "$*"
"""


class RunTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="paceline-run-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        mine = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMP_NUM_THREADS", "PACELINE_")
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(mine)}
        self.ssh = self.folder / "ssh"
        self.ssh.write_text(FAKE_SSH)
        self.ssh.chmod(0o755)

    def start(self, *arguments, **options):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        process = subprocess.Popen([BINARY, "run", *map(str, arguments)], cwd=self.folder, env=self.environment, text=True, **options)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                self.addCleanup(pipe.close)
        return process

    def finish(self, process, code, send=None):
        out, err = process.communicate(send, timeout=DEADLINE_S)
        self.assertEqual(process.returncode, code, f"{process.args}\n{out}\n{err}")
        return out, err

    def run_ranks(self, *arguments, code=DONE, send=None):
        return self.finish(self.start(*arguments, stdin=subprocess.PIPE if send else subprocess.DEVNULL), code, send)

    def refused(self, *arguments, says):
        out, err = self.run_ranks(*arguments, code=WRONG_INPUT)
        self.assertEqual(out, "")
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertTrue(err.startswith("error: "), err)
        self.assertIn(says, err)

    def wait_until(self, condition, what, within_s=DEADLINE_S):
        until = time.monotonic() + within_s
        while not condition():
            self.assertLess(time.monotonic(), until, what)
            time.sleep(0.01)

    def pids(self, count):
        """Of the processes that wrote theirs into a file each, once all are there and ready."""
        def written():
            return [file for file in self.folder.glob("pid-*") if file.read_text().endswith("\n")]
        self.wait_until(lambda: len(written()) == count, "ranks have not started")
        return [int(file.read_text()) for file in sorted(written())]

    def assert_gone(self, pids, within_s=DEADLINE_S):
        def gone(pid):
            try:
                return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0] in "ZX"
            except (FileNotFoundError, ProcessLookupError):
                return True
        self.wait_until(lambda: all(map(gone, pids)), f"left over after {within_s} s: {pids}", within_s)


# Writes its pid and that of a child of its own, then sleeps.
SLEEPER = 'sleep 1000 & echo $! > pid-$RANK-child; echo $$ > pid-$RANK; wait'
TRAPS = "trap 'echo got; exit 3' {0}; echo $$ > pid-$RANK; while :; do sleep 0.05; done"
