# The two commands a reader needs are `make demo` and `make test`; everything else is below `make help`.
# Needs: Python 3.10 or newer, a C++ compiler, make, and a package index.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Two test processes at a time, each with one thread: torch's threads would fight over the cores. Each begins with its half,
# so that tests of one file share what is made once.
TEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal
# Modules are compiled once, not again by each of the hundreds of processes that tests start.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install demo test test-evidence test-slow test-machines test-versions test-native test-arm64 test-kill test-browser test-cluster test-gpu gpu gpu-compile pages pictures stub docs test-site docs-serve check clean test-hostile-data test-kill-operations test-hostile-runs test-devices bench-audio

help:  ## what can be made
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 22

install: $(INSTALLED)  ## make .venv and install the package, the evidence and the development tools in it

# torch comes first and exactly pinned: without the pin an index may offer gigabytes of GPU libraries.
$(INSTALLED): pyproject.toml evidence/pyproject.toml constraints.txt CMakeLists.txt $(wildcard csrc/*.cpp csrc/*.hpp)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' -e evidence
	@touch $@

demo: $(INSTALLED)  ## which networks of equal size learn to copy, in 100 seconds of training at most, with a table and a figure
	$(BIN)/orthornn demo

test: $(INSTALLED)  ## the tests
	$(TEST)

test-evidence: $(INSTALLED)  ## the tests of what reproduces the papers, the leaderboard and the benchmarks
	$(TEST) evidence/tests

test-slow: $(INSTALLED)  ## the tests that take minutes
	$(TEST) -m slow tests evidence/tests

test-machines: $(INSTALLED)  ## the tests under other instruction sets, threads, signals, locales and load
	$(BIN)/python tests/machines.py

# Environments are stored in VERSIONS and reused. torch comes from the index that pip is configured for: gigabytes of GPU
# libraries unless it has CPU builds.
test-versions:  ## the core tests on the oldest, two middle and the newest torch, Python 3.10 to 3.13 (VERSIONS=folder ONLY=3.10)
	$(PYTHON) tests/versions.py $(or $(VERSIONS),build/versions) $(if $(ONLY),--only $(ONLY))

# The C++ tests need no torch. cmake comes from the package index.
NATIVE := -DORTHORNN_PYTHON=OFF -DORTHORNN_TESTS=ON
test-native: $(INSTALLED)  ## the C++ tests, as built and under the address and undefined-behavior sanitizers
	$(BIN)/python -m pip install --quiet --disable-pip-version-check cmake
	$(BIN)/cmake -S . -B build/native $(NATIVE) && $(BIN)/cmake --build build/native --parallel 2
	build/native/orthornn_tests
	$(BIN)/cmake -S . -B build/sanitized $(NATIVE) -DORTHORNN_SANITIZE=ON -DCMAKE_BUILD_TYPE=Debug
	$(BIN)/cmake --build build/sanitized --parallel 2
	build/sanitized/orthornn_tests

test-arm64: $(INSTALLED)  ## the C++ tests on an emulated arm64 (Debian: apt-get install g++-aarch64-linux-gnu qemu-user-static)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check cmake
	$(BIN)/cmake -S . -B build/arm64 $(NATIVE) -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
		-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++
	$(BIN)/cmake --build build/arm64 --parallel 2
	qemu-aarch64-static -L /usr/aarch64-linux-gnu build/arm64/orthornn_tests

test-gpu:  ## the kernels' whole suite on a GPU, with the python that has torch for CUDA (PYTHON=...)
	PYTHON=$(PYTHON) benchmarks/gpu.sh conformance --out $(or $(OUT),runs/gpu) --seconds $(or $(SECONDS),3600)

gpu:  ## on a GPU: verify, time, profile and, as far as OUT=folder SECONDS=570 reach, train
	PYTHON=$(PYTHON) benchmarks/gpu.sh --out $(or $(OUT),runs/gpu) --seconds $(or $(SECONDS),570)

gpu-compile: $(INSTALLED)  ## compile all GPU kernels without a GPU: registers, spills, shared memory
	$(BIN)/python benchmarks/compile_ahead.py --out runs/gpu-compiled.json

test-kill: $(INSTALLED)  ## a run that is killed a hundred times ends as one that was not (some minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s -m kill tests

test-hostile-data: $(INSTALLED)  ## thousands of damaged and hostile data files: each is read as it is, or is one clear error (minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s -m hostile_data tests evidence/tests

test-kill-operations: $(INSTALLED)  ## a run is killed before each of its operations on files, and resumes (some minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s -m kill_operations tests

test-hostile-runs: $(INSTALLED)  ## every command on hundreds of run directories that a stranger made (some minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s -m hostile_runs tests

bench-audio:  ## nanoseconds per sample of the C++ class for audio, next to LSTMs; RTNEURAL=folder of its sources, with Eigen
	@mkdir -p build
	$(CXX) -std=gnu++17 -O3 -march=native -Isrc/orthornn/export/audio benchmarks/audio.cpp -o build/bench-audio \
		$(if $(RTNEURAL),-DORTHORNN_RTNEURAL -DRTNEURAL_USE_EIGEN=1 -DRTNEURAL_DEFAULT_ALIGNMENT=32 \
		-I$(RTNEURAL) -I$(RTNEURAL)/modules/json -I/usr/include/eigen3)
	build/bench-audio

# Debian: apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm gcc-aarch64-linux-gnu qemu-user
test-devices: $(INSTALLED)  ## generated C on an emulated Cortex-M4 and AArch64 (Debian: see the line above in the Makefile)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s -m devices tests

test-browser: $(INSTALLED)  ## the report in a headless Chromium (Debian: apt-get install chromium)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s -m browser tests

test-cluster: $(INSTALLED)  ## a sweep over two Ray nodes, one of them killed (needs the extra `sweep`)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[sweep]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s -m cluster tests

pages: $(INSTALLED)  ## write what is in results/ into the README and the pages of the papers
	$(BIN)/python -m orthornn_evidence.papers.page
	$(BIN)/python docs/plain_reference.py
	$(BIN)/python docs/notebooks.py

pictures: $(INSTALLED)  ## draw the pictures of the documentation from the library and results/ (half a minute; NAME=speed for one)
	OMP_NUM_THREADS=1 $(BIN)/python docs/pictures.py $(NAME)

# The documentation has an environment stamp of its own, so that no other target needs its packages.
DOCS := $(VENV)/.docs
$(DOCS): $(INSTALLED) pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]' -e evidence
	@touch $@

docs: $(DOCS)  ## the documentation in docs/_build/html; executes the tutorials, warnings are errors (some minutes, then seconds)
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -b html -W --keep-going -d docs/_build/doctrees docs docs/_build/html

test-site: $(DOCS)  ## the search of the site leads to the right pages (a minute; Debian: apt-get install nodejs)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s -m site tests/test_site.py

docs-serve: docs  ## the documentation at http://localhost:8000
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory docs/_build/html 8000

stub: $(INSTALLED)  ## write the types of the compiled extension, as nanobind reads them off it
	$(BIN)/python -m pip install --quiet --disable-pip-version-check nanobind
	$(BIN)/python -m nanobind.stubgen --quiet --exclude-values --module orthornn._native --output-file src/orthornn/_native.pyi
	$(BIN)/ruff format --quiet src/orthornn/_native.pyi

check: $(INSTALLED)  ## style, types, the order of the floors, import circles, signatures, the tree of the tests, prose
	$(BIN)/ruff check src evidence tests benchmarks examples
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -m source tests

clean:  ## remove .venv and what the tools left behind
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
