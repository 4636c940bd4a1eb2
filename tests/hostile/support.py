"""What the tests of hostile peers share: attacks, and what a process takes of memory, threads and descriptors meanwhile."""

import json
import os
import pathlib
import re
import resource
import shutil
import socket
import subprocess
import sys
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from processes import children  # noqa: E402, F401: for the tests

SANITIZE = os.environ.get("PACELINE_SANITIZE", "")
# Of memory in a sanitizer's build: AddressSanitizer surrounds what is allocated and keeps a shadow of an eighth of it, ThreadSanitizer a
# shadow of several times its size. What was freed stays for a while too; quarantine_size_mb below keeps that out of the count.
MEMORY_MB = 64 * (4 if SANITIZE else 1)
THREADS, DESCRIPTORS = 16, 256  # a reception's guests, and as many again for members that do not join
ATTACK_S = 120  # of one attack; only a hang takes so long


def environment():
    more = {}
    if "address" in SANITIZE:
        more["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "detect_leaks=0") + ":quarantine_size_mb=8"
    return dict(os.environ, **more)


def make_certificates(folder):
    """server.pem, worker.pem and stranger.pem with their keys, the last by another authority; false where there is no openssl."""
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl = lambda *words: subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    if not shutil.which("openssl"):
        return False
    for name in ("ca", "other"):
        openssl("req", "-x509", *new_key, "-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
    for name, authority in (("server", "ca"), ("worker", "ca"), ("stranger", "other")):
        openssl("req", *new_key, "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{name}.key", "-out",
                f"{name}.csr")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial", "-days",
                "2", "-copy_extensions", "copy", "-out", f"{name}.pem")
    return True


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def usage(pid):
    """(MB resident, threads, descriptors) of a process."""
    with open(f"/proc/{pid}/status") as status:
        text = status.read()
    number = lambda key: int(re.search(rf"^{key}:\s+(\d+)", text, re.M)[1])
    return number("VmRSS") / 1024, number("Threads"), len(os.listdir(f"/proc/{pid}/fd"))


class Watch:
    """The most that a process has while the watch lasts, above what it had before."""

    def __init__(self, pid):
        self.pid = pid
        self.before = self.most = usage(pid)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def look(self):
        while not self.stop.wait(0.02):
            try:
                self.most = tuple(map(max, self.most, usage(self.pid)))
            except (OSError, TypeError):  # it is gone, which others notice
                return

    def growth(self):
        memory, threads, descriptors = (most - before for most, before in zip(self.most, self.before))
        return {"memory_mb": round(memory, 1), "threads": threads, "descriptors": descriptors}


class Attacker:
    def __init__(self, program, target, purpose, key):
        self.words = [str(program), target, purpose, key]

    def start(self, attack, count=0, time_s=2.5):
        program, target, purpose, key = self.words
        return subprocess.Popen([program, attack, target, purpose, key, str(count), str(time_s)], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=environment())

    @staticmethod
    def facts_of(process):
        out, err = process.communicate(timeout=ATTACK_S)
        if process.returncode != 0:
            raise AssertionError(f"{' '.join(process.args[:3])}: {err[-2000:]}")
        return json.loads(out)

    def run(self, *words, **more):
        return self.facts_of(self.start(*words, **more))


class Victim:
    """A program that says how far it is whenever it is asked, and goes on until its input ends."""

    def __init__(self, *words, descriptors=None):
        """`descriptors`: its limit (ulimit -n)."""
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=environment(), preexec_fn=limit if descriptors else None)
        self.lines = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    @property
    def pid(self):
        return self.process.pid

    def read(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def said(self, word, patience_s=60):
        """Whether its log has the word; a line arrives here a while after what it tells."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if any(word in line for line in list(self.lines)):
                return True
            time.sleep(0.05)
        return False

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(timeout=30)
            raise AssertionError(f"{self.process.args[0]} ended with {self.process.returncode}: {''.join(self.lines)[-3000:]}")
        return json.loads(line)

    def rounds(self):
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        return self.hear()["rounds"]

    def goes_on(self, rounds, patience_s=60):
        """Whether it makes more rounds than these."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if self.rounds() > rounds:
                return True
            time.sleep(0.05)
        return False

    def end(self):
        """What it says in the end."""
        self.process.stdin.close()
        last = self.hear()
        self.process.wait(timeout=60)
        self.reader.join()
        if self.process.returncode != 0:
            raise AssertionError(f"{self.process.args[0]} ended with {self.process.returncode}: {''.join(self.lines)[-3000:]}")
        return last

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            stream.close()
        self.reader.join()
        self.process.stderr.close()


def inodes(pid):
    """Of its sockets."""
    found = set()
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        try:
            name = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        except OSError:
            continue
        if name.startswith("socket:["):
            found.add(name[8:-1])
    return found


def store_name(pid):
    """The abstract socket at which a process serves its store, as anybody can find it out; none where it does not."""
    mine = inodes(pid)
    with open("/proc/net/unix") as table:
        for line in table:
            fields = line.split()
            if len(fields) == 8 and fields[6] in mine and fields[7].startswith("@paceline-"):
                return fields[7][1:]
    return None


def process_ended(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def wait_for_port(address, patience_s=60):
    """Until somebody listens there."""
    host, port = address.rsplit(":", 1)
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"nobody listens at {address}")
