# `make demo` and `make test` need only Python (3.10-3.13) and make: each prepares .venv, installs, and runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
SOURCES := pyproject.toml
LOWEST := .venv-lowest
LOWEST_TESTS := tests/end_to_end tests/text tests/cli tests/persistence
PYENV := $(or $(PYENV_ROOT),$(HOME)/.pyenv)

.PHONY: demo test test-slow lint bench bench-leml bench-reml bench-baselines figures clean

demo: $(VENV)/.core
	$(BIN)/tagwise demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

# The lowest versions that pyproject.toml allows, on Python 3.10 where there is one.
.PHONY: test-lowest
test-lowest: $(LOWEST)/.test
	$(LOWEST)/bin/python -m pytest -n auto --dist loadfile $(or $(ARGS),$(LOWEST_TESTS))

test-slow: $(VENV)/.test
	$(BIN)/python -m pytest -m slow $(ARGS)

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.test
	$(BIN)/python benchmarks/kernels/run.py
	$(BIN)/python benchmarks/reading.py
	$(BIN)/python benchmarks/start_up.py

bench-leml: $(VENV)/.test
	$(BIN)/python benchmarks/leml.py

# LEML's objective against seconds beside that of an earlier version; needs TAGWISE_DATA and EARLIER=<a checkout>.
.PHONY: bench-leml-versions
bench-leml-versions: $(VENV)/.test
	$(BIN)/python benchmarks/leml_versions.py --earlier $(EARLIER)

bench-reml: $(VENV)/.test
	$(BIN)/python benchmarks/reml.py

bench-baselines: $(VENV)/.test
	$(BIN)/python benchmarks/baselines.py

# Installs each peer into an environment of its own, outside the repository; needs TAGWISE_DATA.
.PHONY: bench-peers
bench-peers: $(VENV)/.test
	$(BIN)/python benchmarks/peers/run.py $(ARGS)

# Cascade's time and memory against rows, features and labels: half an hour on two cores.
.PHONY: bench-growth
bench-growth: $(VENV)/.test
	$(BIN)/python benchmarks/growth.py $(ARGS)

# Exact top-k beside BLAS, one-row answers and the approximate index; needs TAGWISE_DATA.
.PHONY: bench-prediction
bench-prediction: $(VENV)/.test
	$(BIN)/python benchmarks/prediction.py $(ARGS)

# Labels chosen for a purpose, on validation rows; needs TAGWISE_DATA.
.PHONY: bench-purposes
bench-purposes: $(VENV)/.test
	$(BIN)/python benchmarks/purposes.py $(ARGS)

# The shape of LEML's largest problem: 5 GB of memory, a quarter of an hour or more on two cores; needs TAGWISE_DATA.
.PHONY: bench-wiki
bench-wiki: $(VENV)/.test
	$(BIN)/python benchmarks/wiki.py $(ARGS)

# The README's table and the documentation's figures; need TAGWISE_DATA.
figures: $(VENV)/.test
	$(BIN)/python benchmarks/accuracy.py
	$(BIN)/python benchmarks/leml_start.py
	$(BIN)/python benchmarks/missing_labels.py
	$(BIN)/python benchmarks/positive_weight.py
	$(BIN)/python benchmarks/reml_pruning.py
	$(BIN)/python benchmarks/cascade.py
	$(BIN)/python benchmarks/model_choice.py
	$(BIN)/python benchmarks/tagger.py

# Coverage-guided fuzzing of everything that reads files; the seconds are divided over the targets.
.PHONY: fuzz
fuzz: $(VENV)/.fuzz
	$(BIN)/python -m tests.fuzz.guided --seconds $(or $(SECONDS),600) $(ARGS)

# A million mutated data files through the readers, each of them watched.
.PHONY: fuzz-inputs
fuzz-inputs: $(VENV)/.test
	$(BIN)/python -m tests.fuzz.run --inputs $(or $(INPUTS),1000200) --out benchmarks/results/reliability/readers.json $(ARGS)

# Ctrl-C at 500 random moments of fits, predictions and commands.
.PHONY: interrupt
interrupt: $(VENV)/.test
	$(BIN)/python -m tests.fuzz.interrupts --count $(or $(COUNT),500) --out benchmarks/results/reliability/interrupts.json $(ARGS)

# 100,000 forged model folders and checkpoints, each loaded and asked.
.PHONY: fuzz-folders
fuzz-folders: $(VENV)/.test
	$(BIN)/python -m tests.fuzz.run --module tests.fuzz.folders --inputs $(or $(INPUTS),100200) --out benchmarks/results/reliability/folders.json $(ARGS)

# Kills at random moments, calls that fail, full disks and races of everything that writes.
.PHONY: crash
crash: $(VENV)/.test
	$(BIN)/python -m tests.fuzz.crash --kills $(or $(KILLS),200) --mount --out benchmarks/results/reliability/crash.json $(ARGS)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(SOURCES) | $(VENV)/bin/python
	$(PIP) install --editable .
	touch $@

$(VENV)/.test: $(SOURCES) | $(VENV)/bin/python
	$(PIP) install --editable '.[test,plots]'
	touch $@

$(VENV)/.fuzz: $(SOURCES) | $(VENV)/bin/python
	$(PIP) install --editable '.[test,plots,fuzz]'
	touch $@

$(VENV)/.lint: $(SOURCES) | $(VENV)/bin/python
	$(PIP) install --editable '.[test,plots,lint]'
	touch $@

$(LOWEST)/.test: $(SOURCES)
	$(or $(shell python3.10 -c 'import sys; print(sys.executable)' 2>/dev/null),$(lastword $(wildcard $(PYENV)/versions/3.10.*/bin/python)),$(PYTHON)) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip --quiet --disable-pip-version-check install uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[test,plots]'
	touch $@

clean:
	rm -rf $(VENV) $(LOWEST) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
