# Each target does its own set-up in .venv on a fresh machine.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test test-fast lint types bench clean

$(STAMP): pyproject.toml constraints.txt
	@echo 'Installing into .venv: about 2 GB, a few minutes.'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[data,dev]'
	touch $(STAMP)

demo: $(STAMP)
	rm -rf runs/demo
	$(BIN)/silodp run cps-regions --out runs/demo

test: $(STAMP)
	$(BIN)/python -m pytest -n auto

test-fast: $(STAMP)
	$(BIN)/python -m pytest -n auto -m 'not slow'

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/pyright

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[ray]'
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv build runs *.egg-info
