"""Wrong input: one line that says what is wrong, exit code 2, and nothing written."""

import os
import re
import struct
import unittest
import zlib

from support import SMALL, WRONG_INPUT, CliTest


class WrongWords(CliTest):
    def test_words(self):
        self.refused("trian", says=["unknown command 'trian'", "did you mean 'train'?"])
        self.refused("checkpoint", "shwo", "x", says=["'shwo'", "'show'"])
        self.refused("train", "--sead", "1", says=["unknown flag '--sead'", "did you mean '--seed'?"])
        self.refused("train", "optim.rat=1", says=["'rat'", "did you mean 'rate'?"])
        self.refused("train", "optm.rate=1", says=["'optm'", "did you mean 'optim'?"])
        self.refused("train", "model.network=resnet", says=["model.network", "'resnet'", "did you mean 'resnet18'?"])
        self.refused("train", "data.name=cifar", says=["data.name", "did you mean 'cifar10'?"])
        self.refused("graph", "resnet5", says=["unknown network 'resnet5'", "did you mean 'resnet50'?"])
        self.refused("graph", "vgg16", "model.hiden=[3]", says=["did you mean 'hidden'?"])
        self.refused("graph", "vgg16", "--mesh", "data=4", "--hybrid", "classifier.1", says=["parallel.hybrid=classifier.1", "relu", "classifier.0"])
        self.refused("graph", "vgg16", "--mesh", "tensor=4", "--hybrid", "auto", says=["--mesh data=4"])
        self.refused("graph", "vgg16", "--hybrid", "auto", says=["--mesh data=4"])
        self.refused("graph", "gpt", "--mesh", "tensor=3", says=["4 heads", "parallel.tensor=2 or parallel.tensor=4"])
        self.refused("graph", "gpt", "--sequence", says=["--mesh tensor=2"])
        self.refused("graph", "resnet50", "model.network=vgg16", says=["model.network=vgg16", "'resnet50'"])
        self.refused("bench", "optm", says=["did you mean 'optim'?"])
        self.refused("bench", "allreduce", "--algorithms", "rign", "--sizes", "1K", "--engines", "local", says=["did you mean 'ring'?"])
        self.refused("bench", "all_gather", "--algorithms", "double_binary_tree", "--sizes", "1K", says=["all_gather"])
        self.refused("list", "network", says=["did you mean 'networks'?"])
        self.refused("completions", "tcsh", says=["bash"])
        self.refused("graph", says=["NETWORK"])
        self.assertIn("Usage", self.run_paceline(code=WRONG_INPUT).stderr)

    def test_values(self):
        self.refused("train", "optim.rate=fast", says=["optim.rate", "number", "fast"])
        self.refused("train", "data.batch=1.5", says=["data.batch", "integer"])
        self.refused("train", "data.augment=3", says=["data.augment", "boolean"])
        self.refused("train", "data.batch=0", says=["data.batch", "at least 1"])
        self.refused("train", "data.shape=[3,32]", says=["data.shape"])
        self.refused("train", "train.evaluate_every=0.5", says=["train.evaluate_every=0.5", "at least 1"])
        self.refused("train", "nonsense=1", says=["section.key=value"])
        self.refused("train", "--seed", "x", says=["--seed", "whole number", "'x'"])
        self.refused("train", "--seed", "-1", says=["--seed", "at least 0"])
        self.refused("train", "--workers", "3", says=["batch of 64", "3 workers", "63 or 66"])
        self.refused("train", "--workers", "2", "strategy.name=single", says=["parallel.workers=2"])
        self.refused("train", "train.device=cuda:99", says=["cuda:99"])
        self.refused("bench", "step", "--device", "cuda:99", says=["cuda:99"])
        self.refused("train", "train.micro_batches=65", says=["data.batch=64", "use train.micro_batches=64"])
        self.refused("train", "--workers", "16", "train.micro_batches=5", says=["4 samples", "16 workers", "use train.micro_batches=4"])
        self.refused("train", "data.batch=20000", says=["data.batch=20000", "10000"])
        self.refused("train", "schedule.name=piecewise", says=["points"])
        self.refused("train", "model.network=gpt", says=["gpt"])
        self.refused("bench", "data", "--rounds", "0", says=["--rounds", "at least 1"])

    def test_meshes(self):
        """What is advised instead of a mesh works on the same number of ranks."""
        (self.folder / "t.txt").write_text("the quick brown fox jumps over lazy dogs\n" * 90)
        gpt = ["train", "model.network=gpt", "model.layers=4", "model.width=16", "model.heads=4", "data.name=text", "data.root=t.txt",
               "data.context=8", "data.batch=24", "data.test_samples=8", "train.steps=1", "train.checkpoints=false", "--quiet"]
        for launcher, workers, mesh, advised in (([], ["--workers", "6"], "tensor=4", "data=3,pipeline=1,tensor=2"),
                                                 ([], ["--workers", "6"], "tensor=5", "data=3,pipeline=1,tensor=2"),
                                                 ([], ["--workers", "3"], "tensor=0", "data=3,pipeline=1,tensor=1"),
                                                 ([], [], "pipeline=8", "data=2,pipeline=4,tensor=1"),
                                                 (["run", "-np", "3", "--"], [], "tensor=3", "data=3,pipeline=1,tensor=1")):
            with self.subTest(mesh):
                said = self.run_paceline(*launcher, *gpt, *workers, "--mesh", mesh, code=WRONG_INPUT).stderr
                self.assertIn(f"--mesh {advised}", said)
                self.run_paceline(*launcher, *gpt, *workers, "--mesh", advised)
        self.refused(*gpt, "data.batch=16", "--workers", "9", "--mesh", "tensor=9", says=["8 ranks", "data=2,pipeline=1,tensor=4"])
        self.assertEqual(self.json_of(*gpt, "--workers", "2", "--mesh", "tensor=0")["workers"], 2)
        for command in ("train", "memory"):
            self.refused(command, "--mesh", "data=2,tensor=3", "parallel.tensor=2", says=["--mesh data=2,tensor=3", "parallel.tensor=2"])

    def test_hybrids(self):
        """What is advised instead of a refused hybrid trains."""
        train = ["train", "model.network=mlp", "model.hidden=[16,16,16]", "data.name=shapes", "data.shape=[1,8,8]", "data.batch=20",
                 "data.test_samples=20", "train.steps=1", "train.checkpoints=false", "train.device=cpu", "--quiet"]
        hybrid, remedy = "parallel.hybrid=fc*", r"; (?:use|did you mean)(?: \d+ ranks with)? (?:(--mesh \S+)|'(\w+)'|(\S+=\S+))"
        for words in ([hybrid, "--mesh", "data=2,tensor=2"], [hybrid, "--mesh", "data=2,pipeline=2", "train.micro_batches=2"],
                      [hybrid, "--mesh", "data=2", "strategy.name=local_sgd"], ["parallel.hybrid=fc9", "--mesh", "data=2"]):
            with self.subTest(words):
                error = self.refused(*train, *words, says=["parallel.hybrid"])
                mesh, name, setting = re.search(remedy, error).groups()
                if mesh:
                    self.run_paceline(*train, *words[:1], *words[3:], *mesh.split())
                elif setting:
                    self.run_paceline(*train, *words[:-1], setting)
                else:
                    self.run_paceline(*train, f"parallel.hybrid={name}", *words[1:])
        error = self.refused(*train, "parallel.hybrid=fc2", "--mesh", "data=5", says=["16 features", "leave it out, or use"])
        self.run_paceline(*train, "parallel.hybrid=fc2", *re.search(r"--mesh \S+", error)[0].split())
        error = self.refused(*train, "parallel.hybrid=relu_1", "--mesh", "data=2", says=["relu_1"])
        self.run_paceline(*train, "parallel.hybrid=" + error.split(": ")[-1].replace(", ", ","), "--mesh", "data=2")
        both = ["--mesh", "data=2", hybrid, "comm.compression=topk"]
        self.refused(*train, *both, says=["leave one of them out"])
        self.run_paceline(*train, *both[:-1])
        self.run_paceline(*train, *both[:-2], *both[-1:])

    def test_recipes(self):
        def recipe(text):
            (self.folder / "r.toml").write_text(text)
            return "r.toml"

        self.refused("train", "missing.toml", says=["missing.toml", "no such recipe"])
        self.refused("train", recipe("[optim]\nrate = 0.1\nmomentun = 0.9\n"), says=["r.toml, line 3", "did you mean 'momentum'?"])
        self.refused("train", recipe("[optim]\nrate = 'fast'\n"), says=["r.toml, line 2", "optim.rate", "number"])
        self.refused("train", recipe("[optimizer]\nrate = 1\n"), says=["r.toml", "'optimizer'", "optim"])
        self.refused("train", recipe("rate = 1\n"), says=["r.toml, line 1", "section"])
        self.refused("train", recipe("[optim\n"), says=["r.toml, line 1"])
        os.truncate(self.folder / recipe(""), 1 << 30)
        self.refused("train", "r.toml", says=["r.toml", str(1 << 30), str(1 << 20)])

    def test_places(self):
        (self.folder / "file").write_text("in the way")
        self.refused("train", *SMALL, "train.runs=file", says=["file"])
        self.refused("train", *SMALL, "train.runs=file/below", says=["file/below"])
        self.refused("train", *SMALL, "train.runs=/proc/paceline", says=["/proc/paceline"])
        self.refused("train", *SMALL, "train.name=a/b", says=["'a/b'"])
        self.refused("train", *SMALL, "model.weights=missing.safetensors", says=["missing.safetensors"])

    def test_mpi_names_its_launcher(self):
        if "mpi" not in [row["key"] for row in self.json_of("list", "engines")["engines"]]:
            self.skipTest("this build has no MPI")
        words = ["train", *SMALL, "--workers", "2", "comm.engine=mpi"]
        self.refused(*words, says=["start them with: mpirun (of ", ") -np 2 paceline train"])
        done = self.run_paceline("run", "-np", "2", "--", *words, code=WRONG_INPUT)
        self.assertRegex(done.stderr, "start it with the mpirun of .*, or use comm.engine=shm")
        self.assertNotIn("in 1 processes", done.stderr)
        self.refused("train", *SMALL, "--workers", "2", "comm.engine=shm", says=["start them with: paceline run -np 2 -- paceline train"])

    def test_an_engine_that_this_build_has_not(self):
        if "nccl" in [row["key"] for row in self.json_of("list", "engines")["engines"]]:
            self.skipTest("this build has NCCL")
        for words in [["--workers", "2"], []]:
            self.refused("train", *SMALL, *words, "comm.engine=nccl", says=["this build has no NCCL", "use comm.engine=local"])
        self.refused("bench", "allreduce", "--engines", "nccl", says=["this build has no NCCL", "use comm.engine=local"])


class WrongFiles(CliTest):
    def test_cifar(self):
        root = self.folder / "cifar"
        root.mkdir()
        train = ["train", "model.network=mlp", "data.name=cifar10", "data.root=cifar"]
        self.refused(*train, says=["cifar/data_batch_1.bin"])
        for number in range(1, 6):
            sparse_file(root / f"data_batch_{number}.bin", 30_730_000)
        sparse_file(root / "test_batch.bin", 30_729_999)
        self.refused(*train, says=["cifar/test_batch.bin", "30729999", "30730000"])
        with open(root / "data_batch_1.bin", "r+b") as file:
            file.seek(7 * 3073)
            file.write(b"\x0a")
        self.refused(*train, says=["cifar/data_batch_1.bin", "byte 21511", "label 10"])
        self.refused("train", "model.network=mlp", "data.name=cifar10", says=["data.root", "PACELINE_DATA"])

    def test_idx(self):
        root = self.folder / "mnist"
        root.mkdir()
        train = ["train", "model.network=mlp", "data.name=mnist", "data.root=mnist", "data.batch=2", "train.epochs=1"]
        pictures = struct.pack(">IIII", 0x803, 4, 28, 28) + bytes(4 * 784)
        labels = struct.pack(">II", 0x801, 4) + bytes([0, 1, 2, 9])
        for part in ["train", "t10k"]:
            (root / f"{part}-images-idx3-ubyte").write_bytes(pictures)
            (root / f"{part}-labels-idx1-ubyte").write_bytes(labels)
        self.run_paceline(*train, "--quiet")  # good as it stands

        def spoiled(name, content, *words):
            good = (root / name).read_bytes()
            (root / name).write_bytes(content)
            self.refused(*train, says=["mnist/" + name, *words])
            (root / name).write_bytes(good)

        spoiled("train-images-idx3-ubyte", b"\0\0\x09\x03" + pictures[4:], "magic")
        spoiled("train-labels-idx1-ubyte", labels[:-1] + b"\x0a", "label 10", "byte 11")
        spoiled("t10k-images-idx3-ubyte", pictures[:-1])
        spoiled("t10k-labels-idx1-ubyte", struct.pack(">II", 0x801, 3) + bytes(3), "3 labels")

    def test_pictures(self):
        train = ["train", "model.network=lenet5", "data.name=image_folder", "data.root=pictures", "data.image_size=32", "data.batch=1",
                 "train.device=cpu"]
        self.refused(*train, says=["pictures"])
        for part in ["train", "val"]:
            for kind in ["cats", "dogs"]:
                (self.folder / "pictures" / part / kind).mkdir(parents=True)
        self.refused(*train, says=["pictures/train/cats", "*.png"])
        for file in ["train/cats/1.jpg", "train/dogs/1.jpg", "val/cats/1.jpg", "val/dogs/1.jpg"]:
            (self.folder / "pictures" / file).write_bytes(b"\xff\xd8\xff\xe0 this is no picture")
        self.refused(*train, "--quiet", says=["pictures/train/", "1.jpg"])
        self.refused(*train, "--quiet", "--workers", "2", "data.batch=2", says=["pictures/train/", "1.jpg"])  # one line: whose fault it is
        (self.folder / "pictures/val/cats/2.jpg").symlink_to("nowhere.jpg")
        self.refused(*train, says=["pictures/val/cats/2.jpg", "nowhere.jpg"])
        # One that shows when there are steps already costs no more than it must: the run's folder stays.
        (self.folder / "pictures/val/cats/2.jpg").unlink()
        for kind in ["cats", "dogs"]:
            (self.folder / "pictures/train" / kind / "1.jpg").write_bytes(png(32))
        for words in [["train.checkpoints=false"], []]:
            done = self.run_paceline(*train, "--quiet", "train.epochs=1", "train.name=x", *words, code=WRONG_INPUT)
            self.assertRegex(done.stderr.splitlines()[-1], "^error: .*pictures/val/.*1.jpg")
        self.assertRegex(done.stderr, "^warning: train.name=x.*runs/x-2")  # the name was taken
        self.assertIn('"step":2', (self.folder / "runs/x/metrics.jsonl").read_text())
        self.assertEqual([file.name for file in self.checkpoints("runs/x-2")], ["step-0000000002.safetensors"])

    def test_outputs(self):
        self.run_paceline("train", *SMALL, "train.name=x", "--quiet")
        recipe = (self.folder / "runs/x/recipe.toml").read_bytes()
        (self.folder / "link").symlink_to("runs/x/recipe.toml")
        for output in ["runs/x/recipe.toml", "link"]:
            self.refused("checkpoint", "convert", "runs/x", output, says=[output, "the run itself"])
        self.assertEqual((self.folder / "runs/x/recipe.toml").read_bytes(), recipe)
        os.mkfifo(self.folder / "fifo")
        self.refused("checkpoint", "convert", "runs/x", "fifo", says=["fifo", "regular file"])
        self.refused("checkpoint", "convert", "runs/x", "runs/x/checkpoints/w.safetensors", says=["w.safetensors", "another folder"])
        for _ in range(2):
            self.run_paceline("checkpoint", "convert", "runs/x", "runs/x/w.safetensors")

    def test_text(self):
        (self.folder / "t.txt").write_text("too short")
        self.refused("train", "model.network=gpt", "data.name=text", "data.root=t.txt", says=["t.txt", "data.context"])
        self.refused("train", "model.network=gpt", "data.name=text", "data.root=none.txt", says=["none.txt"])
        (self.folder / "t.txt").write_text("enough of it " * 100)
        self.refused("train", "model.network=mlp", "data.name=text", "data.root=t.txt", "data.context=16", says=["mlp", "model.network=gpt"])


def png(size):
    """A black picture."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(size * (3 * size + 1)))) + chunk(b"IEND", b"")


def sparse_file(file, size):
    with open(file, "wb") as opened:
        opened.truncate(size)


if __name__ == "__main__":
    unittest.main()
