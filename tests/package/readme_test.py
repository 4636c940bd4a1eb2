#!/usr/bin/env python3
"""Every C++ snippet of the README compiles as it is printed, inside of what a reader would have around it.

    readme_test.py BUILD_FOLDER
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]

NET = """
  struct NetImpl : torch::nn::Module { torch::Tensor forward(const torch::Tensor& x) { return x; } };
  TORCH_MODULE(Net);
"""
DATASET = """
  struct MyDataset : torch::data::datasets::Dataset<MyDataset> {
    explicit MyDataset(const std::string&) {}
    torch::data::Example<> get(std::size_t) override { return {}; }
    torch::optional<std::size_t> size() const override { return 1; }
  };
"""

# By a word of the snippet: what stands before the function that it becomes, and at the beginning of it.
AROUND = {
    "train_program": (NET + DATASET + "torch::Tensor loss(const torch::Tensor& output, const torch::Tensor&) { return output.mean(); }",
                      "const paceline::train::Recipe defaults;"),
    "adopt": ("struct Net : torch::nn::Module {}; torch::Tensor loss_of(Net&, const torch::Tensor& x) { return x; }",
              "const int steps = 1; const torch::Tensor batch;"),
    "DataParallel": (NET, """
      Net net; const auto comm = paceline::comm::connect(); torch::Tensor loss; const std::int64_t samples = 1;
      torch::optim::SGD optimizer(net->parameters(), 0.1); paceline::ServerOptions options;"""),
    "allreduce": ("", ""),
}


def snippets():
    return re.findall(r"^```cpp\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)


def around(snippet):
    for word, pair in AROUND.items():
        if word in snippet:
            return pair
    raise AssertionError(f"AROUND has nothing for this snippet:\n{snippet}")


def compiler():
    """The command that compiles a program against all components, without its file."""
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        if "example_own_model.dir" in entry["command"] and "cmake_pch" not in entry["file"]:
            words = shlex.split(entry["command"])
            break
    name = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)[1]
    place = [pathlib.Path(word).name for word in words].index(pathlib.Path(name).name)  # a launcher may stand before it
    kept, skip = [], False
    for word in words[place + 1:]:
        if skip or word in ("-include", "-o", "-c", "-MF", "-MT"):
            skip = not skip
        elif word not in ("-MD", "-Winvalid-pch", "-Werror"):
            kept.append(word)
    return [name, *kept, "-fsyntax-only"]


class Readme(unittest.TestCase):
    def test_snippets_compile(self):
        found = snippets()
        self.assertGreaterEqual(len(found), 4)
        text = '#include <torch/torch.h>\n#include "paceline/paceline.h"\n'
        for number, snippet in enumerate(found):
            before, inside = around(snippet)
            text += f"namespace snippet_{number} {{\n{before}\nint run([[maybe_unused]] int argc, [[maybe_unused]] char** argv) {{\n{inside}\n{snippet}\nreturn 0;\n}}\n}}\n"
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "readme.cpp"
            file.write_text(text)
            done = subprocess.run([*compiler(), str(file)], capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
