# make demo    draw a gallery, index it, search it: nothing but Python is needed
# make test    lint, types and all tests
# make lint    lint and types alone

PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test lint

demo: $(VENV)/.demo
	$(VENV)/bin/vlmsearch demo

test: lint
	$(VENV)/bin/python -m pytest

lint: $(VENV)/.test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy engines/demo-minilm/train.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(PIP) -e .
	touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(PIP) -e '.[test]'
	touch $@ $(VENV)/.demo
