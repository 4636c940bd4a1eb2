"""What the command line says of itself: help, man pages and completions, of all commands and of what `make train` builds."""

import os
import re
import shutil
import subprocess
import unittest

from support import DEADLINE_S, DONE, WRONG_INPUT, CliTest


class Helping(CliTest):
    def test_every_command_has_help_with_examples(self):
        names = ["train", "graph", "list", "doctor", "bench", "checkpoint show", "checkpoint verify", "checkpoint convert", "completions", "help", "run", "algorithm", "compare", "scale", "tokenize", "evaluate", "predict", "sample"]
        for name in names:
            text = self.run_paceline(*name.split(), "--help").stdout
            self.assertIn("Examples:", text, name)
            self.assertIn("paceline " + name.split()[0], text, name)
            self.assertIn("--json", text, name)
        overview = self.run_paceline("--help").stdout
        self.assertIn("Examples:", overview)
        for name in names:
            self.assertIn(name.split()[0], overview)
        self.assertIn("Examples:", self.run_paceline("checkpoint", "--help").stdout)
        self.assertRegex(self.run_paceline("--version").stdout, r"^paceline \d+\.\d+\.\d+\n$")

    def test_help_and_man_pages(self):
        self.assertEqual(self.run_paceline("help", "train").stdout, self.run_paceline("train", "--help").stdout)
        self.assertEqual(self.run_paceline("help", "checkpoint", "show").stdout, self.run_paceline("checkpoint", "show", "--help").stdout)
        self.assertEqual(self.run_paceline("help").stdout, self.run_paceline("--help").stdout)
        self.refused("help", "trian", says=["trian", "train"])
        page = self.run_paceline("help", "--man", "train").stdout
        for part in [".TH PACELINE\\-TRAIN 1", ".SH NAME\npaceline\\-train \\- train a network\n", "\\-\\-workers", ".SH EXAMPLES\n.nf\n"]:
            self.assertIn(part, page)
        self.run_paceline("help", "--write-man", "pages")
        pages = {path.name for path in (self.folder / "pages").iterdir()}
        self.assertLessEqual({"paceline.1", "paceline-run.1", "paceline-checkpoint-convert.1", "paceline-help.1"}, pages)
        if shutil.which("groff"):
            for name in pages:
                done = subprocess.run(["groff", "-K", "utf8", "-man", "-Tutf8", "-ww", "-z", name], cwd=self.folder / "pages", capture_output=True, text=True,
                                      check=True, timeout=DEADLINE_S)
                self.assertEqual(done.stderr, "", name)

    def test_help_is_in_plain_words(self):
        self.run_paceline("help", "--write-man", "pages")  # every flag of every command, in the words of --help
        pages = {path.stem: path.read_text().replace("\\-", "-") for path in (self.folder / "pages").iterdir()}
        texts = {**pages, **{name: self.run_paceline("help", name).stdout for name in ("verify", "tokenize", "train")}}
        for name, text in texts.items():
            for leak in [r"\b(INT|UINT|FLOAT|TEXT:|REQUIRED|Needs:|Excludes:|Positionals)", r"[A-Z]:\{", r" in \[\d", r"--(json|quiet|learn) TEXT"]:
                self.assertNotRegex(text, leak, name)
        for name, flag, facts in [("scale", "mode", ["weak|strong|both", "default both"]), ("plan", "profile", ["FILE"])]:
            shown = re.search(rf"--{flag}\b.*\n.*", pages["paceline-" + name])[0]
            for fact in facts:
                self.assertIn(fact, shown)
        for name, flag, facts in [("tokenize", "output", ["FOLDER", "required"]), ("tokenize", "test-share", ["NUMBER", "from 0 to 0.9", "default 0.1"]),
                                  ("verify", "seed", ["NUMBER", "default 1", "needs --table"]), ("train", "workers", ["-n,-np,", "NUMBER"])]:
            shown = re.search(rf"^  \S*--{flag} .*(\n {{30}}.*)?", texts[name], re.MULTILINE)[0]
            for fact in facts:
                self.assertIn(fact, shown)
        for command in ["run", "train", "compare", "scale", "memory", "simulate", "plan", "probe", "profile", "algorithm", "bench"]:
            self.assertIn("-n,-np,--", pages["paceline-" + command])

    def test_the_number_of_ranks_is_given_alike(self):
        for words in [["train", "--print-recipe"], ["memory", "mlp"], ["plan", "mlp", "--cluster", "laptop"], ["simulate", "mlp", "--cluster", "laptop"],
                      ["algorithm", "ring"]]:
            documents = [self.json_of(*words, flag, "2") for flag in ("-np", "--ranks" if words[0] == "algorithm" else "--workers")]
            for document in documents:
                document.pop("simulated_in_s", None)
            self.assertEqual(*documents, words)
        self.assertEqual(self.json_of("memory", "mlp", "-np", "4")["mesh"]["data"], 4)
        done = self.run_paceline("run", "-np", "1", "--only-rank-output", "0", "--", "train", "-np", "2", "--print-recipe")  # read by both
        self.assertIn("\nworkers = 2\n", done.stdout)

    def test_commands_that_make_train_does_not_build(self):
        listed = self.run_paceline("--help").stdout.split("Subcommands:\n")[1].split("\n\n")[0]
        commands = re.findall(r"^  (\w+) ", listed, re.MULTILINE)
        self.assertIn("plan", commands)
        self.copy_programs("paceline", "paceline-train")
        built = []
        for command in commands:
            done = subprocess.run([self.folder / "a folder" / "paceline", command, "--help"], env=self.environment, capture_output=True, text=True)
            if done.returncode == DONE:
                built.append(command)
                continue
            self.assertEqual((done.returncode, done.stdout), (WRONG_INPUT, ""), done.stderr)
            for fact in [f"paceline {command}", "paceline-tools", "make program"]:
                self.assertIn(fact, done.stderr)
        self.assertEqual(built, ["train", "run", "list", "checkpoint", "help"])

    def test_help_of_what_make_train_builds(self):
        self.copy_programs("paceline", "paceline-train")
        own = self.folder / "a folder" / "paceline"

        def help_of(*words, code=DONE):
            done = subprocess.run([own, "help", *words], env=self.environment, capture_output=True, text=True, timeout=DEADLINE_S)
            self.assertEqual(done.returncode, code, done.stderr)
            return done.stdout if code == DONE else done.stderr

        self.assertEqual(help_of("checkpoint", "show"), self.run_paceline("help", "checkpoint", "show").stdout)
        self.assertEqual(help_of("--man", "train"), self.run_paceline("help", "--man", "train").stdout)
        overview = help_of()
        built, others = overview.split("make program")
        self.assertIn("\n  train ", built)
        self.assertIn("\n  plan ", others)
        for words in [["plan"], ["--man", "plan"], ["--write-man", "pages"]]:
            refusal = help_of(*words, code=WRONG_INPUT)
            for fact in ["paceline-tools", "make program"]:
                self.assertIn(fact, refusal)
        self.assertIn("train", help_of("trian", code=WRONG_INPUT))
        # The program alone, which no one starts by itself, refuses them too.
        alone = subprocess.run([own.with_name("paceline-train"), "plan", "gpt", "--rows", "3"], env=self.environment, capture_output=True, text=True)
        self.assertEqual(alone.returncode, WRONG_INPUT, alone.stderr)
        self.assertIn("make program", alone.stderr)
        self.copy_programs("paceline-tools")
        self.assertEqual(help_of("plan"), self.run_paceline("plan", "--help").stdout)
        self.assertEqual(help_of(), self.run_paceline("--help").stdout)

    def test_completions(self):
        document = self.json_of("completions", "bash")
        self.assertEqual(list(document), ["shell", "script"])
        (self.folder / "script.bash").write_text(document["script"])
        shelves = self.json_of("list")

        def complete(*words):
            line = " ".join(f"'{word}'" for word in words)
            script = f"set -e; source ./script.bash; set +e; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _paceline; "
            done = subprocess.run(["bash", "-c", script + 'printf "%s\\n" "${COMPREPLY[@]}"'], capture_output=True, text=True,
                                  cwd=self.folder, timeout=DEADLINE_S, check=True)
            return done.stdout.strip("\n").splitlines()

        self.assertEqual(complete("paceline", "tr"), ["train"])
        self.assertIn("checkpoint", complete("paceline", ""))
        self.assertEqual(complete("paceline", "graph", "resnet1"), ["resnet18"])
        self.assertIn("--resume", complete("paceline", "train", "--re"))
        self.assertEqual(complete("paceline", "bench", "reduce"), ["reduce_scatter"])
        self.assertEqual(complete("paceline", "checkpoint", "co"), ["convert"])
        # Commands of commands, and what follows a flag that takes a value.
        for words, expected in [(["checkpoint", "show", "--te"], ["--tensors"]), (["help", "checkpoint", ""], ["show", "verify", "convert"]),
                                (["scale", "--mode", ""], ["weak", "strong", "both"]), (["scale", "--mode", "=", "w"], ["weak"]),
                                (["scale", "--mode=w"], ["--mode=weak"]), (["checkpoint", "convert", "--names", "g"], ["gpt2"]),
                                (["algorithm", "--collective", "all"], ["allreduce", "all_gather", "all_to_all"]), (["study", "cc"], ["ccgrid2019"]),
                                (["completions", "z"], ["zsh"]), (["train", "-n", ""], []), (["scale", "-np", ""], [])]:
            self.assertEqual(complete("paceline", *words), expected, words)
        for flag, shelf in [("networks", "networks"), ("engines", "engines"), ("algorithms", "collectives"), ("compressors", "compressors")]:
            self.assertEqual(complete("paceline", "bench", "--" + flag, ""), [row["key"] for row in shelves[shelf]])
        (self.folder / "laptop.toml").touch()
        self.assertEqual(complete("paceline", "plan", "--cluster", "lapt"), ["laptop", "laptop.toml"])
        self.assertEqual(complete("paceline", "train", "--resume", "lapt"), ["laptop.toml"])
        self.assertNotIn("--tensors", complete("paceline", "checkpoint", "verify", "--"))
        for command in ["train", "compare", "scale", "run"]:
            self.assertIn("optim.momentum=", complete("paceline", command, "optim.m"))
        self.assertIn("compare.seeds=", complete("paceline", "compare", "compare."))
        # Behind "=": as bash cuts the words, at the "=" itself, and where COMP_WORDBREAKS leaves them whole.
        for key, shelf in [("optim.name", "optimizers"), ("model.network", "networks"), ("data.name", "datasets"), ("schedule.name", "schedules"),
                           ("strategy.name", "strategies"), ("comm.compression", "compressors"), ("comm.engine", "engines"),
                           ("comm.algorithm", "collectives"), ("ps.rule", "update_rules"), ("ps.consistency", "consistencies"), ("ps.predictor", "predictors"),
                           ("ps.executor", "executors")]:
            known = {row["key"] for row in shelves[shelf]}
            self.assertLessEqual(known, set(complete("paceline", "train", key, "=")), key)
        self.assertEqual(complete("paceline", "compare", "optim.name", "=", "ada"), ["adam", "adamw", "adagrad"])
        self.assertEqual(complete("paceline", "scale", "optim.name=ada"), ["optim.name=adam", "optim.name=adamw", "optim.name=adagrad"])
        self.assertEqual(complete("paceline", "train", "train.trace", "=", "t"), ["true"])
        (self.folder / "weights.safetensors").touch()
        self.assertEqual(complete("paceline", "train", "model.weights", "=", "wei"), ["weights.safetensors"])
        # A name with a space is one word: quoted by readline, or here where other words are offered with it.
        (self.folder / "my file.toml").touch()
        (self.folder / "train me").touch()
        self.assertEqual(complete("paceline", "train", "my"), ["my file.toml"])
        self.assertEqual(complete("paceline", "train", "data.root", "=", "my"), ["my file.toml"])
        self.assertEqual(complete("paceline", "train", "data.root=my"), ["data.root=my\\ file.toml"])
        self.assertIn("train\\ me", complete("paceline", "run", "train"))

    def test_completions_of_other_shells(self):
        known = [row["key"] for row in self.json_of("list", "optimizers")["optimizers"]]
        zsh, fish = (self.json_of("completions", shell)["script"] for shell in ("zsh", "fish"))
        for word in ["train", "--resume", "optim.name", "resnet18", *known]:
            self.assertIn(word, zsh)
            self.assertIn(word.removeprefix("--"), fish)
        for shell, script in (("zsh", zsh), ("fish", fish)):
            if shutil.which(shell):
                (self.folder / "script").write_text(script)
                subprocess.run([shell, "-n", "script"], cwd=self.folder, check=True, timeout=DEADLINE_S)
        if shutil.which("fish"):
            def complete(line):
                done = subprocess.run(["fish", "-c", f"source script; complete -C '{line}'"], cwd=self.folder, capture_output=True, text=True,
                                      check=True, timeout=DEADLINE_S, env={**os.environ, "HOME": str(self.folder)})
                return [answer.split("\t")[0] for answer in done.stdout.splitlines()]

            self.assertEqual(complete("paceline tra"), ["train"])
            self.assertEqual(set(complete("paceline train optim.name=ada")), {"optim.name=adam", "optim.name=adamw", "optim.name=adagrad"})
            self.assertIn("--resume", complete("paceline train --res"))
            self.assertEqual(complete("paceline checkpoint show --te"), ["--tensors"])
            self.assertEqual(complete("paceline checkpoint verify --ta"), [], "the flags of `paceline verify`")
            self.assertEqual(set(complete("paceline help checkpoint ")), {"show", "verify", "convert"})
            self.assertEqual(set(complete("paceline scale --mode ")), {"weak", "strong", "both"})
            self.assertEqual(complete("paceline checkpoint convert --names g"), ["gpt2"])
            (self.folder / "laptop.toml").touch()
            self.assertEqual(complete("paceline plan --cluster lapt"), ["laptop", "laptop.toml"])
        self.refused("completions", "tcsh", says=["tcsh", "zsh"])


if __name__ == "__main__":
    unittest.main()
