# Every target does its own set-up. A machine needs Python 3.11 or newer and make, nothing else:
# uv (a package installer) is taken from PATH, or installed into .uv-venv/ at the version below.

UV_VERSION := 0.13.9

ifndef PYTHON
PYTHON := $(shell for p in python3.11 python3 python3.12 python3.13 python3.14; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
endif
ifeq ($(PYTHON),)
$(error Python 3.11 or newer was not found on PATH. Install it, or name it: make PYTHON=/path/to/python3 ...)
endif

OWN_UV := .uv-venv/$(UV_VERSION)
UV := $(shell uv --version >/dev/null 2>&1 && echo uv)
ifeq ($(UV),)
UV := .uv-venv/bin/uv
UV_INSTALLED := $(OWN_UV)
endif

# The environment is built with the Python found above; uv neither downloads another one nor looks elsewhere.
export UV_PYTHON := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
export UV_PYTHON_DOWNLOADS := never
# As pip does: trust the certificates of the system where it has a list, and only else the tool's own.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem),)
export UV_SYSTEM_CERTS ?= 1
endif
# Python would compile the sources of every package at the first start of a command.
export UV_COMPILE_BYTECODE := 1
unexport VIRTUAL_ENV UV_PROJECT_ENVIRONMENT
# Every process would compile the package's sources: half a second each, and tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE
export NO_MKDOCS_2_WARNING := 1

SYNCED := .venv/.synced
RUN := $(UV) run --frozen --no-sync

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow coverage lint format types layers docs gate benchmarks check clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(SYNCED) ## make the environment in .venv/ (the other targets do this when it is needed)

demo: $(SYNCED) ## identify a Furuta pendulum from the recording shipped with the repository
	$(RUN) python scripts/demo.py

PARALLEL := -n 2 --dist loadscope --no-loadscope-reorder --max-worker-restart=0
# Tests that call what has shapes in its annotations; these are checked as it is called.
SHAPES := tests/math tests/complementarity tests/models/test_protocol.py tests/estimation/test_every_filter.py

test: $(SYNCED) ## the tests, without the slow ones
	SPOOKAX_SHAPES=1 $(RUN) pytest $(PARALLEL) $(SHAPES); shapes=$$?; \
	$(RUN) pytest $(PARALLEL) --durations=20 $(SHAPES:%=--ignore=%) && exit $$shapes

test-slow: $(SYNCED) ## the slow tests only
	$(RUN) pytest $(PARALLEL) -m slow --timeout=900 --durations=40 $(BUDGET:%=--budget=%)

coverage: $(SYNCED) ## the tests, with a report of the lines that none of them ran
	$(RUN) coverage run -m pytest
	$(RUN) coverage report

lint: $(SYNCED) ## style of the code
	$(RUN) ruff check
	$(RUN) ruff format --check

format: $(SYNCED) ## mend what lint can mend by itself
	$(RUN) ruff check --fix
	$(RUN) ruff format

types: $(SYNCED) ## type hints
	$(RUN) pyright

layers: $(SYNCED) ## imports point downwards only (.importlinter)
	$(RUN) lint-imports

docs: $(SYNCED) ## the documentation, into site/
	$(RUN) mkdocs build --strict

benchmarks: $(SYNCED) ## times and memory of the engine and of the identification
	$(RUN) python -m benchmarks

gate: $(SYNCED) ## whether a step has become much slower beside MuJoCo's
	$(RUN) python -m benchmarks gate

check: ## all of the above that can pass or fail: what CI runs
	.ci/run

clean: ## remove everything that the targets made, environments included
	rm -rf .venv .uv-venv site build dist htmlcov .coverage .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(SYNCED): pyproject.toml uv.lock $(UV_INSTALLED)
	$(UV) sync --frozen
	@touch $@

$(OWN_UV):
	$(PYTHON) -m venv --clear .uv-venv
	.uv-venv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@
