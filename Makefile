# Everything a contributor runs. `make` alone lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := coda_envs coda_trainer task_families tests benchmarks examples
# One thread a process: the processes share the cores, the numbers stay the same on any machine.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help venv demo gallery test test-all lint format clean

help:
	@echo "make venv      set up $(VENV) with everything pinned in constraints.txt"
	@echo "make demo      train the small demo run and say where its results are"
	@echo "make gallery   draw the families anew into docs/environments/pictures"
	@echo "make test      the tests that take minutes"
	@echo "make test-all  all tests"
	@echo "make lint      ruff and mypy"
	@echo "make format    let ruff format the code"
	@echo "make clean     remove caches and build products (never .venv or runs)"

venv: $(STAMP)

# The stamp is written last: an installation that was interrupted is done again.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Python 3.11 or newer is needed; try make venv PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,llm,sb3]'
	touch $@

demo: $(STAMP)
	@$(BIN)/coda doctor || { echo "The demo was not started: put right what coda doctor names."; exit 1; }
	@number=1; while [ -e "runs/demo-$$number" ]; do number=$$((number + 1)); done; \
	run="runs/demo-$$number"; \
	echo; \
	echo "The demo trains a small policy on pick-place with configs/demo.yaml: expert"; \
	echo "demonstrations, fine-tuning, then rounds of finding out where the policy fails, why,"; \
	echo "and training there. It takes some minutes and writes $$run."; \
	echo "Stopped? Go on with: $(BIN)/coda train --resume $$run"; \
	echo; \
	$(BIN)/coda train --config configs/demo.yaml --out "$$run" && \
	echo && \
	echo "Look at: $(BIN)/coda memory show $$run      why it failed, and what helped" && \
	echo "         $(BIN)/tensorboard --logdir $$run  curves" && \
	echo "         $$run/metrics.jsonl               every figure"

gallery: $(STAMP)
	$(BIN)/coda envs gallery --all --out docs/environments/pictures

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: $(STAMP)
	$(BIN)/python -m pytest -n 2

lint: $(STAMP)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
