# Two commands: `make demo` installs and runs the main job, `make test` installs and passes the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := constraints.txt
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint $(CONSTRAINTS)

.PHONY: demo test test-slow servers lint bench bench-large clean

demo: $(VENV)/.installed
	$(BIN)/masquerade demo --out demo

test: $(VENV)/.installed-test lint servers
	$(BIN)/python -m pytest -n auto

test-slow: $(VENV)/.installed-test servers
	$(BIN)/python -m pytest -m slow

servers:
	scripts/install-servers

lint: $(VENV)/.installed-test
	$(BIN)/ruff check src experiments tests benchmarks
	$(BIN)/ruff format --check src experiments tests benchmarks
	$(BIN)/mypy

bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.run

bench-large: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.large --json benchmarks/results/large.json

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .mypy_cache .ruff_cache

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "masquerade needs Python 3.11 or newer"'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml $(CONSTRAINTS)
	@echo "Installing masquerade into $(VENV) ..."
	$(PIP) --editable . --editable experiments
	touch $@

$(VENV)/.installed-test: $(VENV)/bin/python pyproject.toml $(CONSTRAINTS)
	@echo "Installing masquerade and its test tools into $(VENV) ..."
	$(PIP) --editable '.[test,lint]' --editable experiments
	touch $@

$(VENV)/.installed-bench: $(VENV)/bin/python pyproject.toml $(CONSTRAINTS)
	$(PIP) --editable '.[bench]'
	touch $@
