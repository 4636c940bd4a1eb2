"""Two hosts: network namespaces joined by a cable, two ranks in each. What crosses it is Gloo's, what does not is shared memory's.

    python3 two_hosts_test.py CONFORMANCE_RANK

The namespaces are made and removed here; where that is not allowed the tests are skipped.
"""

import os
import shutil
import subprocess
import sys
import unittest

RANK_PROGRAM = None
HOSTS = [f"paceline-{os.getpid()}-{letter}" for letter in "ab"]
CABLE = [f"pl{os.getpid()}{letter}" for letter in "ab"]
ADDRESSES = ["10.213.77.1", "10.213.77.2"]
SIZE, PER_HOST, SECONDS = 4, 2, 120


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def ranks(**variables):
    """Runs a rank program on each place; returns the exit codes and what was written to standard error, by rank."""
    running = []
    for rank in range(SIZE):
        environment = {
            "RANK": rank,
            "WORLD_SIZE": SIZE,
            "LOCAL_RANK": rank % PER_HOST,
            "LOCAL_WORLD_SIZE": PER_HOST,
            "MASTER_ADDR": ADDRESSES[0],
            "MASTER_PORT": 29611,
            "PACELINE_JOB": f"two hosts of process {os.getpid()}",
            **variables,
        }
        running.append(
            subprocess.Popen(
                ["ip", "netns", "exec", HOSTS[rank // PER_HOST], RANK_PROGRAM, "gloo"],
                env=os.environ | {name: str(value) for name, value in environment.items()},
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        texts = [process.communicate(timeout=SECONDS)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    return [process.returncode for process in running], texts


class TwoHosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("ip"):
            raise unittest.SkipTest("there is no ip here; install iproute2")
        cls.addClassCleanup(cls.remove)
        try:
            for host in HOSTS:
                ip("netns", "add", host)
            ip("link", "add", CABLE[0], "netns", HOSTS[0], "type", "veth", "peer", "name", CABLE[1], "netns", HOSTS[1])
            for host, end, address in zip(HOSTS, CABLE, ADDRESSES):
                ip("-n", host, "address", "add", address + "/24", "dev", end)
                for interface in (end, "lo"):
                    ip("-n", host, "link", "set", interface, "up")
        except (OSError, subprocess.CalledProcessError) as problem:
            raise unittest.SkipTest(f"no network namespaces here: {problem}") from problem

    @staticmethod
    def remove():
        for host in HOSTS:
            subprocess.run(["ip", "netns", "delete", host], capture_output=True, check=False)

    def test_agree_with_the_oracle(self):
        codes, texts = ranks()
        self.assertEqual(codes, [0] * SIZE, "\n".join(texts))
        for rank, text in enumerate(texts):
            self.assertIn(f"rank {rank} listens at {ADDRESSES[rank // PER_HOST]}", text)

    def test_loopback_is_refused_by_all(self):
        codes, texts = ranks(PACELINE_INTERFACE="lo")
        for code, text in zip(codes, texts):
            self.assertEqual(code, 2, text)
            self.assertIn("would listen at 127.0.0.1, which other hosts cannot reach", text)

    def test_an_unknown_interface_is_named(self):
        codes, texts = ranks(PACELINE_INTERFACE="nowhere")
        for rank, (code, text) in enumerate(zip(codes, texts)):
            self.assertEqual(code, 2, text)
            self.assertIn("PACELINE_INTERFACE=nowhere", text)
            self.assertIn(CABLE[rank // PER_HOST], text)


if __name__ == "__main__":
    RANK_PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
