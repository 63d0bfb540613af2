# Every way to run, test and build this project. `make` alone lists the targets.
# Needed: make and Python >= 3.11; `make test-system` installs what else it needs with apt-get.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

# Attacks and stops in real time: one after another, since neighbours would make them late.
IN_REAL_TIME := $(wildcard tests/process/test_torture_*.py) tests/process/test_stop.py
SYSTEM_IN_REAL_TIME := tests/system/test_attacks.py tests/system/test_disk.py
AT_ONCE := -n auto --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help install run demo example test test-system torture bench tools check lint format build lock clean

help: ## print the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

install: $(INSTALLED) ## put the locked packages and this project into .venv

run: install ## serve on 127.0.0.1:8787
	@$(BIN)/reservation-service serve --host 127.0.0.1 --port 8787

demo: install ## kill a server, let a deadline pass, start it again: what must hold, holds
	@$(BIN)/reservation-service demo

example: install ## a checkout on 127.0.0.1:8788 beside the service; ARGS="--help" tells more
	@$(BIN)/python -m examples.checkout $(ARGS)

test: install ## the tests that need Python alone
	$(BIN)/pytest -m "not system" $(AT_ONCE) $(addprefix --ignore=,$(IN_REAL_TIME))
	$(BIN)/pytest -m "not system" $(IN_REAL_TIME)

test-system: install tools ## the tests with system tools and other users, and those that test tests
	$(BIN)/pytest -m system $(AT_ONCE) $(addprefix --ignore=,$(SYSTEM_IN_REAL_TIME))
	$(BIN)/pytest -m system $(SYSTEM_IN_REAL_TIME)

torture: install tools ## attack the promises for long; ARGS="power-cut --short" for less
	$(BIN)/python -m tests.torture $(ARGS)

bench: install tools ## how fast it is, beside the limits of its parts; ARGS="holds --rounds 3"
	$(BIN)/python -m benchmarks $(ARGS)

check: lint tools test test-system ## everything a change must pass

lint: install ## style, format, types, dependencies
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/deptry .

format: install ## let ruff repair what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

build: install ## the wheel, in dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

lock: ## write the locks anew; LOCK_FLAGS=--upgrade for newer versions
	PYTHON=$(PYTHON) scripts/lock $(LOCK_FLAGS)

clean: ## remove what the other targets made
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

tools:
	@tests/system/install-tools

$(INSTALLED): pyproject.toml requirements-dev.lock
	@$(BIN)/python -c 'import pip' 2>/dev/null || $(MAKE) --no-print-directory .venv
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: .venv
.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Python 3.11 or newer is needed: make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null \
	    || { echo "$(PYTHON) lacks venv, on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
