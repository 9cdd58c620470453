# Everything runs inside .venv, which the first target that needs it creates.
# Only Python >= 3.11 and make are expected; choose another interpreter with `make PYTHON=python3.13 test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DOCS_INSTALLED := $(VENV)/.installed-docs
# Modules are compiled when they are imported: most of what the packages hold never is, and it doubles the time.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
FLOORS := build/floors
# What meets the outside world: input, files, other libraries, the command line, every solver once.
FLOORS_TESTS := tests/cli tests/unit/test_inputs.py tests/unit/test_loading.py tests/unit/cli/test_report.py \
	tests/unit/estimators/test_sources.py tests/unit/solvers/test_solve.py tests/unit/solvers/test_hard_cases.py tests/contract/test_loss_contract.py
BENCHMARKS := $(sort $(wildcard benchmarks/bench_*.py))

.DEFAULT_GOAL := help
.PHONY: help install versions demo test tests test-slow test-browser test-floors lint style types format bench reproduce study docs clean

help:
	@echo "make demo           fit a robust classifier through a coreset, print and draw the comparison"
	@echo "make test           the gate: style, then types and tests side by side"
	@echo "make test-slow      the tests marked slow"
	@echo "make test-browser   the pages of the site and the report, opened in Chromium at two widths"
	@echo "make test-floors    part of the tests with the oldest dependencies that pyproject.toml allows"
	@echo "make lint           ruff and mypy"
	@echo "make format         let ruff rewrite what it can"
	@echo "make bench          every benchmarks/bench_*.py"
	@echo "make reproduce      the paper's tables; TABLES=table1 TRIALS=5 DATA=folder for one of them, quickly"
	@echo "make study          the comparison with tuned penalties of docs/should_i_use_it.md; DATA=folder"
	@echo "make docs           build the documentation into site/"
	@echo "make install        create $(VENV) and install the package with its development tools"
	@echo "make clean          remove $(VENV) and everything built"

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(None if sys.version_info >= (3, 11) else \
	"dualcore needs Python >= 3.11, but $(PYTHON) is " + v + ". Name a newer one: make PYTHON=python3.12 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[dev]'
	@touch $@

$(DOCS_INSTALLED): $(INSTALLED)
	$(PIP) --editable '.[docs]'
	@touch $@

install: $(INSTALLED)

versions: $(INSTALLED)
	@$(BIN)/python -c 'import platform; from importlib.metadata import version; \
	print("Python", platform.python_version(), "on", platform.system(), platform.machine()); \
	print(", ".join(name + " " + version(name) for name in ("dualcore", "numpy", "scipy", "scikit-learn", \
	"clarabel", "cvxpy", "hypothesis", "pytest", "ruff", "mypy")))'

demo: versions
	$(BIN)/dualcore demo

# pytest-xdist already fills the cores: threads inside BLAS would only fight over them.
test tests test-slow test-browser test-floors: export OPENBLAS_NUM_THREADS = 1
test tests test-slow test-browser test-floors: export OMP_NUM_THREADS = 1
test tests test-slow test-browser test-floors: export MKL_NUM_THREADS = 1
test tests test-slow test-browser test-floors: export VECLIB_MAXIMUM_THREADS = 1
test tests test-slow test-browser test-floors: export POLARS_MAX_THREADS = 1

# Style takes a second and is asked first; types are checked beside the tests.
test: versions style
	$(MAKE) --no-print-directory --jobs=2 types tests

# Neighbours stay together, so that what a module prepares is prepared once; who has nothing left takes from the other.
tests: $(INSTALLED)
	$(BIN)/python -m pytest -n auto --dist worksteal

test-slow: versions
	$(BIN)/python -m pytest -n auto --dist worksteal -m slow

test-browser: $(DOCS_INSTALLED)
	$(BIN)/python -m pytest tests/browser

$(FLOORS)/.installed: pyproject.toml tests/floors.py
	test -x $(FLOORS)/bin/python || $(PYTHON) -m venv $(FLOORS)
	$(PYTHON) tests/floors.py > $(FLOORS)/floors.txt
	$(FLOORS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(FLOORS)/floors.txt \
	--editable '.[plots,parquet,dask]' hypothesis pytest
	@touch $@

# Old packages beside new ones of others: what they deprecate is no fault of ours.
test-floors: $(FLOORS)/.installed
	cat $(FLOORS)/floors.txt
	$(FLOORS)/bin/python -m pytest -W default::DeprecationWarning -W default::FutureWarning $(FLOORS_TESTS)

lint: style types

style: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: versions
	@test -n "$(BENCHMARKS)" || { echo "there is no benchmarks/bench_*.py to run" >&2; exit 1; }
	@set -e; for script in $(BENCHMARKS); do echo "== $$script"; PYTHONPATH=. $(BIN)/python $$script; done

TABLES ?= all
TRIALS ?= 50
reproduce: versions
	$(BIN)/python -m experiments run $(TABLES) --trials $(TRIALS) $(if $(DATA),--data '$(DATA)')

study: versions
	$(BIN)/python -m experiments study $(if $(DATA),--data '$(DATA)')
	$(BIN)/python -m experiments study-page

docs: $(DOCS_INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks experiments -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
