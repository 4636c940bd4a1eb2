"""`paceline run` with real processes: output, signals, deaths, restarts, and nobody left over.

    python3 run_test.py BINARY
    python3 run_test.py BINARY Deaths -v    unittest's own arguments
"""

import json
import os
import re
import signal
import sys
import time
import unittest

from run_support import BINARY, DEADLINE_S, DONE, STOPPED, SLEEPER, TRAPS, RunTest


class Output(RunTest):
    def test_lines_carry_their_rank(self):
        out, err = self.run_ranks("-np", 3, "--", "sh", "-c", "echo out $RANK; echo err $RANK >&2; printf 'no newline'")
        self.assertEqual(sorted(out.splitlines()), sorted(f"[{r}] {text}" for r in range(3) for text in (f"out {r}", "no newline")))
        self.assertEqual(sorted(err.splitlines()), [f"[{r}] err {r}" for r in range(3)])

    def test_lines_are_never_torn(self):
        program = "import os, sys, time\nfor i in range(200):\n  for part in 'abc':\n    sys.stdout.write(part * 3000); sys.stdout.flush()\n  print()\n"
        out, _ = self.run_ranks("-n", 2, sys.executable, "-c", program)
        self.assertEqual(sorted(out.splitlines()), sorted(f"[{r}] " + "".join(c * 3000 for c in "abc") for r in range(2) for _ in range(200)))

    def test_a_script_can_read_one_rank(self):
        out, err = self.run_ranks("-np", 2, "--only-rank-output", 1, "sh", "-c", "printf '{\"rank\":%s}' $RANK; echo note >&2")
        self.assertEqual(out, '{"rank":1}')
        self.assertEqual(sorted(err.splitlines()), ["[0] note", "note"])
        out, _ = self.run_ranks("-np", 2, "--no-prefix", "echo", "same")
        self.assertEqual(out, "same\nsame\n")

    def test_log_dir_keeps_every_rank(self):
        self.run_ranks("-np", 2, "--log-dir", "logs/x", "sh", "-c", "echo out $RANK; sleep 0.1; echo err $RANK >&2")
        for rank in range(2):
            self.assertEqual((self.folder / f"logs/x/rank-{rank}.log").read_text(), f"out {rank}\nerr {rank}\n")
        (self.folder / "file").write_text("")
        self.refused("--log-dir", "file/x", "true", says="file/x")

    def test_rank_0_gets_the_input(self):
        out, _ = self.run_ranks("-np", 2, "sh", "-c", "read line; echo got \"$line\"", send="hello\n")
        self.assertEqual(sorted(out.splitlines()), ["[0] got hello", "[1] got "])

    def test_a_reader_that_leaves_does_not_stop_the_ranks(self):
        process = self.start("-np", 2, "sh", "-c", "echo first; sleep 0.3; for i in 1 2 3 4 5; do echo more; done; echo > done-$RANK")
        process.stdout.readline()
        process.stdout.close()
        self.assertEqual(process.wait(DEADLINE_S), DONE)
        self.assertTrue((self.folder / "done-0").exists() and (self.folder / "done-1").exists())


class Json(RunTest):
    def json_of(self, *arguments, code=DONE):
        out, err = self.run_ranks("--json", *arguments, code=code)
        return json.loads(out), err  # anything around the document would not parse

    def test_the_document(self):
        document, err = self.json_of("-np", 2, "sh", "-c", "echo out; echo err >&2")
        self.assertEqual(sorted(err.splitlines()), ["[0] err", "[0] out", "[1] err", "[1] out"])
        self.assertEqual(list(document), ["code", "seconds", "why", "failed_first", "ranks"])
        self.assertEqual((document["code"], document["why"], document["failed_first"]), (0, "", None))
        for rank, row in enumerate(document["ranks"]):
            self.assertEqual(list(row), ["rank", "name", "host", "code", "how", "restarts", "seconds"])
            self.assertEqual((row["rank"], row["name"], row["code"], row["how"]), (rank, f"rank {rank}", 0, "exited with code 0"))
            self.assertLessEqual(row["seconds"], document["seconds"])

    def test_who_failed_first_and_why(self):
        document, err = self.json_of("-np", 3, "--grace", 0.1, "--max-restarts", 1, "sh", "-c", "[ $RANK = 1 ] && exit 7; exec sleep 1000", code=7)
        self.assertEqual(document["failed_first"], document["ranks"][1])
        self.assertEqual([row["code"] for row in document["ranks"]], [128 + signal.SIGTERM, 7, 128 + signal.SIGTERM])
        self.assertEqual([row["restarts"] for row in document["ranks"]], [1, 1, 1])
        self.assertIn("rank 1 (", document["why"])
        self.assertIn(document["why"], err)  # and people read it too

    def test_servers_and_workers(self):
        document, _ = self.json_of("--servers", 1, "--workers", 2, "--grace", 0.2, "sh", "-c", "[ $PACELINE_ROLE = server ] || exit 4; exec sleep 1000", code=4)
        self.assertEqual([row["name"] for row in document["ranks"]], ["server 0", "worker 0", "worker 1"])
        self.assertTrue(document["failed_first"]["name"].startswith("worker"))

    def test_wrong_input_has_none(self):
        self.refused("--json", "no-such-program", says="no-such-program")


class Variables(RunTest):
    SHOW = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $NODE_RANK $MASTER_ADDR $MASTER_PORT $OMP_NUM_THREADS $PACELINE_JOB"

    def show(self, *arguments):
        out, _ = self.run_ranks("--no-prefix", *arguments, "--", "sh", "-c", self.SHOW)
        return sorted(line.split() for line in out.splitlines())

    def test_ranks_know_themselves(self):
        rows = self.show("-np", 2)
        self.assertEqual([row[:7] for row in rows], [[str(r), "2", str(r), "2", "0", "0", "127.0.0.1"] for r in range(2)])
        self.assertEqual(len({tuple(row[7:]) for row in rows}), 1)
        _, threads, job = rows[0][7:]
        self.assertEqual(int(threads), max(1, len(os.sched_getaffinity(0)) // 2))
        self.assertRegex(job, "^[0-9a-f]{32}$")
        self.assertNotEqual(job, self.show("-np", 1)[0][-1])

    def test_threads_that_are_set_stay(self):
        self.environment["OMP_NUM_THREADS"] = "7"
        self.assertEqual(self.show("-np", 2)[0][8], "7")

    def test_torchruns_flags(self):
        self.environment["PACELINE_JOB"] = "secret"
        rows = self.show("--nnodes=2", "--node_rank", 1, "--nproc_per_node=2", "--rdzv_endpoint", "10.0.0.1:1234", "--rdzv-id", "x", "--max_restarts", 0)
        self.assertEqual([row[:8] for row in rows], [[str(2 + r), "4", str(r), "2", "1", "1", "10.0.0.1", "1234"] for r in range(2)])
        self.assertEqual(rows[0][-1], "secret.x")
        self.assertEqual(self.show("--nnodes", 2, "--node-rank", 0, "--nproc-per-node", 1, "--master_addr", "a")[0][6:8], ["a", "29500"])
        self.assertEqual(len(self.show("--standalone", "--nproc-per-node", "cpu")), len(os.sched_getaffinity(0)))

    def test_a_recipe_or_train_runs_this_very_program(self):
        out, _ = self.run_ranks("-np", 2, "--", "train", "--help")
        self.assertEqual(len(re.findall(r"^\[\d\] Usage: paceline train", out, re.MULTILINE)), 2)


class WrongInput(RunTest):
    def test_is_refused_in_one_line(self):
        self.refused(says="paceline run -np 2 -- PROGRAM")
        self.refused("-np", 2, "no-such-program", says="no program 'no-such-program' on PATH")
        self.refused("-np", 2, "./nothing", says="no program './nothing'")
        (self.folder / "plain").write_text("text")
        self.refused("./plain", says="chmod +x")
        (self.folder / "plain").chmod(0o755)
        self.refused("./plain", says="cannot run './plain': Exec format error")
        self.refused("--nprocs-per-node", 2, "true", says="did you mean '--nproc-per-node'")
        self.refused("-np", "two", "true", says="whole number")
        self.refused("-np", 0, "true", says="at least 1")
        self.refused("--nproc-per-node", "many", "true", says="--nproc-per-node")
        self.refused("--grace", "1e300", "true", says="86400")
        self.refused("--healthy-after", "nan", "true", says="--healthy-after")
        self.refused("--master-port", 70000, "true", says="65535")
        self.refused("--rdzv-endpoint", "a:b", "true", says="host:port")
        self.refused("--nnodes", "2", "true", says="--node-rank")
        self.refused("--nnodes", "1:4", "true", says="one number of hosts")
        self.refused("--nnodes", 2, "--node-rank", 0, "true", says="--master-addr")
        several = ("--nnodes", 2, "--node-rank", 0, "--master-addr", "a")
        self.refused(*several, "true", says="PACELINE_JOB")
        key = self.folder / "key"
        key.write_text("secret\n")
        key.chmod(0o644)
        self.refused(*several, "--key-file", key, "true", says="chmod 600")
        self.refused("-x", "NOT_SET_ANYWHERE", "true", says="NOT_SET_ANYWHERE")
        self.refused("--only-rank-output", 2, "-np", 2, "true", says="0 to 1")

    def test_a_recipe_that_cannot_work_is_refused_before_any_rank_starts(self):
        self.refused("-np", 1, "nowhere.toml", says="nowhere.toml")
        self.refused("-np", 3, "--", "train", "data.batch=64", says="batch of 64")
        self.refused("-np", 3, "--", BINARY, "train", "data.batch=64", says="3 workers")
        self.refused("-np", 2, "--", "train", "optim.rat=1", says="did you mean 'rate'")
        self.refused("-np", 2, "--", "train", "--sead", 1, says="did you mean '--seed'")
        self.refused("-np", 2, "--", "train", "strategy.name=single", says="parallel.workers=2")
        self.refused("-np", 2, "--", "train", "--workers", 3, says="parallel.workers=3")
        self.refused("--servers", 1, "--workers", 2, "--", "train", "strategy.name=allreduce", says="'allreduce' has no parameter server")
        self.refused("--servers", 1, "--workers", 3, "--", "train", "strategy.name=ssgd", "data.batch=64", says="batch of 64")

    def test_hosts(self):
        self.refused("-H", "a:x", "true", says="'a:x'")
        self.refused("-H", "a:1", "-np", 2, "true", says="1 slots")
        self.refused("-H", "a", "--ssh", "/no/such/ssh", "true", says="/no/such/ssh")
        self.refused("--hostfile", "hosts.txt", "true", says="hosts.txt")
        (self.folder / "hosts.txt").write_text("a slots=2\nb slots=\n")
        self.refused("--hostfile", "hosts.txt", "true", says="hosts.txt: line 2")


class Deaths(RunTest):
    def test_exit_codes(self):
        self.run_ranks("-np", 2, "true")
        self.run_ranks("-np", 2, "sh", "-c", "exit 3", code=STOPPED)
        _, err = self.run_ranks("-np", 2, "sh", "-c", "exit $((RANK * 7))", code=7)
        self.assertRegex(err, r"^error: rank 1 \(pid \d+, host \S+\) exited with code 7 after \d s\n$")
        _, err = self.run_ranks("-np", 3, "sh", "-c", "if [ $RANK = 1 ]; then exit 3; fi; sleep 0.2", code=3)
        self.assertRegex(err, r"^error: rank 1 \(pid \d+, host \S+\) exited with code 3 after \d s\n$")
        _, err = self.run_ranks("-np", 2, "--grace", 0.1, "sh", "-c", "if [ $RANK = 1 ]; then exit 3; fi; exec sleep 100", code=3)
        self.assertRegex(err, r"^error: rank 1 \(pid \d+, host \S+\) exited with code 3 after \d s; the others were stopped\n$")
        self.run_ranks("-np", 1, "sh", "-c", "exit 42", code=42)

    def test_a_killed_rank_is_reported_once_and_takes_the_others_along(self):
        process = self.start("-np", 3, "--grace", 0.2, "sh", "-c", SLEEPER)
        pids = self.pids(6)
        victim = int((self.folder / "pid-1").read_text())
        os.kill(victim, signal.SIGKILL)
        _, err = self.finish(process, 128 + signal.SIGKILL)
        self.assertRegex(err, rf"^error: rank 1 \(pid {victim}, host \S+\) was killed by signal 9 \(SIGKILL\) after \d+ s; the others were stopped\n$")
        self.assert_gone(pids)

    def test_the_others_may_report_by_themselves(self):
        _, err = self.run_ranks("-np", 2, "--grace", 30, "sh", "-c", "[ $RANK = 0 ] && kill -9 $$; sleep 0.5; echo rank 0 is gone >&2; exit 1", code=137)
        self.assertEqual(err.splitlines()[0], "[1] rank 0 is gone")
        self.assertIn("rank 0", err.splitlines()[1])

    def test_who_does_not_listen_is_killed(self):
        process = self.start("-np", 2, "--grace", 0.3, "sh", "-c", "trap '' TERM; echo $$ > pid-$RANK; [ $RANK = 0 ] && exit 5; sleep 1000")
        pids = self.pids(2)
        self.finish(process, 5)
        self.assert_gone(pids)

    def test_kill_9_of_the_launcher_leaves_nobody(self):
        process = self.start("-np", 2, "sh", "-c", SLEEPER)
        pids = self.pids(4)
        process.kill()
        self.assert_gone(pids)

    def test_what_a_rank_leaves_behind_goes_too(self):
        self.run_ranks("-np", 2, "--grace", 0.2, "sh", "-c", "sleep 1000 & echo $! > pid-$RANK")
        self.assert_gone(self.pids(2))

    def test_restarts(self):
        program = "echo $PACELINE_RESTARTS $PACELINE_JOB; [ $PACELINE_RESTARTS = 2 ] || { [ $RANK = 0 ] || exit 9; sleep 1000; }"
        out, err = self.run_ranks("-np", 2, "--max-restarts", 3, "--grace", 0.1, "sh", "-c", program)
        rows = [line.split()[1:] for line in out.splitlines()]
        self.assertEqual(sorted(row[0] for row in rows), ["0", "0", "1", "1", "2", "2"])
        self.assertEqual(len({row[1] for row in rows}), 1)  # by which they find what they were in the middle of
        self.assertEqual(len(err.splitlines()), 2)
        self.assertIn("restart 1 of 3", err)
        self.assertIn("restart 2 of 3", err)
        _, err = self.run_ranks("-np", 1, "--max-restarts", 1, "sh", "-c", "exit 4", code=4)
        self.assertEqual([line.split(":")[0] for line in err.splitlines()], ["warning", "error"])
        _, err = self.run_ranks("-np", 1, "--max-restarts", 3, "sh", "-c", "exit 2", code=2)  # wrong input stays wrong
        self.assertEqual(len(err.splitlines()), 1)

    def test_restarts_are_counted_from_0_after_a_healthy_while(self):
        program = "[ $PACELINE_RESTARTS = 4 ] || exit 9"
        _, err = self.run_ranks("-np", 1, "--max-restarts", 1, "--healthy-after", 0, "sh", "-c", program)
        self.assertEqual(err.count("restart 1 of 1"), 4)
        self.run_ranks("-np", 1, "--max-restarts", 1, "--healthy-after", 1000, "sh", "-c", program, code=9)


class Signals(RunTest):

    def test_are_passed_on(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
            with self.subTest(number.name):
                for file in self.folder.glob("pid-*"):
                    file.unlink()
                process = self.start("-np", 2, "sh", "-c", TRAPS.format(number.name[3:]))
                self.pids(2)
                process.send_signal(number)
                out, err = self.finish(process, STOPPED)
                self.assertEqual(sorted(out.splitlines()), ["[0] got", "[1] got"])
                self.assertNotIn("error", err)  # a shell may tell how its sleep ended

    def test_ranks_have_their_time_to_stop(self):
        process = self.start("-np", 2, "--grace", 0.1, "sh", "-c", "trap 'sleep 1; echo saved; exit 3' TERM; echo $$ > pid-$RANK; while :; do sleep 0.05; done")
        self.pids(2)
        process.send_signal(signal.SIGTERM)
        out, _ = self.finish(process, STOPPED)
        self.assertEqual(sorted(out.splitlines()), ["[0] saved", "[1] saved"])

    def test_ranks_that_die_of_it(self):
        process = self.start("-np", 2, "sh", "-c", SLEEPER)
        pids = self.pids(4)
        process.send_signal(signal.SIGTERM)
        _, err = self.finish(process, 128 + signal.SIGTERM)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn("SIGTERM", err)
        self.assert_gone(pids)

    def test_the_third_kills(self):
        process = self.start("-np", 2, "sh", "-c", "trap '' INT; echo $$ > pid-$RANK; while :; do sleep 0.05; done")
        pids = self.pids(2)
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        self.finish(process, 137)
        self.assert_gone(pids)


if __name__ == "__main__":
    unittest.main()
