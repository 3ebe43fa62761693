# Every target sets up what it needs; the second time that takes no time.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
DEBIAN := chromium chromium-driver dataset-fashion-mnist iproute2 libjemalloc2 procps slurm-wlm slurm-wlm-basic-plugins munge
BENCH_DEBIAN := g++ libjemalloc2  # torch.compile needs a compiler

.DEFAULT_GOAL := help
.PHONY: help train test check coverage bench soak science study cluster docs dist clean

help:  ## what can be done here
	@echo "deepex: train scientific deep-learning models, and see where the time goes"
	@echo
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18

train: $(VENV)/core.done  ## train a model of protein folding on two ranks; prints the path of its page
	$(BIN)/deepex run protein --ranks 2 --sync local:epoch

test: $(VENV)/test.done  ## run all tests, in a real browser, SLURM and MPI among others (under 10 minutes)
	$(BIN)/pytest --numprocesses 4 --dist worksteal

check: $(VENV)/test.done  ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

coverage: $(VENV)/test.done  ## which lines tests reach, and how many of 60 small changes of the code they notice (three quarters of an hour)
	$(BIN)/pytest --numprocesses 4 --dist worksteal --cov deepex --cov-report term:skip-covered
	$(BIN)/python benchmarks/mutation.py --json benchmarks/mutation.json

bench: $(VENV)/bench.done  ## compare steps, input and strategies with what people use today (an hour and a half)
	$(BIN)/deepex bench step --json benchmarks/step.json --markdown benchmarks/step_$$(date +%F).md
	$(BIN)/deepex bench input --json benchmarks/input.json --markdown benchmarks/input_$$(date +%F).md
	$(BIN)/deepex bench sync --json benchmarks/sync.json --markdown benchmarks/sync_$$(date +%F).md

science: $(VENV)/test.done  ## check the simulators against physics, and train every science task to its target (hours; resumable)
	$(BIN)/python benchmarks/science.py

study: $(VENV)/test.done  ## a scaling study of the protein task, checked by hand, killed at random, opened in a browser (a quarter of an hour)
	$(BIN)/python benchmarks/study.py

soak: $(VENV)/test.done  ## kill ranks at random moments in every strategy, and see that nothing hangs (an hour)
	$(BIN)/python benchmarks/soak.py

cluster: $(VENV)/test.done  ## train on four hosts that live on this machine, 100 Mbit/s and 1 ms apart (needs root)
	$(BIN)/deepex cluster -- deepex run protein --sync local:epoch stop.epochs=2

docs: $(VENV)/docs.done  ## build the documentation site; prints the path of its first page
	rm -rf build/docs build/doctrees
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --conf-dir docs --doctree-dir build/doctrees . build/docs
	@echo build/docs/index.html

dist: $(VENV)/dist.done  ## build a wheel and a source distribution in dist/, and try the wheel in a clean environment (two minutes)
	rm -rf dist build/clean
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv build/clean
	build/clean/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	build/clean/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.whl
	cd build/clean && bin/python ../../examples/first.py

clean:  ## remove the environment and all caches; runs/ stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch first, pinned to its CPU build: whatever wants torch later finds it there.
$(VENV)/core.done: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) --editable .
	@touch $@

$(VENV)/test.done: $(VENV)/core.done $(VENV)/debian.done
	$(PIP) --editable '.[data,science,test,check,docs,dist]'
	@touch $@

$(VENV)/bench.done: $(VENV)/core.done $(VENV)/bench-debian.done
	$(PIP) --editable '.[data,bench]'
	@touch $@

$(VENV)/docs.done: $(VENV)/core.done
	$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/dist.done: $(VENV)/core.done
	$(PIP) --editable '.[dist]'
	@touch $@

# Real programs that tests drive, and what the benchmark's expert preloads. Installed only where one is missing.
$(VENV)/debian.done: PACKAGES := $(DEBIAN)
$(VENV)/bench-debian.done: PACKAGES := $(BENCH_DEBIAN)
$(VENV)/debian.done $(VENV)/bench-debian.done: | $(VENV)/core.done
	@for package in $(PACKAGES); do dpkg -s $$package >/dev/null 2>&1 || missing="$$missing $$package"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi; \
	  $$sudo apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi
	@touch $@
