# make demo    draw a gallery, index it, search it: nothing but Python is needed
# make quick   the tests that start no server and export no model, in about four minutes
# make test    lint, types, then the quick tests and all others, in two processes; prints what took longest
# make lint    lint, types and the budget of lines alone
# make exhaustive    the long tests: chaos, every crash point, fuzzing
# make docs    the manual, into site/
# make dist    the wheel and the sdist, into dist/: checked, each installed alone, and the demonstration run
# make bench   what can be measured without servers and downloads, beside the installed peers

PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check
# two processes use two cores: more threads in each would only wait for each other; where one dies, the run ends
PYTEST := OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2 --max-worker-restart 0 --dist loadfile \
	--no-loadscope-reorder --durations=15
# the tests that quick leaves out run in three parts, each in new processes: servers and models stay in memory to the end
REST := (server or slow) and not exhaustive
PROGRAMS := tests/benchmarks tests/building tests/docs tests/examples tests/wheel
ENGINES := tests/encoders tests/generators tests/tensorrt tests/tensorrt_llm tests/triton
# what is compiled is kept: tests start hundreds of processes, and pytest rewrites every test
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo quick test lint exhaustive docs dist bench
.DELETE_ON_ERROR:

demo: $(VENV)/.demo
	$(VENV)/bin/vlmsearch demo

quick: $(VENV)/.test
	$(PYTEST) -m 'not (server or slow or exhaustive)'

test: lint
	$(MAKE) quick
	$(PYTEST) -m '$(REST)' $(PROGRAMS)
	$(PYTEST) -m '$(REST)' $(ENGINES)
	$(PYTEST) -m '$(REST)' $(addprefix --ignore=,$(PROGRAMS) $(ENGINES))

exhaustive: $(VENV)/.test
	$(VENV)/bin/python -m pytest -n 2 --durations=15 --timeout 3600 -m exhaustive

lint: $(VENV)/.test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports --no-logo
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy engines/demo-minilm/train.py
	$(VENV)/bin/mypy engines/demo-gpt2/train.py
	$(VENV)/bin/python -m tests.support.line_budget

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

dist: $(VENV)/.dist
	rm -rf dist
	$(VENV)/bin/python -m build --outdir dist
	$(VENV)/bin/twine check --strict dist/*
	for file in dist/*; do \
		$(PYTHON) -m venv --clear build/installed && build/installed/bin/pip install -q "$$file" && \
		(cd build/installed && bin/vlmsearch demo && bin/vlmsearch doctor) || exit 1; \
	done

bench: $(VENV)/.test
	$(VENV)/bin/python -m benchmarks.encoding demo-clip
	$(VENV)/bin/python -m benchmarks.encoding demo-minilm
	$(VENV)/bin/python -m benchmarks.stores --documents 20000
	$(VENV)/bin/python -m benchmarks.batching onnx:demo

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(PIP) -e '.[serve]'
	touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	$(PIP) -e '.[docs]'
	touch $@

$(VENV)/.dist: | $(VENV)/bin/python
	$(PIP) build twine
	touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(PIP) -e '.[test]'
	touch $@ $(VENV)/.demo
