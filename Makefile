# `make help` lists the targets. `make demo` and `make test` need only Python (3.10 to 3.14 are tested) and make: each prepares .venv,
# installs, and runs.
PYTHON ?= python3
VENV := .venv
# Virtual environments of Windows keep their commands elsewhere.
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
EXE := $(if $(filter Windows_NT,$(OS)),.exe)
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
SOURCES := pyproject.toml
LOWEST := .venv-lowest
LOWEST_TESTS := tests/end_to_end tests/text tests/cli tests/store
PYENV := $(or $(PYENV_ROOT),$(HOME)/.pyenv)
SITE := build/docs
# What a benchmark needs beyond TAGWISE_DATA is in its docstring: `python benchmarks/NAME.py --help`.
BENCHMARKS := $(sort $(basename $(notdir $(shell grep -l __main__ benchmarks/*.py))) kernels peers)
bench_script = $(firstword $(wildcard benchmarks/$(NAME)/run.py benchmarks/$(NAME).py))

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' Makefile
	@echo "  benchmarks: $(BENCHMARKS)"

.PHONY: demo
demo: $(VENV)/.core ## trains on the bundled sample and shows its tags
	$(BIN)/tagwise demo

.PHONY: test
test: $(VENV)/.test ## the normal run of the tests; ARGS=tests/models for a part
	$(if $(ARGS),,$(BIN)/tagwise warmup) # else every worker compiles the same functions
	$(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

.PHONY: test-slow
test-slow: $(VENV)/.test ## tests marked slow, short runs of the fuzzers, and every block of code in the documentation
	$(BIN)/python -m pytest -m slow --ignore tests/benchmarks --ignore tests/reproduction $(ARGS)

.PHONY: test-reproduction
test-reproduction: $(VENV)/.test ## the tests of the benchmarks and of the reproduction of the papers
	$(BIN)/python -m pytest -n auto --dist loadfile -m "" tests/benchmarks tests/reproduction $(ARGS)

.PHONY: test-lowest
test-lowest: $(LOWEST)/.test ## the lowest versions that pyproject.toml allows, on Python 3.10 where there is one
	$(LOWEST)/bin/python -m pytest -n auto --dist loadfile $(or $(ARGS),$(LOWEST_TESTS))

.PHONY: lint
lint: $(VENV)/.lint ## ruff, mypy (also of a user's program), spelling, the layers, the workflow files and issue forms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -m "" tests/test_typing.py
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/check-jsonschema --builtin-schema vendor.readthedocs .readthedocs.yaml

.PHONY: docs
docs: $(VENV)/.docs ## the site, into build/docs/html; offline, warnings are errors; examples that have not changed do not run again
	rm -rf $(SITE)/html
	$(BIN)/tagwise warmup
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d $(SITE)/doctrees docs $(SITE)/html
	$(BIN)/python scripts/check_site.py $(SITE)/html

.PHONY: docs-links
docs-links: $(VENV)/.docs ## also asks every address outside; needs a network
	$(BIN)/python -m sphinx -q -b linkcheck -d $(SITE)/doctrees docs $(SITE)/linkcheck

.PHONY: package
package: $(VENV)/.docs ## wheel and sdist into dist/, checked
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/python scripts/check_package.py dist

.PHONY: bench
bench: $(VENV)/.test ## one benchmark: make bench NAME=kernels, ARGS=… for its options
	$(if $(NAME),,$(error give NAME=, one of: $(BENCHMARKS)))
	$(if $(bench_script),,$(error no benchmark $(NAME); there are: $(BENCHMARKS)))
	$(BIN)/python $(bench_script) $(ARGS)

.PHONY: bench-serving
bench-serving: ## requests per second and latencies of the server, beside Annif's: bench NAME=serving
	$(MAKE) bench NAME=serving

.PHONY: bench-peers
bench-peers: ## the other systems on the same data: bench NAME=peers
	$(MAKE) bench NAME=peers

.PHONY: figures
figures: $(VENV)/.test ## the README's table and the documentation's figures; needs TAGWISE_DATA
	$(BIN)/python benchmarks/accuracy.py
	$(BIN)/python benchmarks/leml_start.py
	$(BIN)/python benchmarks/missing_labels.py
	$(BIN)/python benchmarks/positive_weight.py
	$(BIN)/python benchmarks/reml_pruning.py
	$(BIN)/python benchmarks/cascade.py
	$(BIN)/python benchmarks/model_choice.py
	$(BIN)/python benchmarks/tagger.py
	$(BIN)/python benchmarks/overview.py

.PHONY: fuzz
fuzz: $(VENV)/.fuzz ## coverage-guided fuzzing of everything that reads files, SECONDS=600 divided over the targets
	$(BIN)/python -m tests.fuzz.guided --seconds $(or $(SECONDS),600) $(ARGS)

.PHONY: fuzz-inputs
fuzz-inputs: $(VENV)/.test ## a million mutated data files through the readers, each of them watched
	$(BIN)/python -m tests.fuzz.run --inputs $(or $(INPUTS),1000200) --out benchmarks/results/reliability/readers.json $(ARGS)

.PHONY: fuzz-folders
fuzz-folders: $(VENV)/.test ## 100,000 forged model folders and checkpoints, each loaded and asked
	$(BIN)/python -m tests.fuzz.run --module tests.fuzz.folders --inputs $(or $(INPUTS),100200) --out benchmarks/results/reliability/folders.json $(ARGS)

.PHONY: interrupt
interrupt: $(VENV)/.test ## Ctrl-C at 500 random moments of fits, predictions and commands
	$(BIN)/python -m tests.fuzz.interrupts --count $(or $(COUNT),500) --out benchmarks/results/reliability/interrupts.json $(ARGS)

.PHONY: crash
crash: $(VENV)/.test ## kills at random moments, calls that fail, full disks and races of everything that writes
	$(BIN)/python -m tests.fuzz.crash --kills $(or $(KILLS),200) --out benchmarks/results/reliability/crash.json $(ARGS)

.PHONY: serving-runs
serving-runs: $(VENV)/.test ## the server: 20 swaps under load, 1,000 examples of its API, 50 kills while answers are posted
	TAGWISE_RECORD=benchmarks/results/reliability/serving.json $(BIN)/python -m pytest -m slow tests/serving/test_live_swap.py tests/serving/test_openapi.py tests/serving/test_processes.py $(ARGS)

.PHONY: clean
clean: ## removes everything that was built or installed here
	rm -rf $(VENV) $(LOWEST) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf docs/api docs/gallery docs/results docs/reproduction docs/changelog.md docs/contributing.md docs/security.md docs/sg_execution_times.rst

$(BIN)/python$(EXE):
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(SOURCES) | $(BIN)/python$(EXE)
	$(PIP) install --editable .
	touch $@

$(VENV)/.test: $(SOURCES) | $(BIN)/python$(EXE)
	$(PIP) install --editable '.[test,plots]'
	touch $@

$(VENV)/.fuzz: $(SOURCES) | $(BIN)/python$(EXE)
	$(PIP) install --editable '.[test,plots,fuzz]'
	touch $@

$(VENV)/.lint: $(SOURCES) | $(BIN)/python$(EXE)
	$(PIP) install --editable '.[test,plots,lint]'
	touch $@

$(VENV)/.docs: $(SOURCES) | $(BIN)/python$(EXE)
	$(PIP) install --editable '.[docs,package]'
	touch $@

# All of them by one installation, as two that run at once would meet.
$(VENV)/.all: $(SOURCES) | $(BIN)/python$(EXE)
	$(PIP) install --editable '.[test,plots,lint,docs,package]'
	touch $(addprefix $(VENV)/,.core .test .lint .docs .all)

$(LOWEST)/.test: $(SOURCES)
	$(or $(shell python3.10 -c 'import sys; print(sys.executable)' 2>/dev/null),$(lastword $(wildcard $(PYENV)/versions/3.10.*/bin/python)),$(PYTHON)) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip --quiet --disable-pip-version-check install uv
	$(LOWEST)/bin/uv pip install --quiet --compile-bytecode --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[test,plots]'
	touch $@
