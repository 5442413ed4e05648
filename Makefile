# The commands of this repository; `make help` lists them. None needs root.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NO_TORCH := .venv-notorch
NO_TORCH_STAMP := $(NO_TORCH)/.installed
# Matrix sizes here are small: one thread a process is the fastest, and the fairest to neighbours.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Linters and generators call each other by name.
export PATH := $(CURDIR)/$(BIN):$(PATH)

# Most tests wait for servers: several files at a time, each with servers of its own.
PARALLEL := --dist loadfile --numprocesses
SOURCES := libs services proto tests
TYPED := libs services tests proto/generate.py
CONTROL_TESTS := $(wildcard $(addprefix tests/unit/,house artifacts blobs bus client cli deployment \
	events explain local model program requests rpc scheduling service sessions simulation telemetry))

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-plain test-slow test-soak test-failed bench lint protos no-torch up down clean

help: ## List the commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12

setup: $(STAMP) ## Install everything into .venv

demo: setup ## A prompt becomes out/demo.mp4 and out/demo.png through the real services
	@mkdir -p out
	$(BIN)/fastvideo generate "a red three moving left" --seed 2 -o out/demo.mp4 --sheet out/demo.png
	@printf 'Video:         %s\nContact sheet: %s\n' '$(CURDIR)/out/demo.mp4' '$(CURDIR)/out/demo.png'
	@echo 'The stack goes on running for the next prompt; make down stops it.'

test: setup ## The fast suite
	$(BIN)/python -m pytest $(PARALLEL) 3 -m "not slow and not gpu"

test-plain: ## The pure tests with Python alone: no pytest, no package
	$(PYTHON) -S tests/run.py

test-slow: setup ## What takes long: random kills, parity over many shapes
	$(BIN)/python -m pytest $(PARALLEL) 2 -m "slow and not soak and not gpu"

test-soak: setup ## What takes longest: thousands of requests, dozens of kills
	$(BIN)/python -m pytest $(PARALLEL) 2 -m "soak and not gpu"

test-failed: setup ## What failed in the run before, again and alone
	$(BIN)/python -m pytest --maxfail 1 -m "not gpu" --last-failed --last-failed-no-failures none

bench: setup ## Measure, print one table, keep JSON in bench/results
	$(BIN)/python tests/bench/run.py

lint: setup ## Style, types, import rules, protos
	ruff check $(SOURCES)
	ruff format --check $(SOURCES)
	mypy $(TYPED)
	lint-imports
	buf lint
	.ci/buf-breaking
	python proto/generate.py --check

protos: setup ## Regenerate libs/fastvideo/api from proto/
	python proto/generate.py

no-torch: $(NO_TORCH_STAMP) ## Prove that the control side lives without torch
	$(NO_TORCH)/bin/python -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is not None)'
	$(NO_TORCH)/bin/fastvideo --help > /dev/null
	$(NO_TORCH)/bin/python -m pytest -m "not slow and not gpu" $(CONTROL_TESTS)

up: setup ## Start the embedded stack in the background
	$(BIN)/fastvideo up --detach

down: setup ## Stop the embedded stack
	$(BIN)/fastvideo down

clean: ## Remove what the commands above made
	rm -rf $(VENV) $(NO_TORCH) out dist build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find libs services tests proto -name __pycache__ -type d -prune -exec rm -rf {} +

# torch by itself and first, so that the one version which every part is tested with is the one
# that is resolved.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --upgrade pip
	$(BIN)/python -m pip install -qq torch==2.13.0
	$(BIN)/python -m pip install -qq --editable '.[local,worker,dev]'
	@touch $@

$(NO_TORCH_STAMP): pyproject.toml
	test -x $(NO_TORCH)/bin/python || $(PYTHON) -m venv $(NO_TORCH)
	$(NO_TORCH)/bin/python -m pip install -qq --upgrade pip
	$(NO_TORCH)/bin/python -m pip install -qq --editable '.[local,test]'
	@touch $@
