#!/usr/bin/env python3
"""What is public does not change by accident: the list of installed headers, and every declaration in them (api.txt).

    public_test.py              compares
    public_test.py --update     writes both lists anew: then CHANGELOG.md and perhaps the version (paceline/version.h) change too
"""
import difflib
import pathlib
import re
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
API = HERE / "api.txt"
COMPONENTS = ["comm", "data_parallel", "parameter_server", "train", "program"]


def installed_headers():
    """By component, as cmake --install takes them."""
    text = (ROOT / "cmake/public_headers.cmake").read_text()
    return {name: re.findall(r"^  (\S+)$", body, re.MULTILINE) for name, body in re.findall(r"set\(PACELINE_HEADERS_(\w+)\n(.*?)\)", text, re.DOTALL)}


def plain(text):
    """Without comments and preprocessor lines, with single spaces."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"^\s*#[^\n]*(?:\\\n[^\n]*)*", "", text, flags=re.MULTILINE)
    return re.sub(r"\s+", " ", text)


def end_of(text, at):
    """Behind the brace that closes the one at `at`."""
    depth = 0
    for place in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    raise AssertionError("braces do not match")


def declarations(text):
    """The public declarations of a header in the project's style, each with its scope: "paceline::comm::World::int rank = 0, size = 1"."""
    text, found, scopes, statement, at = plain(text), [], [], "", 0

    def record(line):
        line = line.strip()
        if line and all(scope["public"] for scope in scopes) and not re.fullmatch(r"(class|struct|friend)\b[^({]*", line):
            found.append("::".join([*(scope["name"] for scope in scopes), line]))

    while at < len(text):
        character = text[at]
        if label := re.match(r"\s*(public|protected|private)\s*:(?!:)", text[at:]):
            if not statement.strip():
                scopes[-1]["public"] = label[1] == "public"
                at += label.end()
                continue
        if character == "{":
            opened = statement.strip()
            if space := re.match(r"(?:inline )?namespace ([\w:]*)$", opened):
                scopes.append({"name": space[1], "public": True})
                statement = ""
            elif kind := re.match(r"(?:template <[^{]*> |requires [^{]* )*(class|struct) (\w+)", opened):
                record(opened + " {")
                scopes.append({"name": kind[2], "public": kind[1] == "struct"})
                statement = ""
            else:
                end = end_of(text, at)
                is_body = ")" in opened and not re.search(r"\bconcept \w+ =", opened) and "=" not in opened.split(")")[-1] and not opened.startswith("enum")
                if is_body:
                    record(re.split(r"(?<=\)) : ", opened)[0])  # without what a constructor does with its arguments
                    statement = ""
                else:  # a value, or the names of an enum
                    statement += text[at:end]
                at = end
                continue
        elif character == "}":
            scopes.pop()
            statement = ""
        elif character == ";":
            record(statement)
            statement = ""
        else:
            statement += character
        at += 1
    return found


def macros(text):
    """Names only: the version's number is tested with the changelog."""
    return [f"#define {name}" for name in dict.fromkeys(re.findall(r"^\s*#define (\w+)", text, re.MULTILINE))]


def api():
    """What the headers declare that a component's header includes itself, which is what users call; then what comes along with these."""
    doors = {component: re.findall(r'^#include "(paceline/\w+/[^"]+)"', (ROOT / f"paceline/{component}.h").read_text(), re.MULTILINE)
             for component in COMPONENTS}
    called, lines, seen = set().union(*doors.values()), [], set()
    for component, installed in installed_headers().items():
        along = [header for header in installed if header not in called]
        for section, headers in ((component, doors[component]), (f"{component}: installed with them", along)):
            lines.append(f"[{section}]")
            for header in headers:
                if header not in seen:
                    seen.add(header)
                    text = (ROOT / header).read_text()
                    lines += macros(text) + declarations(text)
    return "\n".join(lines) + "\n"


class Public(unittest.TestCase):
    def test_the_list_of_headers_is_the_one_that_is_committed(self):
        done = subprocess.run([sys.executable, ROOT / "tools/public_headers", "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_the_declarations_are_those_that_are_committed(self):
        # In their order too: a struct's members are initialised by it.
        changes = list(difflib.unified_diff(API.read_text().splitlines(), api().splitlines(), "api.txt", "the headers", lineterm="", n=0))
        self.assertEqual(changes, [], "what is public has changed; where that is meant: public_test.py --update, and a line in CHANGELOG.md")

    def test_every_component_has_a_page(self):
        for component in COMPONENTS:
            page = (ROOT / f"docs/api/{component}.md").read_text()
            self.assertIn(f"paceline/{component}.h", page)
            self.assertIn(f"Paceline::{component}", page)

    def test_the_changelog_knows_the_version(self):
        header = (ROOT / "paceline/version.h").read_text()
        version = re.search(r'PACELINE_VERSION "(.*)"', header)[1]
        numbers = [re.search(rf"PACELINE_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH")]
        self.assertEqual(version, ".".join(numbers))
        self.assertIn(f"\n## {version}", (ROOT / "CHANGELOG.md").read_text())


class TheTestItself(unittest.TestCase):
    TEXT = """
        #pragma once
        #define WORD(x) x
        namespace x {
        template <class T> concept Runs = requires(T& t) { t.run(); };
        class Y;  // declared, not shown
        enum class E { one, two };
        struct S : Base {
          int a = 0;  // a comment; with a semicolon
          std::vector<int> v = {1, 2};
          explicit S(int b) : a(b) {}
          virtual void f() const { g(); }
         private:
          int hidden_;
        };
        class C {
          int hidden_ = 1;
         public:
          struct Options { bool on = true; };
          void run(const Options& options = {});
        };
        }
    """

    def test_reads_what_is_public(self):
        self.assertEqual(macros(self.TEXT) + declarations(self.TEXT), [
            "#define WORD", "x::template <class T> concept Runs = requires(T& t) { t.run(); }", "x::enum class E { one, two }", "x::struct S : Base {", "x::S::int a = 0", "x::S::std::vector<int> v = {1, 2}", "x::S::explicit S(int b)",
            "x::S::virtual void f() const", "x::class C {", "x::C::struct Options {", "x::C::Options::bool on = true",
            "x::C::void run(const Options& options = {})"])


if __name__ == "__main__":
    if "--update" in sys.argv:
        subprocess.run([ROOT / "tools/public_headers"], check=True)
        API.write_text(api())
    else:
        unittest.main()
