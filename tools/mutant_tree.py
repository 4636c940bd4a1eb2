"""A copy of the tree in build-mutants/ that commands change, build and test, while the tree itself is only read (tools/mutants)."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[1]
PRIVATE = ROOT / "build-mutants"
CORES = len(os.sched_getaffinity(0))
BUILD_LIMIT_S = 1800
NO_TEST, ALL_SKIPPED = 77, 78  # in place of exit codes


class Commands:
    """Runs commands so that none outlives its limit, or this program."""

    def __init__(self):
        self.running, self.stopped, self.lock = set(), False, threading.Lock()

    def run(self, words, limit_s, **options):
        """(exit code, output); the code is None where the limit was reached."""
        with tempfile.TemporaryFile() as output:
            with self.lock:
                if self.stopped:
                    raise KeyboardInterrupt
                process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, **options)
                self.running.add(process)
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                self.end(process)
                self.running.discard(process)
            if self.stopped:
                raise KeyboardInterrupt
            output.seek(0)
            return code, output.read().decode(errors="replace")

    @staticmethod
    def end(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)  # what it started as well
        except ProcessLookupError:
            pass
        process.wait()

    def stop(self):
        with self.lock:
            self.stopped = True
            for process in list(self.running):
                self.end(process)


def namespace():
    """The words that give a command mounts of its own, or none where that is not allowed."""
    for words in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        if shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True).returncode == 0:
            return words
    return []


class Tree:
    def __init__(self, number, trees, commands):
        self.compilers = max(1, CORES // trees)
        self.path, self.commands, self.namespace = PRIVATE / f"tree-{number}", commands, namespace()
        self.home = ROOT if self.namespace else self.path  # what the commands see as the tree

    def run(self, words, limit_s):
        enter = []
        if self.namespace:
            enter = [*self.namespace, "bash", "-c", 'mount --bind "$0" "$1" && cd "$1" && shift && exec "$@"', str(self.path), str(ROOT)]
        with tempfile.TemporaryDirectory(prefix="paceline-mutants-") as folder:
            return self.commands.run([*enter, *words], limit_s, cwd=self.path, env=os.environ | {"TMPDIR": folder})

    def prepare(self):
        build = ROOT / "build"
        begun = (self.path / "build/build.ninja").exists()
        if not begun and self.namespace and (build / "build.ninja").exists():
            self.path.mkdir(parents=True, exist_ok=True)
            skipped = ("examples", "lint", "Testing")
            parts = [str(part) for part in build.iterdir() if part.name not in skipped]
            (self.path / "build").mkdir(exist_ok=True)
            subprocess.run(["cp", "-a", "--reflink=auto", *parts, str(self.path / "build")], check=True)
        self.update(keep_times=not begun)
        if not (self.path / "build/build.ninja").exists():
            code, output = self.run(["cmake", "-S", str(self.home), "-B", str(self.home / "build"), "-G", "Ninja"], BUILD_LIMIT_S)
            if code != 0:
                sys.exit(f"{self.path} cannot be configured:\n{output[-3000:]}")

    def update(self, keep_times):
        """Brings the copy's sources up to date. What differs becomes newer than what was built of it."""
        listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, check=True).stdout
        wanted = {name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()}
        for name in wanted:
            source, copy = ROOT / name, self.path / name
            if not copy.exists() or copy.read_bytes() != source.read_bytes():
                copy.parent.mkdir(parents=True, exist_ok=True)
                (shutil.copy2 if keep_times else shutil.copy)(source, copy)
        for copy in self.path.rglob("*"):
            name = copy.relative_to(self.path)
            if name.parts[0] != "build" and copy.is_file() and name.as_posix() not in wanted:
                copy.unlink()

    def build(self, target):
        return self.run(["ninja", "-C", str(self.home / "build"), f"-j{self.compilers}", target], BUILD_LIMIT_S)

    def test(self, target, tests, limit_s):
        """One run of gtest, or of a Python file, with these tests; (exit code, NO_TEST or ALL_SKIPPED, output)."""
        if ".py " in tests[0]:
            outcomes = [self.run([sys.executable, str(self.home / "tests" / test.split()[0]), str(self.home / "build/bin" / target), test.split()[1]],
                                 limit_s) for test in dict.fromkeys(tests)]
            return max(outcomes, key=lambda outcome: 256 if outcome[0] is None else abs(outcome[0]))
        code, output = self.run([str(self.home / "build/bin" / target), "--gtest_filter=" + ":".join(tests), "--gtest_brief=1"], limit_s)
        if code == 0 and re.search(r"\b0 tests? from 0 test suites ran", output):
            return NO_TEST, "no test of the program matches"
        if code == 0 and "[  PASSED  ] 0 tests" in output and "SKIPPED" in output:
            return ALL_SKIPPED, output
        return code, output


# The work.
