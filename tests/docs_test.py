#!/usr/bin/env python3
"""The docs against the code: generated tables are those of the binary, links lead somewhere, and what is shown exists.

    tests/docs_test.py BINARY
"""
import functools
import json
import pathlib
import re
import subprocess
import sys
import tomllib
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ""
TWO_SCREENS = 120  # lines
SKIPPED = {".git", "build", "build-asan", "build-tsan", "build-cuda", "runs"}


def pages():
    """Of the tree itself: tools/mutants keeps copies of it in build-mutants."""
    inside = lambda page: page.relative_to(ROOT).parts
    return [page for page in sorted(ROOT.rglob("*.md")) if not SKIPPED & set(inside(page)) and not inside(page)[0].startswith("build")]


def code_of(text):
    """Everything that a page shows as code: fenced blocks and `spans`."""
    blocks = re.findall(r"^```.*?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
    return blocks + spans


def lines_to_read(page):
    """Without what a program wrote, and what is looked up or copied instead of read."""
    text = re.sub(r"<!-- generated: .*?<!-- end -->\n", "", page.read_text(), flags=re.DOTALL)
    if page == ROOT / "README.md":  # its programs, and the output of a run
        text = re.sub(r"^```.*?^```\n", "", text, flags=re.DOTALL | re.MULTILINE)
    if page == ROOT / "ARCHITECTURE.md" or page.parent == ROOT / "docs/results":  # which file to change for what; what commands printed
        text = re.sub(r"^\|.*\n", "", text, flags=re.MULTILINE)
    return text.splitlines()


def anchors_of(page):
    """The ids that a heading gets on the web: lower case, no punctuation, spaces as dashes."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@functools.cache
def run(*arguments):
    return subprocess.run([BINARY, *arguments], check=True, capture_output=True, text=True).stdout


def rows_of(registry):
    return json.loads(run("list", "--json"))[registry]


class Docs(unittest.TestCase):
    def test_generated_tables_are_those_of_the_code(self):
        done = subprocess.run([sys.executable, ROOT / "tools/generate_docs", BINARY, "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"run tools/generate_docs {BINARY}\n{done.stdout}{done.stderr}")

    def test_links_lead_somewhere(self):
        for page in pages():
            for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, anchor = target.partition("#")
                file = (page.parent / path) if path else page
                with self.subTest(page=page.relative_to(ROOT), link=target):
                    self.assertTrue(file.exists(), "no such file")
                    if anchor and file.suffix == ".md":
                        self.assertIn(anchor, anchors_of(file))

    def test_files_that_are_named_exist(self):
        path = re.compile(r"(?:bench|cli|cmake|docs|examples|paceline|recipes|tests|tools)/[\w./-]+\.\w+")
        for page in pages():
            for code in code_of(page.read_text()):
                if path.fullmatch(code) and not code.rpartition("/")[2].startswith("x."):  # x: what somebody will add
                    with self.subTest(page=page.relative_to(ROOT), file=code):
                        self.assertTrue((ROOT / code).exists(), "no such file")

    def test_files_that_the_architecture_names_by_room_exist(self):
        text = "".join(page.read_text() for page in [ROOT / "ARCHITECTURE.md", *(ROOT / "docs/internals").glob("*.md")])
        rooms = "|".join(folder.name for folder in (ROOT / "paceline").iterdir() if folder.is_dir())
        named = set(re.findall(rf"(?<![\w/])(?:{rooms})/[\w/]+\.(?:h|cpp|cu|cuh)\b", text))
        self.assertGreater(len(named), 50)
        missing = [file for file in sorted(named) if not file.rpartition("/")[2].startswith("x.") and not (ROOT / "paceline" / file).exists()]
        self.assertEqual(missing, [])

    def test_files_that_the_architecture_lists_of_each_room_exist(self):
        rows = re.findall(r"^\| (\w+) \| (`.*) \|$", (ROOT / "ARCHITECTURE.md").read_text().partition("## Files of each room")[2], re.MULTILINE)
        self.assertGreater(len(rows), 20)
        for room, text in rows:
            for name in re.findall(r"`([^`]+)`", text):
                place = ROOT / "paceline" / room / name
                with self.subTest(room=room, name=name):
                    self.assertTrue(place.is_dir() or any(place.with_suffix(ending).exists() for ending in (".h", ".cpp", ".cu", ".cuh")), "no such file")

    def test_pictures_stand_alone_and_are_shown(self):
        shown = {(page.parent / target).resolve() for page in pages() for target in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", page.read_text())}
        pictures = sorted((ROOT / "docs").rglob("*.svg"))
        self.assertTrue(pictures)
        for picture in pictures:
            with self.subTest(picture=picture.relative_to(ROOT)):
                text = picture.read_text()
                self.assertTrue(xml.etree.ElementTree.fromstring(text).tag.endswith("svg"))
                self.assertNotRegex(text, r"(?:href|src)=|@import|url\((?!#)", "needs something from elsewhere")
                self.assertIn(picture, shown)

    def test_every_algorithm_has_a_section_and_a_picture(self):
        page = ROOT / "docs/algorithms.md"
        for row in rows_of("collectives"):
            with self.subTest(algorithm=row["key"]):
                self.assertIn(row["key"], anchors_of(page))
                self.assertIn(f"<!-- generated: picture {row['key']} ", page.read_text())

    def test_every_strategy_and_compressor_has_a_section(self):
        for registry in ("strategies", "compressors"):
            for row in rows_of(registry):
                with self.subTest(key=row["key"]):
                    page = "server_strategies" if row["help"].startswith("parameter server") else registry
                    self.assertIn(row["key"], anchors_of(ROOT / f"docs/{page}.md"))

    def test_every_strategy_and_compressor_without_a_server_has_a_curve(self):
        curves = "".join(picture.read_text() for picture in (ROOT / "docs/results").glob("*.svg"))
        for registry in ("strategies", "compressors"):
            for row in rows_of(registry):
                if not row["help"].startswith("parameter server"):
                    with self.subTest(key=row["key"]):
                        self.assertIn(f">{row['key']}</text>", curves)

    def test_measured_speeds_of_compressors_are_those_of_the_model(self):
        """A compressor without a measured speed counts as the slowest of all."""
        measured = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|", (ROOT / "docs/results/compressors.md").read_text(), re.MULTILINE)
        assumed = re.findall(r'\{"(\w+)", ([\d.]+) / kCopy, ([\d.]+) / kCopy\}', (ROOT / "paceline/perf/coding.cpp").read_text())
        self.assertLessEqual({key for key, _, _ in assumed}, {row["key"] for row in rows_of("compressors")})
        self.assertEqual(sorted(measured), sorted(assumed))

    def test_every_rule_and_consistency_is_explained(self):
        pages = "".join((ROOT / "docs" / page).read_text() for page in ("parameter_server_algorithms.md", "local_steps.md"))
        for registry in ("update_rules", "consistencies"):
            for row in rows_of(registry):
                with self.subTest(key=row["key"]):
                    self.assertTrue(re.search(rf"(\n\* |\. )\*\*{row['key']}\*\*(:| \(| is )", pages))

    def test_a_page_fits_two_screens(self):
        for page in set(pages()) - {ROOT / "CHANGELOG.md"}:
            with self.subTest(page=page.relative_to(ROOT)):
                self.assertLessEqual(len(lines_to_read(page)), TWO_SCREENS, "split it: a page answers one question")

    def test_every_installed_header_is_on_the_page_of_its_component(self):
        listed = (ROOT / "cmake/public_headers.cmake").read_text()
        installed = {name: set(re.findall(r"^  paceline/(\S+)$", body, re.MULTILINE))
                     for name, body in re.findall(r"set\(PACELINE_HEADERS_(\w+)\n(.*?)\)", listed, re.DOTALL)}
        self.assertGreater(len(installed["comm"]), 10)
        for component, headers in installed.items():
            text = (ROOT / f"docs/api/{component}.md").read_text()
            named = {name.removeprefix("paceline/") for name in re.findall(r"[\[`\"]([\w/]+\.h)[\]`\"]", text)}
            with self.subTest(component=component):
                self.assertEqual(sorted(headers - named), [], "in a table, if users call it, or under 'Installed with them'")
                self.assertEqual(sorted(named - set().union(*installed.values())), [], "not installed")

    def test_every_page_can_be_found_from_the_readme(self):
        linked, unread = set(), [ROOT / "README.md"]
        while unread:
            page = unread.pop()
            linked.add(page)
            for target in re.findall(r"\]\(([^)\s#]+\.md)[)#]", page.read_text()):
                if (file := (page.parent / target).resolve()) not in linked and file.exists():
                    unread.append(file)
        self.assertEqual([str(page.relative_to(ROOT)) for page in pages() if page not in linked], [])

    def test_commands_that_are_shown_exist(self):
        listed = run("--help").split("Subcommands:\n")[1].split("\n\n")[0]
        known = set(re.findall(r"^  (\w+)", listed, re.MULTILINE)) | {"COMMAND"}
        self.assertIn("train", known)
        for page in pages():
            for code in code_of(page.read_text()):
                for command in re.findall(r"(?:^|[ /(])paceline ([a-zA-Z]+)", code, re.MULTILINE):
                    with self.subTest(page=page.relative_to(ROOT), code=code.strip()):
                        self.assertIn(command, known)

    def test_recipe_keys_that_are_shown_exist(self):
        known = {row["key"] for row in json.loads(run("list", "keys", "--json"))["keys"]}
        sections = "|".join({key.split(".")[0] for key in known})
        for page in pages():
            for code in code_of(page.read_text()):
                for key in re.findall(rf"(?:^|[ `])((?:{sections})\.\w+)=", code, re.MULTILINE):
                    with self.subTest(page=page.relative_to(ROOT), code=code.strip()):
                        self.assertIn(key, known)

    def test_architecture_names_the_rooms_and_their_edges(self):
        declared = {}
        for room, words in re.findall(r"^paceline_room\((\w+)([^)]*)\)", (ROOT / "paceline/CMakeLists.txt").read_text(), re.MULTILINE):
            edges = re.search(r"DEPS ((?:[a-z_]+ ?)+)", words)
            declared[room] = (set(edges[1].split()) if edges else set(), "TORCH" in words)
        told = {}
        for room, sees, torch in re.findall(r"^\| \[(\w+)\]\(paceline/\w+\) \|.*\| (.*) \| (yes|no) \|$", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE):
            told[room] = (set(re.findall(r"\w+", sees)), torch == "yes")
        self.assertEqual(told, declared)

    def test_recipes_resolve(self):
        recipes = sorted((ROOT / "recipes").glob("*.toml"))
        self.assertTrue(recipes)
        for recipe in recipes:
            with self.subTest(recipe=recipe.name):
                resolved = tomllib.loads(run("train", str(recipe), "--print-recipe"))
                for section, values in tomllib.loads(recipe.read_text()).items():
                    for key, value in values.items():
                        self.assertEqual(resolved[section][key], value, f"{section}.{key}")


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
