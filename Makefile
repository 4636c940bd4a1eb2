# Two commands: `make train` and `make test`. Both install what is missing, build, and run.
BUILD ?= build
JOBS ?= $(shell nproc)
# Some tests wait more than they compute.
TESTS_AT_ONCE ?= $(shell expr $(JOBS) + 1)

.PHONY: train demo test quick build install lint format asan tsan clean

train: build
	$(BUILD)/bin/paceline train --workers 2

demo: build
	$(BUILD)/bin/paceline compare recipes/lc_asgd_quick.toml

test: build
	cd $(BUILD) && ctest --output-on-failure -j $(TESTS_AT_ONCE)

quick: build
	cd $(BUILD) && ctest --output-on-failure -j $(TESTS_AT_ONCE) -L quick

build: install
	cmake -S . -B $(BUILD) -G Ninja
	cmake --build $(BUILD) -j $(JOBS)

install:
	@tools/install

lint: install
	tools/lint

format:
	git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format -i

asan tsan: install
	cmake --preset $@
	cmake --build --preset $@ -j $(JOBS)
	ctest --preset $@

clean:
	rm -rf build build-asan build-tsan
