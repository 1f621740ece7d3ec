# Everything a person or a build does with this folder; `make` alone lists it.
# Needs Python 3.11 or newer and make, and a C compiler for the simulated cluster: the first target that needs them
# installs the locked packages in .venv.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ROOMS := sickbay health activities workflows workers console simulator

# The first Python on the path that is new enough and can make a virtual environment: some systems split venv off, and
# a version manager leaves names on the path that do not run.
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3.14 python3 python; do \
	path=$$(command -v $$name) || continue; \
	"$$path" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
		&& echo "$$path" && break; done)

# Passed on to pytest, e.g. `make test PYTEST=-x`; `make demo DEMO=--interactive`.
PYTEST ?=
DEMO ?=

LOCK := $(BIN)/uv pip compile pyproject.toml --quiet --upgrade --generate-hashes --no-emit-index-url \
	--no-emit-find-links --universal --python-version 3.11 --custom-compile-command "make lock"

.PHONY: help
help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(READY) ## make .venv with the locked packages and this project

# A stamp, since the folder's own time moves with whatever is installed in it. An environment whose Python is gone
# (an upgrade of the system) is made anew.
$(READY): requirements-dev.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer with venv was found on PATH;" \
		"install one, or name it: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3" >&2; exit 2; }
	@$(BIN)/python -c '' 2>/dev/null || "$(PYTHON)" -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: demo
demo: $(READY) ## play four real faults on a simulated cluster, with a live display
	$(BIN)/sickbay demo $(DEMO)

.PHONY: lint
lint: $(READY) ## style, types and the layers between the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: test
test: lint ## lint, then every test: units, replays and whole stories
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile $(PYTEST)

.PHONY: format
format: $(READY) ## put the code in the house's format
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

.PHONY: bench
bench: $(READY) ## measure the kernel-log scanner against grep on 1 GB, the node agent at rest, and a reported step
	$(BIN)/python benchmarks/kernel_log.py
	$(BIN)/python benchmarks/footprint.py
	$(BIN)/python benchmarks/rank_reporter.py

.PHONY: lock
lock: $(READY) ## resolve the dependencies anew into the lock files
	$(LOCK) --output-file requirements.lock
	$(LOCK) --extra demo --group dev --constraint requirements.lock --output-file requirements-dev.lock

.PHONY: wheel
wheel: $(READY) ## build dist/sickbay-*.whl
	$(BIN)/python -m build --wheel --no-isolation

.PHONY: clean
clean: ## remove what make made
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(ROOMS) tests -name __pycache__ -type d -prune -exec rm -rf {} +
