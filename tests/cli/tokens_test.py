"""From text to tokens, to a network, to what it says: tokenize, the dataset `tokens`, evaluate, predict, sample, GPT-2's names."""

import importlib.util
import json
import math
import re
import struct
import unicodedata
import unittest
import zlib

from support import CliTest

TEXT = ("It's a small text, isn't it? We'll see: 12 lines, 3 of them odd.\n\n  Indented  lines   here\tand there \n"
        "naïve café – 東京 42€ ½ Ⅻ \u3000wide\xa0space 🙂🙂 don'T 'twas  \n\n\nend " * 3)
GPT = ["model.network=gpt", "model.layers=2", "model.width=16", "model.heads=2", "optim.name=adamw", "optim.rate=0.003", "train.device=cpu",
       "train.threads=1", "train.epochs=1", "data.batch=4", "train.name=gpt"]


def characters_of_bytes():
    """bytes_to_unicode() of GPT-2's encoder.py."""
    keep = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    rest = [byte for byte in range(256) if byte not in keep]
    return {**{byte: chr(byte) for byte in keep}, **{byte: chr(256 + i) for i, byte in enumerate(rest)}}


def class_of(wanted):
    """The characters of some general categories, for between the brackets of a regular expression."""
    return "".join(re.escape(chr(code)) for code in range(0x110000) if unicodedata.category(chr(code))[0] == wanted)


SPACES = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
BYTES = characters_of_bytes()


class Reference:
    """GPT-2's encoder.py, with its pattern written out for Python's own re."""

    def __init__(self, merges):
        letters, numbers = class_of("L"), class_of("N")
        self.pattern = re.compile(f"'s|'t|'re|'ve|'m|'ll|'d| ?[{letters}]+| ?[{numbers}]+| ?[^{SPACES}{letters}{numbers}]+"
                                  f"|[{SPACES}]+(?![^{SPACES}])|[{SPACES}]+")
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        names = [*BYTES.values(), *("".join(pair) for pair in merges), "<|endoftext|>"]
        self.vocabulary = {name: number for number, name in enumerate(dict.fromkeys(names))}

    def words(self, text):
        return ["".join(BYTES[byte] for byte in word.encode()) for word in self.pattern.findall(text)]

    def pieces(self, word):
        pieces = list(word)
        while True:
            pairs = [pair for pair in zip(pieces, pieces[1:]) if pair in self.ranks]
            if not pairs:
                return pieces
            best = min(pairs, key=self.ranks.get)
            merged, i = [], 0
            while i < len(pieces):
                both = tuple(pieces[i:i + 2]) == best
                merged.append("".join(pieces[i:i + 2]) if both else pieces[i])
                i += 2 if both else 1
            pieces = merged

    def encode(self, text):
        return [self.vocabulary[piece] for word in self.words(text) for piece in self.pieces(word)]


def learn_merges(text, count):
    """Byte pair encoding as it is trained: the most frequent pair becomes one."""
    reference = Reference([])
    words = [list(word) for word in reference.words(text)]
    merges = []
    for _ in range(count):
        counts = {}
        for word in words:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            break
        merges.append(max(counts, key=lambda pair: (counts[pair], pair)))
        reference.ranks = {pair: rank for rank, pair in enumerate(merges)}
        words = [reference.pieces("".join(word)) for word in words]
    return merges


def tokens_in(file):
    content = file.read_bytes()
    magic, version, count = struct.unpack("<3i", content[:12])
    assert (magic, version) == (20240520, 1) and not any(content[12:1024])
    return list(struct.unpack(f"<{count}H", content[1024:]))


def png(side, colour):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(colour) * side for _ in range(side))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", side, side, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


class Tokens(CliTest):
    def write_gpt2(self, merges):
        reference = Reference(merges)
        (self.folder / "vocab.json").write_text(json.dumps(reference.vocabulary))
        (self.folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges))
        return reference

    def test_gpt2s_encoding_is_that_of_its_own_program(self):
        merges = learn_merges(TEXT, 120)
        reference = self.write_gpt2(merges)
        (self.folder / "a.txt").write_text(TEXT)
        made = self.json_of("tokenize", "a.txt", "--output", "out", "--vocabulary", "vocab.json", "--merges", "merges.txt", "--test-share", "0")
        self.assertEqual((made["encoding"], made["vocabulary"]), ("gpt2", len(reference.vocabulary)))
        expected = [reference.vocabulary["<|endoftext|>"], *reference.encode(TEXT)]
        self.assertLess(len(expected), len(TEXT.encode()) // 2)
        self.assertEqual(tokens_in(self.folder / "out/train_000000.bin"), expected)
        self.assertEqual(json.loads((self.folder / "out/tokens.json").read_text()), {"encoding": "gpt2", "vocabulary": len(reference.vocabulary)})
        self.assertEqual((self.folder / "out/merges.txt").read_text(), (self.folder / "merges.txt").read_text())

    def test_documents_shards_and_the_test_share(self):
        (self.folder / "a.txt").write_text("abcdefgh\n" * 10)
        (self.folder / "b.txt").write_text("12345678\n" * 10)
        made = self.json_of("tokenize", "a.txt", "b.txt", "--output", "out", "--test-share", "0.25", "--shard-tokens", "50", "--threads", "2")
        training = [token for i in range(3) for token in tokens_in(self.folder / f"out/train_{i:06}.bin")]
        test = tokens_in(self.folder / "out/val_000000.bin")
        whole = [256, *(b"abcdefgh\n" * 10), 256, *(b"12345678\n" * 10)]
        self.assertEqual(training + test, whole)
        self.assertEqual((made["training_tokens"], made["test_tokens"]), (len(training), len(test)))
        self.assertEqual(test[0], ord("\n"))  # a line's end begins it, so that no word is cut
        self.assertLess(abs(len(test) - 45), 9)
        self.refused("tokenize", "a.txt", "--output", "out", says=["out", ".bin"])
        self.refused("tokenize", "a.txt", "--output", "new", "--merges", "m.txt", says=["--vocabulary"])
        self.refused("tokenize", "no.txt", "--output", "new", says=["no.txt"])

    def test_bad_tokens_are_refused_before_the_run(self):
        (self.folder / "odd.bin").write_bytes(b"\1\0" * 100 + b"\1")
        (self.folder / "high.bin").write_bytes(struct.pack("<300H", *[*range(200), 300, *range(99)]))
        run = ["train", *GPT, "data.name=tokens", "data.context=8", "data.vocabulary=300"]
        self.refused(*run, "data.root=odd.bin", says=["odd.bin", "201 bytes"])
        self.refused(*run, "data.root=high.bin", says=["high.bin", "token 300", "position 200"])
        self.refused(*run, "data.root=none.bin", says=["none.bin"])


class AfterTraining(CliTest):
    def train_on_tokens(self, *more):
        text = "".join(f"{i % 10} and {i * i % 10} are digits.\n" for i in range(120))
        (self.folder / "text.txt").write_text(text)
        self.run_paceline("tokenize", "text.txt", "--output", "tokens")
        self.run_paceline("train", *GPT, "data.name=tokens", "data.root=tokens", "data.context=16", *more)

    def test_a_network_on_tokens_is_evaluated_and_sampled(self):
        self.train_on_tokens()
        summary = json.loads((self.folder / "runs/gpt/summary.json").read_text())
        found = self.json_of("evaluate", "runs/gpt")
        self.assertEqual((found["network"], found["dataset"], found["split"]), ("gpt", "tokens", "test"))
        self.assertAlmostEqual(found["loss"], summary["test_loss"], places=6)
        self.assertAlmostEqual(found["perplexity"], math.exp(found["loss"]), places=6)
        self.assertEqual(found["targets"], 16 * found["samples"])
        self.assertIn("perplexity", self.run_paceline("evaluate", "runs/gpt", "--split", "train").stdout)

        sample = ["sample", "runs/gpt", "--prompt", "1 and", "--tokens", "40"]
        first, again = self.json_of(*sample), self.json_of(*sample)
        self.assertEqual((first["prompt"], first["tokens"], first["text"]), ("1 and", again["tokens"], again["text"]))
        self.assertEqual(bytes(first["tokens"]).decode(errors="replace"), first["text"])
        self.assertNotEqual(first["tokens"], self.json_of(*sample, "--seed", "2")["tokens"])
        greedy = self.json_of(*sample, "--temperature", "0")
        self.assertEqual(greedy["tokens"], self.json_of(*sample, "--top-k", "1", "--seed", "9")["tokens"])
        done = self.run_paceline(*sample, "--temperature", "0")
        self.assertEqual(done.stdout, "1 and" + greedy["text"] + "\n")

        self.refused("predict", "runs/gpt", "a.png", says=["paceline sample"])
        self.refused("evaluate", "runs/none", says=["runs/none"])
        self.refused("sample", "runs/gpt", "data.root=elsewhere", says=["elsewhere"])
        self.refused("evaluate", "runs/gpt", "tokens", says=["'tokens'", "section.key=value"])
        (self.folder / "tokens/tokens.json").unlink()
        self.refused("sample", "runs/gpt", "data.vocabulary=257", says=["--vocabulary"])

    def test_pictures_are_classified(self):
        for split, count in (("train", 16), ("val", 4)):
            for name, colour in (("blue", (20, 30, 200)), ("red", (200, 30, 20))):
                folder = self.folder / "photos" / split / name
                folder.mkdir(parents=True)
                for i in range(count):
                    (folder / f"{i}.png").write_bytes(png(24, [min(255, c + 2 * i) for c in colour]))
        (self.folder / "r.png").write_bytes(png(40, (180, 50, 40)))
        (self.folder / "b.png").write_bytes(png(40, (40, 50, 180)))
        (self.folder / "text.png").write_text("no picture")
        self.run_paceline("train", "model.network=mlp", "model.hidden=[8]", "data.name=image_folder", "data.root=photos", "data.image_size=8",
                          "data.batch=8", "train.epochs=5", "train.device=cpu", "train.threads=1", "train.name=photos")
        self.assertEqual(self.json_of("evaluate", "runs/photos")["accuracy"], 1)
        found = self.json_of("predict", "runs/photos", "r.png", "b.png")["predictions"]
        self.assertEqual([(row["file"], row["classes"][0]["class"]) for row in found], [("r.png", "red"), ("b.png", "blue")])
        for row in found:
            self.assertAlmostEqual(sum(item["probability"] for item in row["classes"]), 1)
            self.assertGreaterEqual(row["classes"][0]["probability"], row["classes"][1]["probability"])
        lines = self.run_paceline("predict", "runs/photos", "b.png", "r.png", "--top", "1").stdout.splitlines()
        self.assertEqual([re.findall("red|blue", line) for line in lines], [["blue"], ["red"]])
        self.refused("predict", "runs/photos", "text.png", says=["text.png"])
        self.refused("predict", "runs/photos", "none.png", says=["none.png"])
        self.refused("sample", "runs/photos", "--prompt", "a", says=["paceline predict"])

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_gpt2s_names_give_pytorch_the_same_loss(self):
        import torch  # pylint: disable=import-outside-toplevel
        torch.set_num_threads(1)
        self.train_on_tokens("model.tied=true")
        found = self.json_of("evaluate", "runs/gpt")
        self.run_paceline("checkpoint", "convert", "runs/gpt", "gpt2.safetensors", "--names", "gpt2")
        content = (self.folder / "gpt2.safetensors").read_bytes()
        size = struct.unpack("<Q", content[:8])[0]
        weights = {}
        for name, item in json.loads(content[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = item["data_offsets"]
                weights[name] = torch.frombuffer(bytearray(content[8 + size + begin:8 + size + end]), dtype=torch.float32).reshape(item["shape"])
        tokens = torch.tensor(tokens_in(self.folder / "tokens/val_000000.bin"))
        windows = (len(tokens) - 1) // 16
        inputs, targets = tokens[:16 * windows].reshape(-1, 16), tokens[1:16 * windows + 1].reshape(-1, 16)
        loss = torch.nn.functional.cross_entropy(gpt2(torch, weights, inputs, heads=2).reshape(-1, 257), targets.reshape(-1)).item()
        self.assertEqual(found["samples"], windows)
        self.assertAlmostEqual(loss, found["loss"], places=5)

        # And back: a run that begins with these weights, and makes no step worth the name, has that loss.
        self.run_paceline("train", *GPT, "data.name=tokens", "data.root=tokens", "data.context=16", "model.tied=true", "train.name=back",
                          "model.weights=gpt2.safetensors", "optim.rate=1e-30", "optim.weight_decay=0", "train.steps=1")
        self.assertAlmostEqual(self.json_of("evaluate", "runs/back")["loss"], found["loss"], places=6)


def gpt2(torch, w, tokens, heads):
    """GPT2LMHeadModel's forward pass, from the names and layouts of its state_dict(): Conv1D is x W + b."""
    width = w["transformer.wte.weight"].shape[1]

    def norm(x, name):
        return torch.nn.functional.layer_norm(x, (width,), w[name + ".weight"], w[name + ".bias"], 1e-5)

    def conv1d(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    batch, time = tokens.shape
    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:time]
    mask = torch.ones(time, time, dtype=torch.bool).tril()
    for layer in range(sum(name.endswith(".ln_1.weight") for name in w)):
        h = f"transformer.h.{layer}"
        q, k, v = (part.reshape(batch, time, heads, -1).transpose(1, 2) for part in conv1d(norm(x, h + ".ln_1"), h + ".attn.c_attn").split(width, 2))
        scores = (q @ k.transpose(2, 3) / math.sqrt(width / heads)).masked_fill(~mask, -math.inf)
        x = x + conv1d((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, time, width), h + ".attn.c_proj")
        u = conv1d(norm(x, h + ".ln_2"), h + ".mlp.c_fc")
        x = x + conv1d(0.5 * u * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3))), h + ".mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w["lm_head.weight"].T


if __name__ == "__main__":
    unittest.main()
