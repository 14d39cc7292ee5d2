# Two commands: `make demo` installs and runs the main job, `make test` installs and passes the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements
# two more than there are cores: many tests wait for services, browsers and databases of their own
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(len(os.sched_getaffinity(0)) + 2)')
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet
CODE := src experiments tests benchmarks scripts/advisories scripts/gallery scripts/golden scripts/lock \
	scripts/notebooks scripts/sbom scripts/site_hooks.py scripts/walks

# modules are compiled once, not by every program that tests start
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test quick test-slow coverage fuzz servers prepared lint bench bench-large docs dist lock clean

demo: $(VENV)/.installed-demo
	$(BIN)/masquerade demo --out demo --overwrite
	$(BIN)/masquerade survey demo --once
	@echo "To answer that survey yourself, in a browser: $(BIN)/masquerade survey demo"

test: $(VENV)/.installed-test
	$(MAKE) --jobs lint servers prepared
	$(BIN)/python -m pytest -n $(WORKERS)

# what a change to the library needs: no Java, PostgreSQL or browser
quick: $(VENV)/.installed-test
	$(BIN)/ruff check $(CODE)
	$(BIN)/python -m pytest -n $(WORKERS) tests/architecture tests/unit/core tests/unit/channels tests/unit/estimate \
		tests/unit/stats tests/unit/plan tests/unit/kernels tests/unit/disguising \
		--ignore tests/unit/disguising/test_spark.py

# studies that take long, and further cases of what `make test` tries once
test-slow: $(VENV)/.installed-test servers
	$(BIN)/python -m pytest -n $(WORKERS) -m slow

# the same tests, watched: slower, and fails below the share of lines in pyproject.toml
coverage: $(VENV)/.installed-test servers
	$(BIN)/python -m pytest -n $(WORKERS) --cov --cov-report=term:skip-covered --cov-report=xml

# two million mutated inputs for every decoder and loader; some minutes
fuzz: $(VENV)/.installed-test
	NUMBA_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --inputs 2000000 --out benchmarks/results/fuzz.json

servers: $(VENV)/bin/python
	scripts/install-servers $(VENV)/node

# once, what every process that runs tests would do at its start: rewrite their asserts, compile kernels
prepared: $(VENV)/.installed-test
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 || true  # the tests themselves tell what is wrong
	@$(BIN)/python -m tests.prepared || true

lint: $(VENV)/.installed-test
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.run

bench-large: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.large --json benchmarks/results/large.json

# the documentation as a site, site/index.html: opens from the disk, asks nobody for anything
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict --site-dir site
	@echo "Open site/index.html in a browser."

# what is released: see docs/releasing.md
dist: $(VENV)/.installed-release
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*

# pin again what pyproject.toml asks for; UPGRADE=--upgrade moves everything to its newest version
lock:
	$(PYTHON) scripts/lock $(UPGRADE)
	$(PYTHON) scripts/sbom
	$(PYTHON) scripts/advisories

clean:
	rm -rf $(VENV) demo build dist site .coverage coverage.xml .pytest_cache .mypy_cache .ruff_cache

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "masquerade needs Python 3.11 or newer"'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: SET := run
$(VENV)/.installed-demo: SET := demo
$(VENV)/.installed-test: SET := test
$(VENV)/.installed-bench: SET := bench
$(VENV)/.installed-docs: SET := docs
$(VENV)/.installed-release: SET := release

# locked packages by their hashes, then our own, built with what is locked
$(VENV)/.installed $(VENV)/.installed-demo $(VENV)/.installed-test $(VENV)/.installed-bench $(VENV)/.installed-docs \
		$(VENV)/.installed-release: \
		$(VENV)/bin/python pyproject.toml experiments/pyproject.toml $(wildcard $(LOCK)/*.txt)
	@echo "Installing masquerade and what it needs ($(LOCK)/$(SET).txt) into $(VENV): some minutes, without a word ..."
	$(PIP) --no-compile --require-hashes --requirement $(LOCK)/$(SET).txt
	@$(BIN)/python -W ignore -m compileall -qq -j 0 -x "site-packages/.*/tests/" $(VENV)/lib || true  # pip would do it on one core
	$(PIP) --no-deps --no-build-isolation --editable . --editable experiments
	touch $@
