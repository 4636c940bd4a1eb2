#!/usr/bin/env python3
"""Paceline as others meet it: installed into an empty prefix, moved, found by CMake and pkg-config; and as a subfolder of another project.

Three programs (collectives, a loop of its own, a Trainer) are built against the installed package. --all builds them from the sources too, by
add_subdirectory, and against all of Paceline as shared libraries, which compiles nearly everything twice; otherwise only the first one is.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from public_test import installed_headers


def arguments():
    """unittest gets what is left over, such as the names of tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="needs what `make install` builds; further arguments are unittest's, for example Installed.test_pkg_config or -v")
    parser.add_argument("build", metavar="BUILD_FOLDER", type=pathlib.Path, help="of a build with PACELINE_INSTALL=ON")
    parser.add_argument("--all", action="store_true", help="build all three programs in every way (takes about as long as two full builds)")
    known, sys.argv[1:] = parser.parse_known_args()
    if not (known.build / "CMakeCache.txt").exists():
        parser.error(f"{known.build} is not a build folder: it has no CMakeCache.txt")
    return known


ARGUMENTS = arguments()
BUILD, ALL = ARGUMENTS.build.resolve(), ARGUMENTS.all
HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
COMPONENTS = ["comm", "data_parallel", "parameter_server", "train", "program"]
DEADLINE_S = 1000


def run(*words, code=0, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=DEADLINE_S, check=False, **more)
    assert code is None or done.returncode == code, f"{words} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


def cached(name):
    """What the build was configured with; empty where nobody said anything."""
    found = re.search(rf"^{name}:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)
    return found[1] if found else ""


COMPILER = cached("CMAKE_CXX_COMPILER")
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="paceline-package-"))
PREFIX = FOLDER / "moved here"  # nothing in it may name the folder that it was installed to


def setUpModule():
    unittest.addModuleCleanup(shutil.rmtree, FOLDER)
    run("cmake", "--install", BUILD, "--prefix", FOLDER / "first")
    (FOLDER / "first").rename(PREFIX)


def configure(name, *words, code=0):
    """The stranger's project, in a folder of that name."""
    return run("cmake", "-S", HERE / "consumer", "-B", FOLDER / name, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
               f"-DCMAKE_PREFIX_PATH={PREFIX};{cached('CMAKE_PREFIX_PATH')}", *words, code=code)


def pkg_config(prefix, *words):
    """The last word is a component."""
    plain = FOLDER / f"plain-{'-'.join(prefix.name.split())}"  # a shell would cut a name with a space
    if not plain.exists():
        plain.symlink_to(prefix)
    folder = next(plain.glob("**/paceline-comm.pc")).parent
    words = [*words[:-1], f"paceline-{words[-1]}"]
    return run("pkg-config", f"--define-variable=prefix={plain}", *words, env={**os.environ, "PKG_CONFIG_PATH": str(folder)}).stdout.split()


# LibTorch's headers that take seconds to read, the largest first. One that a header includes anyway is put before it precompiled, so that
# most take a third of the time, and what a header forgot to include is still missed.
HEAVY = ["torch/nn/module.h", "ATen/core/Tensor.h"]


def includes(header):
    """What a public header includes, and what the public headers among these do."""
    found = set()
    for name in re.findall(r'^#include [<"]([^>"]+)[>"]', header.read_text(), re.MULTILINE):
        found.add(name)
        if (PREFIX / "include" / name).exists():
            found |= includes(PREFIX / "include" / name)
    return found


def precompile(name, flags):
    """A header that includes that one, beside its precompiled form; compilers take the latter where they can."""
    header = FOLDER / f"{pathlib.Path(name).stem}_ahead.h"
    header.write_text(f"#include <{name}>\n")
    run(COMPILER, *flags, "-x", "c++-header", header, "-o", f"{header}.gch")
    return header


class ThreePrograms(unittest.TestCase):
    def check_programs(self, folder, programs):
        launch = [PREFIX / "bin/paceline", "run", "-np", "2", "--no-prefix", "--"]
        if "collectives" in programs:
            lines = run(*launch, folder / "collectives").stdout.splitlines()
            self.assertEqual(sorted(lines), ["rank 0 of 2: 3", "rank 1 of 2: 3"])
        if "own_loop" in programs:
            lines = run(*launch, folder / "own_loop").stdout.splitlines()
            self.assertEqual(sorted(lines), ["rank 0 of 2: equal", "rank 1 of 2: equal"])
        if "own_module" in programs:
            self.assertIn("test loss small", run(folder / "own_module", cwd=FOLDER).stdout)


class Installed(ThreePrograms):
    def test_three_programs_find_the_installed_package(self):
        programs = ["collectives", "own_loop", "own_module"]
        configure("installed")
        run("cmake", "--build", FOLDER / "installed")
        self.check_programs(FOLDER / "installed", programs)
        # Collectives load no LibTorch.
        self.assertNotIn("libtorch", run("ldd", FOLDER / "installed/collectives").stdout)

    def test_comm_alone_is_found_without_libtorch(self):
        done = configure("comm", "-DPROGRAMS=collectives", "-DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON")
        self.assertNotIn("Torch", (FOLDER / "comm/CMakeCache.txt").read_text().replace("CMAKE_DISABLE_FIND_PACKAGE_Torch", ""), done.stdout)

    def test_what_is_not_there_is_refused(self):
        text = 'cmake_minimum_required(VERSION 3.22)\nproject(x LANGUAGES CXX)\nfind_package(Paceline {} REQUIRED COMPONENTS {})\n'
        for version, component, says in [("9.0", "comm", "9.0"), ("0.1", "comm", "0.1"), ("0.2", "con", "con")]:
            project = FOLDER / f"wrong-{version}-{component}"
            project.mkdir()
            (project / "CMakeLists.txt").write_text(text.format(version, component))
            done = run("cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={PREFIX}", code=1)
            self.assertIn(says, done.stderr)
        self.assertIn("data_parallel", done.stderr)  # what there is

    def test_pkg_config(self):
        folder = next(PREFIX.rglob("paceline-comm.pc")).parent
        for component in COMPONENTS:
            run("pkg-config", "--exists", "--print-errors", f"paceline-{component} >= 0.2", env={**os.environ, "PKG_CONFIG_PATH": str(folder)})
        flags = pkg_config(PREFIX, "--cflags", "--libs", "comm")
        run(COMPILER, "-std=c++20", HERE / "consumer/collectives.cpp", *flags, "-o", FOLDER / "by_pkg_config")
        self.assertEqual(run(FOLDER / "by_pkg_config").stdout, "rank 0 of 1: 1\n")
        if ALL:  # LibTorch's own flags
            flags = pkg_config(PREFIX, "--cflags", "--libs", "data_parallel")
            run(COMPILER, "-std=c++20", HERE / "consumer/own_loop.cpp", *flags, "-o", FOLDER / "own_loop_by_pkg_config")
            self.assertEqual(run(FOLDER / "own_loop_by_pkg_config").stdout, "rank 0 of 1: equal\n")

    def test_the_public_headers_are_installed_and_no_others(self):
        installed = {str(path.relative_to(PREFIX / "include")) for path in (PREFIX / "include").rglob("*.h")}
        self.assertEqual(installed, {path for paths in installed_headers().values() for path in paths})

    def test_every_header_compiles_alone_without_a_warning(self):
        # With the flags of pkg-config, whose -I hides no warning; CMake takes the headers of an installed package for a system's.
        flags = {component: ["-std=c++20", "-Wall", "-Wextra", "-Werror", *pkg_config(PREFIX, "--cflags", component)] for component in COMPONENTS}
        precompiled = {name: precompile(name, flags["data_parallel"]) for name in HEAVY}

        def compiles(component, header):
            needed = includes(PREFIX / "include" / header) if component != "comm" else {}  # paceline.h includes what is linked
            ahead = next((["-include", precompiled[name]] for name in HEAVY if name in needed), [])
            run(COMPILER, *flags[component], "-fsyntax-only", "-x", "c++", *ahead, "-include", header, "/dev/null")

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            tasks = [pool.submit(compiles, component, header) for component, headers in installed_headers().items() for header in headers]
        for task in tasks:
            task.result()

    def test_no_installed_file_names_a_folder_of_this_machine(self):
        for path in [*PREFIX.rglob("*.cmake"), *PREFIX.rglob("*.pc")]:
            for folder in (SOURCE, BUILD, FOLDER):
                self.assertNotIn(str(folder), path.read_text(), path)

    def test_man_pages_and_completions(self):
        share = PREFIX / "share"
        for page in ["paceline", "paceline-train", "paceline-checkpoint-show"]:
            self.assertIn(".SH NAME", (share / f"man/man1/{page}.1").read_text())
        for file in ["bash-completion/completions/paceline", "zsh/site-functions/_paceline", "fish/vendor_completions.d/paceline.fish"]:
            self.assertIn("train", (share / file).read_text())
        self.assertTrue((share / "paceline/recipes/mnist_lenet5.toml").exists())

    def test_benchmarks_find_the_programs_that_they_start(self):
        done = run(PREFIX / "bin/paceline", "bench", "allreduce", "--ranks", "2", "--engines", "local", "--sizes", "1K", "--rounds", "1", "--json")
        self.assertIn("memory roofline", done.stdout)
        self.assertTrue((PREFIX / "libexec/paceline/pytorch_step.py").exists())


class SharedLibraries(ThreePrograms):
    """Shared libraries, with headers in a folder that is not the usual one."""

    def test_programs_link_and_load_them(self):
        programs = ["collectives", "own_loop", "own_module"] if ALL else ["collectives"]
        build, prefix = FOLDER / "shared", FOLDER / "shared prefix"
        run("cmake", "-S", SOURCE, "-B", build, "-G", "Ninja", "-DBUILD_SHARED_LIBS=ON", "-DPACELINE_TESTS=OFF", "-DPACELINE_PROGRAM=OFF",
            f"-DPACELINE_COMPONENTS={'train' if ALL else 'comm'}", "-DCMAKE_INSTALL_INCLUDEDIR=include/deep",
            f"-DCMAKE_PREFIX_PATH={cached('CMAKE_PREFIX_PATH')}")
        run("cmake", "--build", build, "--target", "paceline_libraries")
        run("cmake", "--install", build, "--prefix", prefix)
        # The other prefix is not looked at: its libraries are static.
        configure("by_shared", f"-DCMAKE_PREFIX_PATH={prefix};{cached('CMAKE_PREFIX_PATH')}", f"-DPROGRAMS={';'.join(programs)}")
        run("cmake", "--build", FOLDER / "by_shared")
        self.check_programs(FOLDER / "by_shared", programs)
        for program in programs:
            self.assertRegex(run("ldd", FOLDER / "by_shared" / program).stdout, r"libpaceline_comm\.so\.\d+\.\d+ => /")
        flags = pkg_config(prefix, "--cflags", "--libs", "comm")
        run(COMPILER, "-std=c++20", HERE / "consumer/collectives.cpp", *flags, f"-Wl,-rpath,{next(prefix.rglob('libpaceline_comm.so')).parent}", "-o", FOLDER / "shared_by_pkg_config")
        self.assertEqual(run(FOLDER / "shared_by_pkg_config").stdout, "rank 0 of 1: 1\n")


class Subfolder(ThreePrograms):
    """The same programs with Paceline's sources as a part of the project."""

    ccache = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []

    def test_comm_alone(self):
        configure("sub_comm", f"-DPACELINE_SOURCE={SOURCE}", "-DPACELINE_COMPONENTS=comm", "-DPROGRAMS=collectives", "-DPACELINE_INSTALL=ON",
                  "-DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON", *self.ccache)
        run("cmake", "--build", FOLDER / "sub_comm")
        self.check_programs(FOLDER / "sub_comm", ["collectives"])
        # A project may install Paceline with itself.
        run("cmake", "--install", FOLDER / "sub_comm", "--prefix", FOLDER / "with project")
        for file in ("libpaceline_comm.a", "PacelineConfig.cmake"):
            self.assertEqual(len(list((FOLDER / "with project").rglob(file))), 1, file)
        self.assertTrue((FOLDER / "with project/include/paceline/comm.h").exists())

    def test_fetch_content(self):
        configure("fetched", f"-DPACELINE_SOURCE={SOURCE}", "-DBY_FETCH=ON", "-DPACELINE_COMPONENTS=comm", "-DPROGRAMS=collectives",
                  "-DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON", *self.ccache)
        plan = run("ninja", "-C", FOLDER / "fetched", "-t", "commands", "all").stdout
        self.assertIn("libpaceline_comm.a", plan)
        self.assertLessEqual(plan.count(" -c "), 20, plan)
        if ALL:
            run("cmake", "--build", FOLDER / "fetched")
            self.check_programs(FOLDER / "fetched", ["collectives"])

    def test_a_project_may_build_the_program_too(self):
        configure("sub_program", f"-DPACELINE_SOURCE={SOURCE}", "-DPACELINE_PROGRAM=ON", "-DPACELINE_INSTALL=ON", "-DPROGRAMS=collectives", *self.ccache)
        targets = run("ninja", "-C", FOLDER / "sub_program", "-t", "targets", "all").stdout
        for program in ("paceline", "paceline-train", "paceline-tools", "paceline-bench", "bench_rank"):  # side by side: they start each other
            self.assertIn(f"\npaceline/bin/{program}:", targets)
        if ALL:
            run("cmake", "--build", FOLDER / "sub_program", "--target", "paceline-train")
            self.assertIn("0.2", run(FOLDER / "sub_program/paceline/bin/paceline", "--version").stdout)

    def test_a_project_compiles_what_it_links_and_no_more(self):
        configure("sub", f"-DPACELINE_SOURCE={SOURCE}", "-DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON", *self.ccache)
        plan = run("ninja", "-C", FOLDER / "sub", "-t", "commands", "all").stdout
        for unwanted in ("/cli/", "/bench/", "/tests/base", "libpaceline_program"):
            self.assertNotIn(unwanted, plan)
        steps = {program: run("ninja", "-C", FOLDER / "sub", "-t", "commands", program).stdout.count(" -c ") for program in ("collectives", "own_loop", "own_module")}
        self.assertLessEqual(steps["collectives"], 20, steps)  # was 86
        self.assertLessEqual(steps["own_loop"], 36, steps)     # was 109
        self.assertLess(steps["own_loop"], steps["own_module"])
        if ALL:
            run("cmake", "--build", FOLDER / "sub")
            self.check_programs(FOLDER / "sub", ["collectives", "own_loop", "own_module"])

    def test_without_libtorch_the_message_names_the_way_out(self):
        done = configure("sub_none", f"-DPACELINE_SOURCE={SOURCE}", "-DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON", code=1)
        self.assertIn("PACELINE_COMPONENTS=comm", done.stderr)
        done = configure("sub_wrong", f"-DPACELINE_SOURCE={SOURCE}", "-DPACELINE_COMPONENTS=com", code=1)
        self.assertIn("data_parallel", done.stderr)


if __name__ == "__main__":
    unittest.main()
