# Two commands: `make train` and `make test`. Both install what is missing, build, and run.
BUILD ?= build
JOBS ?= $(shell nproc)
# One more than cores: some tests wait more than they compute.
TESTS_AT_ONCE ?= $(shell expr $(JOBS) + 1)

# Where `make install` puts the program, the libraries and their headers.
PREFIX ?= /usr/local

.PHONY: train training demo test quick program bench build install packages lint format asan tsan fuzz mutants clean

train: training
	$(BUILD)/bin/paceline train --workers 2

demo: program
	$(BUILD)/bin/paceline compare recipes/lc_asgd_quick.toml

# Tests share the cores, so threads that wait for work must not keep them busy.
test quick: export OMP_WAIT_POLICY ?= passive

test: build
	cd $(BUILD) && ctest --output-on-failure -j $(TESTS_AT_ONCE)

quick: build
	cd $(BUILD) && ctest --output-on-failure -j $(TESTS_AT_ONCE) -L quick

# What `paceline train` needs, and no more.
training: configure
	cmake --build $(BUILD) -j $(JOBS) --target paceline-train

# The program with all of its commands; `make bench` has what `paceline bench` starts, `make build` everything, with the tests and the examples.
program: configure
	cmake --build $(BUILD) -j $(JOBS) --target paceline-tools

bench: configure
	cmake --build $(BUILD) -j $(JOBS) --target paceline-tools paceline-bench paceline_peers

build: configure
	cmake --build $(BUILD) -j $(JOBS)

.PHONY: configure
configure: packages
	cmake -S . -B $(BUILD) -G Ninja

install: configure
	cmake --build $(BUILD) -j $(JOBS) --target paceline-tools paceline-bench paceline_libraries paceline_peers
	cmake --install $(BUILD) --prefix $(PREFIX)

packages:
	@tools/install

lint: packages
	tools/lint

format:
	git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format -i

asan tsan: packages
	cmake --preset $@
	cmake --build --preset $@ -j $(JOBS)
	ctest --preset $@

# FUZZ_SECONDS: how long each target runs.
fuzz: packages
	@tools/install clang libclang-rt-14-dev libomp-dev
	cmake --preset $@
	cmake --build --preset $@ -j $(JOBS)
	JOBS=$(JOBS) tools/fuzz build-fuzz

# Breaks the code one line at a time; the tests must notice. Works on copies in build-mutants/, which start from build/.
mutants: build
	tools/mutants

clean:
	rm -rf build build-asan build-tsan build-fuzz build-mutants
