"""Two "hosts" on one machine: network namespaces joined by a veth pair whose ends send 1 Gbit/s each (token bucket). An allreduce of 64 MiB
must send across it only what it must, flat and hierarchical; how much of the link's speed it reaches is printed. Namespaces are made and removed here;
where they are not allowed this says so and is skipped (exit code 77).

    python3 link_test.py FOLDER_OF_PROGRAMS
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

PROGRAMS = pathlib.Path(sys.argv.pop(1))
NAMES = [f"paceline{os.getpid()}a", f"paceline{os.getpid()}b"]
ADDRESSES = ["10.219.7.1", "10.219.7.2"]
LINK_BYTES_PER_S = 1e9 / 8
MESSAGE = 64 << 20


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


def make_hosts():
    for name in NAMES:
        ip("netns", "add", name)
    ip("link", "add", "pveth0", "netns", NAMES[0], "type", "veth", "peer", "name", "pveth1", "netns", NAMES[1])
    for index, (name, address) in enumerate(zip(NAMES, ADDRESSES)):
        inside = ["-n", name]
        ip(*inside, "addr", "add", f"{address}/24", "dev", f"pveth{index}")
        ip(*inside, "link", "set", f"pveth{index}", "up")
        ip(*inside, "link", "set", "lo", "up")
        subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", f"pveth{index}", "root", "tbf", "rate", "1gbit", "burst", "256k", "latency", "50ms"],
                       check=True, capture_output=True)


def remove_hosts():
    for name in NAMES:
        ip("netns", "del", name, check=False)


def sent_bytes(host):
    path = f"/sys/class/net/pveth{host}/statistics/tx_bytes"
    return int(subprocess.run(["ip", "netns", "exec", NAMES[host], "cat", path], check=True, capture_output=True, text=True).stdout)


def start_ranks(per_host, *words, seconds=120):
    """What the ranks of a program on both hosts wrote to standard output, by rank."""
    port, processes = "29611", []
    for rank in range(2 * per_host):
        host = rank // per_host
        variables = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(2 * per_host), LOCAL_RANK=str(rank % per_host), LOCAL_WORLD_SIZE=str(per_host),
                         MASTER_ADDR=ADDRESSES[0], MASTER_PORT=port, PACELINE_JOB=f"hosts of process {os.getpid()}")
        processes.append(subprocess.Popen(["ip", "netns", "exec", NAMES[host], *words], env=variables, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True))
    try:
        outputs = [process.communicate(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, outputs):
        assert process.returncode == 0, errors
    return [output for output, _ in outputs]


def run_ranks(per_host, algorithm, size):
    """Seconds of one allreduce, as rank 0 measured it, and the bytes that host 0 sent meanwhile for each call."""
    before = sent_bytes(0)
    outputs = start_ranks(per_host, PROGRAMS / "bench_rank", "gloo", str(2 * per_host), "allreduce", algorithm, str(size), "cpu")
    calls = 1 + 2 + 7  # as bench/ranks/time_collective.h counts them: over this link one takes longer than a batch may
    return float(outputs[0].split()[1]), (sent_bytes(0) - before) / calls


class TwoHosts(unittest.TestCase):
    def test_an_allreduce_fills_the_link(self):
        seconds, sent = run_ranks(1, "auto", MESSAGE)
        least = MESSAGE / LINK_BYTES_PER_S  # two ranks: each sends 2 (p - 1)/p n = n bytes
        print(f"64 MiB over 1 Gbit/s: {seconds:.3f} s, {least / seconds:.1%} of what the link allows")
        self.assertTrue(MESSAGE < sent < MESSAGE * 1.10, sent)
        self.assertGreater(seconds, 0.9 * least)  # the bucket really holds it back; how close it comes is printed, not tested

    def test_hierarchical_sends_only_what_it_must(self):
        seconds, sent = run_ranks(2, "hierarchical", MESSAGE)
        share = MESSAGE / LINK_BYTES_PER_S / seconds
        print(f"4 ranks on 2 hosts: {seconds:.3f} s, {share:.1%} of what the link allows; host 0 sent {sent / 2**20:.1f} MiB a call of 64 MiB")
        self.assertTrue(MESSAGE < sent < MESSAGE * 1.10, sent)  # n bytes, and the headers of its packets

    def test_a_probe_finds_the_link(self):
        outputs = start_ranks(2, PROGRAMS / "paceline", "probe", "--device", "cpu", "--seconds", "0", "-o", "-", "--json", seconds=240)
        self.assertEqual(outputs[1:], ["", "", ""])  # rank 0 alone speaks
        cluster = json.loads(outputs[0])["cluster"]
        self.assertEqual((cluster["hosts"], cluster["devices"]), (2, 2))
        between, inside = cluster["between"], cluster["inside"]
        print(f"probe: {between['bandwidth']['value'] / LINK_BYTES_PER_S:.1%} of the link's bandwidth")
        self.assertNotEqual(inside["name"], between["name"])
        self.assertEqual({link["bandwidth"]["source"] for link in (inside, between)}, {"measured"})
        self.assertLess(between["bandwidth"]["value"], 1.2 * LINK_BYTES_PER_S)  # a busy machine makes it less, nothing makes it more


if __name__ == "__main__":
    if not (shutil.which("ip") and shutil.which("tc")):
        print("skipped: there is no ip or tc here; install iproute2")
        sys.exit(77)
    try:
        make_hosts()
    except (OSError, subprocess.CalledProcessError) as problem:
        remove_hosts()
        print(f"skipped: this machine allows no network namespaces ({problem})")
        sys.exit(77)
    try:
        result = unittest.main(exit=False).result
    finally:
        remove_hosts()
    sys.exit(0 if result.wasSuccessful() else 1)
