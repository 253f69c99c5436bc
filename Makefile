# What a developer and CI type. `make` alone lists the targets.

HOST ?= 127.0.0.1
PORT ?= 8000
PYTHON ?= python3
MODELS := examples/digits/model.py examples/language/model.py examples/listops/model.py

BIN := .venv/bin
TWO_PROCESSES := --numprocesses 2 --dist loadfile
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export TF_CPP_MIN_LOG_LEVEL ?= 3

.DEFAULT_GOAL := help
.PHONY: help serve test test-all lint bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

serve: .venv/.installed  ## serve the three example models on HOST:PORT (127.0.0.1:8000)
	$(BIN)/batchd serve $(MODELS) --host $(HOST) --port $(PORT)

test: .venv/.installed-dev  ## run the tests, but for the long ones
	$(BIN)/python -m pytest -m "not full" $(TWO_PROCESSES)

test-all: .venv/.installed-dev  ## run every test
	failed=; \
	$(BIN)/python -m pytest -m "not sweep and not alone" $(TWO_PROCESSES) || failed=1; \
	$(BIN)/python -m pytest -m alone || failed=1; \
	$(BIN)/python -m pytest -m sweep --numprocesses 2 --dist load || failed=1; \
	test -z "$$failed"

lint: .venv/.installed-dev  ## check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: .venv/.installed-dev  ## compare the engines on the language model
	$(BIN)/python -m loadtest compare --model language

clean:  ## remove what the targets above made
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps make a second start quick, and are remade when the requirements change.
.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -e .
	touch $@

.venv/.installed-dev: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch .venv/.installed $@
