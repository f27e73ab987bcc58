# Every target makes its own environment first; VENV=path uses another, PYTHON=path another Python.
VENV ?= .venv
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(or $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
  $$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done),python3)
PYTEST_ARGS ?=
# Bytecode is kept: without it every worker and every program that a test starts compiles all modules.
unexport PYTHONDONTWRITEBYTECODE
# One worker per core; PYTEST_ARGS=-n0 runs everything in one process, which shows what tests print.
WORKERS := -n auto --dist worksteal

BIN := $(VENV)/bin
READY := $(VENV)/.axe-eq-ready
WITHOUT_DEVICE := not gpu and not multigpu and not nki

.PHONY: help demo test test-full check fix golden docs bench-compile bench-layout clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(READY) ## prove, refute, compile, run and explain real programs
	$(BIN)/python -m examples.demo

test: $(READY) ## all tests; those of absent devices are skipped, large campaigns are sampled
	$(BIN)/pytest $(WORKERS) $(PYTEST_ARGS)

test-full: $(READY) ## all tests with their campaigns whole, whose figures are kept in benchmarks/results
	$(BIN)/pytest --full --record benchmarks/results/campaigns.json $(WORKERS) $(PYTEST_ARGS)

check: $(READY) ## format, lint, types, layers, and the tests that need no device
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -m "$(WITHOUT_DEVICE)" $(WORKERS) $(PYTEST_ARGS)

fix: $(READY) ## format, and repair what the linter can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

golden: $(READY) ## rewrite the golden files from the present output; review the difference
	$(BIN)/pytest --update-golden $(PYTEST_ARGS)

docs: $(READY) ## regenerate the pages that are derived from code
	$(BIN)/python -m axe_eq.debug > docs/switches.md
	$(BIN)/python -m axe_eq_rules.table > docs/laws.md
	$(BIN)/python -m examples.pictures docs/pictures

bench-compile: $(READY) ## compile time, rows and memory against program size
	$(BIN)/python -m benchmarks.compile

bench-layout: $(READY) ## the layout algebra against its peers
	$(BIN)/python -m benchmarks.layout

clean: ## remove what the other targets made
	rm -rf $(VENV) .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

# Remade when pyproject.toml changes: entry points are read from installed metadata.
$(READY): pyproject.toml
	@$(PYTHON) -c '$(NEW_ENOUGH)' 2>/dev/null || { \
	  found=$$(command -v $(PYTHON) >/dev/null && $(PYTHON) -V 2>&1 || echo absent); \
	  echo "axe_eq: $(PYTHON) is $$found; expected Python 3.11 or newer" >&2; \
	  echo "  try: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@
