"""`paceline run` on several hosts: a script stands in for ssh.

    python3 run_hosts_test.py BINARY
"""

import os
import signal
import unittest

from run_support import FAILED, STOPPED, SLEEPER, TRAPS, RunTest


class OtherHosts(RunTest):
    def setUp(self):
        super().setUp()
        self.hosts = ["--ssh", self.ssh, "--master-addr", "192.0.2.1", "-H", "a:2,b:1"]

    def test_ranks_run_there(self):
        self.environment |= {"PACELINE_DATA": "/data x", "TELL": "it's $HOME"}
        program = "echo $RANK $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $FAKE_HOST $MASTER_ADDR $PACELINE_DATA $TELL $PWD $1"
        out, _ = self.run_ranks(*self.hosts, "--no-prefix", "-x", "TELL", "--", "sh", "-c", program, "x", "it's 'quoted'; $x")
        rest = f"192.0.2.1 /data x it's $HOME {self.folder} it's 'quoted'; $x"
        self.assertEqual(sorted(out.splitlines()), [f"0 0/2 0 a {rest}", f"1 1/2 0 a {rest}", f"2 0/1 1 b {rest}"])
        self.assertEqual(sorted((self.folder / "hosts").read_text().split()), ["a", "a", "b"])

    def test_hostfile_and_mixed_hosts(self):
        (self.folder / "hosts.txt").write_text("localhost slots=1\nb slots=1  # far\n")
        self.environment |= {"PACELINE_DATA": "inherited"}
        exported = ("-x", "PACELINE_DATA=first", "-x", "PACELINE_DATA=asked")
        program = "echo ${FAKE_HOST:-here} $PACELINE_DATA $PACELINE_JOB"
        out, _ = self.run_ranks("--ssh", self.ssh, "--hostfile", "hosts.txt", "--master-addr", "192.0.2.1", *exported, "sh", "-c", program)
        rows = sorted(line.split() for line in out.splitlines())
        self.assertEqual([row[:3] for row in rows], [["[0]", "here", "asked"], ["[1]", "b", "asked"]])
        self.assertEqual(len({row[3] for row in rows}), 1)
        self.assertNotEqual(rows[0][3], "")

    def test_no_process_list_shows_the_token(self):
        out, _ = self.run_ranks(*self.hosts, "--only-rank-output", 2, "sh", "-c", "echo $PACELINE_JOB; cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        token, *lists = out.splitlines()
        self.assertRegex(token, "^[0-9a-f]{32}$")
        self.assertNotIn(token, "".join(lists))

    def test_a_death_there(self):
        process = self.start(*self.hosts, "--grace", 0.2, "sh", "-c", SLEEPER)
        pids = self.pids(6)
        os.kill(int((self.folder / "pid-2").read_text()), signal.SIGKILL)
        _, err = self.finish(process, 137)
        self.assertRegex(err, r"(?m)^error: rank 2 \(host b\) was killed by signal 9 \(SIGKILL\) after \d+ s; the others were stopped$")
        self.assert_gone(pids)

    def test_exit_codes_come_back(self):
        self.run_ranks(*self.hosts, "true")
        self.run_ranks(*self.hosts, "sh", "-c", "exit 3", code=STOPPED)
        _, err = self.run_ranks(*self.hosts, "no-such-program", code=127)
        self.assertIn("no-such-program", err)

    def test_signals_reach_there(self):
        process = self.start(*self.hosts, "sh", "-c", TRAPS.format("USR1"))
        self.pids(3)
        process.send_signal(signal.SIGUSR1)
        out, _ = self.finish(process, STOPPED)
        self.assertEqual(sorted(out.splitlines()), ["[0] got", "[1] got", "[2] got"])

    def test_kill_9_of_the_launcher_leaves_nobody_there(self):
        process = self.start(*self.hosts, "sh", "-c", SLEEPER)
        pids = self.pids(6)
        process.kill()
        self.assert_gone(pids)

    def test_an_unreachable_host(self):
        _, err = self.run_ranks("--ssh", self.ssh, "-H", "unreachable", "true", code=FAILED)
        self.assertIn("No route to host", err)
        self.assertRegex(err, r"(?m)^error: rank 0 \(host unreachable\) could not be started")


if __name__ == "__main__":
    unittest.main()
