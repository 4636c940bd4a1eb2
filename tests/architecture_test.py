"""The plan of the house, held against the code: the #includes of a room follow the edges that paceline/CMakeLists.txt declares, and use all of
them.

    python3 architecture_test.py [SOURCE_FOLDER]
"""

import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[1]
ENDINGS = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?P<name>"[^"]+"|<[^>]+>)', re.MULTILINE)
LIBTORCH = ("torch/", "ATen/", "c10/")


class Room:
    def __init__(self, arguments):
        self.name, *words = arguments.split()
        self.edges, self.torch, heading = set(), False, None
        for word in words:
            if word in ("DEPS", "LIBS", "DEFINITIONS", "TORCH", "COLD", "ALONE", "HOT", "APART"):
                heading = word
                self.torch = self.torch or word == "TORCH"
            elif heading == "DEPS":
                self.edges.add(word)


def rooms_in(text):
    """The rooms of a CMakeLists.txt by name."""
    plain = re.sub(r"#.*", "", text)
    return {room.name: room for room in map(Room, re.findall(r"paceline_room\(([^)]*)\)", plain))}


def includes_of(text):
    """(name, whether in quotes) of every #include."""
    return [(found[1:-1], found[0] == '"') for found in INCLUDE.findall(text)]


def problems_in(rooms, room, path, text):
    """What is wrong with the includes of one file of a room."""
    problems, allowed = [], rooms[room].edges | {room}
    for name, quoted in includes_of(text):
        own = name.startswith("paceline/")
        if quoted and not own:
            problems.append(f'{path}: "{name}" is not included from the root, as "paceline/…"')
        elif own and name.split("/")[1] not in allowed:
            problems.append(f'{path}: room {room} must not include "{name}"; its DEPS in paceline/CMakeLists.txt allow {sorted(allowed)}')
        if name.startswith(LIBTORCH) and not rooms[room].torch:
            problems.append(f"{path}: room {room} has no LibTorch, but includes <{name}>")
        if name == "torch/torch.h" and path.endswith((".h", ".cuh")):
            problems.append(f"{path}: a header must not include all of LibTorch; forward-declare, or include the part that is needed")
    return problems


def unused_edges(room, texts):
    """Edges of a room that no #include in the texts of its files uses."""
    used = {name.split("/")[1] for text in texts for name, quoted in includes_of(text) if quoted and name.startswith("paceline/")}
    return sorted(room.edges - used)


class Architecture(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rooms = rooms_in((SOURCE / "paceline/CMakeLists.txt").read_text())

    def files(self, folder):
        return sorted(path for path in (SOURCE / folder).rglob("*") if path.suffix in ENDINGS)

    def test_rooms_are_declared_before_they_are_used(self):
        self.assertIn("base", self.rooms)
        before = set()
        for room in self.rooms.values():  # in the order of the file, so there can be no circle
            self.assertLessEqual(room.edges, before, f"room {room.name}")
            before.add(room.name)
        folders = {path.name for path in (SOURCE / "paceline").iterdir() if path.is_dir()}
        self.assertLessEqual(folders, set(self.rooms), "a folder of paceline/ is no room")

    def test_includes_follow_the_edges(self):
        problems = []
        for room in self.rooms:
            for path in self.files(f"paceline/{room}"):
                problems += problems_in(self.rooms, room, str(path.relative_to(SOURCE)), path.read_text())
        self.assertEqual(problems, [])

    def test_every_edge_is_used(self):
        for room in self.rooms.values():
            texts = [path.read_text() for path in self.files(f"paceline/{room.name}")]
            self.assertEqual(unused_edges(room, texts), [], f"room {room.name} includes nothing of these; leave them out of its DEPS")

    def test_what_is_included_is_there(self):
        for folder in ["paceline", "cli", "bench", "tests", "examples"]:
            for path in self.files(folder):
                for name, quoted in includes_of(path.read_text()):
                    if quoted:
                        self.assertTrue((SOURCE / name).is_file() or (path.parent / name).is_file(), f"{path} includes {name}")

    def test_no_header_includes_all_of_libtorch(self):
        for folder in ["cli", "bench", "examples"]:
            for path in self.files(folder):
                if path.suffix in (".h", ".cuh"):
                    self.assertNotIn("torch/torch.h", [name for name, _ in includes_of(path.read_text())], str(path))


# What depends on a row of a table is a column of it.
TABLES = ["strategies/registry.cpp", "ps/rules/registry.cpp", "ps/consistency/registry.cpp", "ps/readings.cpp", "ps/executors.cpp", "schedule/registry.cpp",
          "schedule/pipelines/registry.cpp", "optim/registry.cpp", "data/registry.cpp", "graph/registry.cpp",
          "compress/registry.cpp", "comm/engine.cpp"]
# Keys that are also the names of something else: of what, by the last word before the comparison.
OTHER_MEANINGS = {"bf16": {"precision", "storage", "gradient_dtype", "text"}, "fp16": {"storage", "stored_gradients"}, "mpi": {"source", "transport"},
                  "random": {"graph"}, "text": {"type"}}
# A published study is about the networks that it names. (cli/plan.cpp asks for a dataset's name: DatasetKind has what it needs.)
EXEMPT = {"paceline/perf/ccgrid2019.cpp", "paceline/perf/ccgrid2019_conclusions.cpp", "cli/plan.cpp"}
KEY = re.compile(r'^\s*\{\s*"(\w+)",', re.MULTILINE)
COMPARISON = re.compile(r'(?:(\w+)(?:\(\))?\s*)?[!=]=\s*"(\w+)"|"(\w+)"\s*[!=]=')


def keys_in(text):
    """The keys of a table's rows, each at the beginning of a line."""
    return set(KEY.findall(text))


def compared_keys(keys, text):
    """The keys that a text compares something with."""
    found = [(word, left or right) for word, left, right in COMPARISON.findall(re.sub(r"//.*", "", text))]
    return [key for word, key in found if key in keys and word not in OTHER_MEANINGS.get(key, ())]


class Names(unittest.TestCase):
    def test_nobody_compares_with_the_name_of_a_row(self):
        tables = [SOURCE / "paceline" / table for table in TABLES]
        keys = set()
        for table in tables:
            found = keys_in(table.read_text())
            self.assertGreaterEqual(len(found), 3, table)
            keys |= found
        for folder in ("paceline", "cli"):
            for path in sorted(path for path in (SOURCE / folder).rglob("*") if path.suffix in ENDINGS and path not in tables):
                name, compared = str(path.relative_to(SOURCE)), compared_keys(keys, path.read_text())
                if name in EXEMPT:
                    self.assertNotEqual(compared, [], f"{name} needs no exemption")
                else:
                    self.assertEqual(compared, [], f"{name}: give the table a column, and ask that")

    def test_barks(self):
        keys = keys_in('  {"asgd", "every gradient", make},\n      {"bsp",\n "waits"},\n // {"none", "x"}\n')
        self.assertEqual(keys, {"asgd", "bsp"})
        self.assertEqual(compared_keys(keys, 'if (rule != "asgd" && "bsp" == name) // == "asgd"'), ["asgd", "bsp"])
        self.assertEqual(compared_keys(keys, 'name = "asgd"; f("bsp"); name == "other"'), [])
        self.assertEqual(compared_keys({"random"}, 'config.graph == "random" || data.name == "random" || "random" == name'), ["random"] * 2)


class TheTestItself(unittest.TestCase):
    """A guard that never barks is no guard."""

    ROOMS = rooms_in("""
        paceline_room(base LIBS fmt::fmt DEFINITIONS X=1)
        # paceline_room(ghost DEPS base)
        paceline_room(tensor DEPS base TORCH)
        paceline_room(nn DEPS base tensor
                      TORCH)
        paceline_room(step DEPS nn TORCH)
    """)

    def problems(self, room, include, path="paceline/x/y.cpp"):
        return len(problems_in(self.ROOMS, room, path, f"#pragma once\n  # include {include}\n"))

    def test_reads_rooms(self):
        self.assertEqual(list(self.ROOMS), ["base", "tensor", "nn", "step"])
        self.assertEqual(self.ROOMS["nn"].edges, {"base", "tensor"})

    def test_barks(self):
        self.assertEqual(self.problems("nn", '"paceline/base/error.h"'), 0)
        self.assertEqual(self.problems("nn", "<torch/torch.h>"), 0)
        self.assertEqual(self.problems("base", '"paceline/nn/op.h"'), 1)
        self.assertEqual(self.problems("tensor", '"paceline/nn/op.h"'), 1)
        self.assertEqual(self.problems("tensor", "<paceline/nn/op.h>"), 1)
        self.assertEqual(self.problems("step", '"paceline/tensor/arena.h"'), 1, "an edge of an edge is none")
        self.assertEqual(self.problems("nn", '"op.h"'), 1)
        self.assertEqual(self.problems("base", "<ATen/ATen.h>"), 1)
        self.assertEqual(self.problems("nn", "<torch/torch.h>", "paceline/nn/op.h"), 1)

    def test_barks_at_an_edge_that_nothing_uses(self):
        own, other = '#include "paceline/nn/op.h"', '#include "paceline/base/error.h"\n#include <tensor/x.h>'
        self.assertEqual(unused_edges(self.ROOMS["nn"], [own, other]), ["tensor"])
        self.assertEqual(unused_edges(self.ROOMS["nn"], [own, other, '#include "paceline/tensor/arena.h"']), [])


class Sizes(unittest.TestCase):
    """Files that one reads in one go, and a room of strategies that stays a list of them."""

    def lines_of(self, folder):
        files = [path for path in (SOURCE / folder).rglob("*") if path.suffix in ENDINGS]
        return {str(path.relative_to(SOURCE)): len(path.read_text(encoding="utf-8").splitlines()) for path in files}

    def test_no_file_has_more_than_350_lines(self):
        for folder in ("paceline", "cli", "bench", "tests", "examples"):
            self.assertEqual([f"{name}: {lines}" for name, lines in self.lines_of(folder).items() if lines > 350], [])

    def test_strategies_have_less_than_2000_lines(self):
        self.assertLess(sum(self.lines_of("paceline/strategies").values()), 2000)


class Index(unittest.TestCase):
    """Whoever looks for a file finds its name in ARCHITECTURE.md."""

    PLUGINS = {"networks", "rules", "consistency", "predictors", "meetings", "ops", "passes", "pipelines"}  # folders of which one file is like another
    HALVES = re.compile(r"_(cuda|kernels|absent|table)$")  # beside the file that has the name

    def named(self):
        words = re.findall(r"`([^`]*)`", (SOURCE / "ARCHITECTURE.md").read_text(encoding="utf-8"))
        return {pathlib.PurePath(word).stem for part in words for word in re.findall(r"[\w/.]+", part)}

    def test_every_file_of_a_room_is_named_or_a_plugin(self):
        named = self.named()
        keys = set().union(*(keys_in((SOURCE / "paceline" / table).read_text(encoding="utf-8")) for table in TABLES))  # plug-ins' names
        missing = []
        for room in sorted(path for path in (SOURCE / "paceline").iterdir() if path.is_dir()):
            files = [path for path in room.rglob("*") if path.suffix in ENDINGS]
            for path in files:
                stems = {path.stem, self.HALVES.sub("", path.stem)}
                if not stems & (named | keys) and path.parent.name not in self.PLUGINS:
                    missing.append(str(path.relative_to(SOURCE)))
        self.assertEqual(missing, [], "name them in ARCHITECTURE.md, under 'Files of each room'")


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
