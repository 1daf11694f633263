# make quickstart   install and run the first campaign on a real engine (CPU is enough)
# make test         install and run everything that must pass before a change lands
# Both need Python 3.11 to 3.13, git and make; nothing else has to be there.

VENV ?= .venv
PY := $(VENV)/bin/python
JOBS ?= 2
# Handed to pip, for instance a wheel folder: make test PIP_ARGS="--find-links /wheels"
PIP_ARGS ?=

# An installation stands until what it was made from changes.
KEY := $(shell cat pyproject.toml constraints.txt hatch_build.py | cksum | cut -d' ' -f1)
RUN := $(VENV)/.installed-run-$(KEY)
DEV := $(VENV)/.installed-dev-$(KEY)
INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check \
	--constraint constraints.txt $(PIP_ARGS) --editable

.PHONY: help quickstart test test-all lint format install dev clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# make/make/p' Makefile

quickstart: $(RUN)
	$(VENV)/bin/qualify run campaigns/quickstart.yaml $(ARGS)

test: $(DEV) lint
	OMP_NUM_THREADS=1 $(PY) -m pytest -n $(JOBS) -m "not slow" $(ARGS)

# make test-all     the same with the slow tests
test-all: $(DEV) lint
	OMP_NUM_THREADS=1 $(PY) -m pytest -n $(JOBS) $(ARGS)

# make lint         style, formatting and types
lint: $(DEV)
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy --strict

# make format       let ruff rewrite what it can
format: $(DEV)
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

install: $(RUN)

# make dev          an environment to work in
dev: $(DEV)

$(RUN):
	PYTHON="$(PYTHON)" sh scripts/venv.sh $(VENV)
	$(INSTALL) ".[engine,llama-cpp]"
	@touch $@

$(DEV):
	PYTHON="$(PYTHON)" sh scripts/venv.sh $(VENV)
	$(INSTALL) ".[llama-cpp,engine,evals,docker,history,png,telemetry,dev]"
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps $(PIP_ARGS) evalplus==0.3.1
	@rm -f $(VENV)/.installed-*
	@touch $@ $(RUN)

# make clean        remove the environment and every cache
clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
