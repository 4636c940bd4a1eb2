# Two commands: `make train` and `make test`. Both install what is missing, build, and run.
BUILD ?= build
JOBS ?= $(shell nproc)

.PHONY: train demo test quick build install lint format asan tsan clean

train: build
	$(BUILD)/bin/paceline train --workers 2

demo: build
	$(BUILD)/bin/paceline compare recipes/lc_asgd_quick.toml

test: build
	cd $(BUILD) && ctest --output-on-failure -j 2

quick: build
	cd $(BUILD) && ctest --output-on-failure -j 2 -L quick

build: install
	cmake -S . -B $(BUILD) -G Ninja
	cmake --build $(BUILD) -j $(JOBS)

install:
	@tools/install

lint: build
	tools/lint $(BUILD)

format:
	git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format -i

asan tsan: install
	cmake --preset $@
	cmake --build --preset $@ -j $(JOBS)
	ctest --preset $@

clean:
	rm -rf build build-asan build-tsan
