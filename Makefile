# Two commands: `make demo` and `make test`. Each sets up what it needs, once; so do the experiments.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
# Which tests stay together, and which begin first, is for tests/conftest.py to say.
# Four, since tests of whole systems wait for much of their time: on two cores that keeps both at work.
# Bytecode is kept whatever the environment says: many processes that tests start would compile the package anew.
TESTS = PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -m pytest -n 4 --no-loadscope-reorder --durations=25

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check ruff mypy experiment-fulcrum experiment-foraging experiment-merging lock clean

help: ## Show what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-19s %s\n", $$1, $$2}'

demo: $(READY) ## Set up, then run the main job on a simulated bushfire afternoon
	@$(VENV)/bin/nearcast demo

test: SELECTED = -m 'not long'
test-all: SELECTED = -o faulthandler_timeout=7200
test: ## Set up, then run every check and the tests, in four processes; of the longest a smaller instance
test-all: ## As test, with the longest tests whole
# Mypy works while tests wait, and says what it found behind what they say.
test test-all: ruff
	@said=$$(mktemp); $(VENV)/bin/mypy >$$said 2>&1 & mypy=$$!; \
	    $(TESTS) $(SELECTED); tests=$$?; \
	    wait $$mypy; mypy=$$?; cat $$said; rm $$said; exit $$((tests + mypy))

check: ruff mypy ## Set up, then look at the code without running it: ruff and mypy

ruff: $(READY)
	@$(VENV)/bin/ruff check src tests benchmarks experiments
	@$(VENV)/bin/ruff format --check --quiet src tests benchmarks experiments

mypy: $(READY)
	@$(VENV)/bin/mypy

experiment-fulcrum: $(READY) ## What strategies for relations send; tables, and a picture in experiment-results
experiment-foraging: $(READY) ## Foraging against polling; tables, and a page with the figures in experiment-results
experiment-merging: $(READY) ## What covering and merging save; a table, and a picture in experiment-results
experiment-fulcrum experiment-foraging experiment-merging:
	@$(VENV)/bin/python -m experiments $(@:experiment-%=%) --out experiment-results $(OPTIONS)

lock: $(READY) ## Resolve the dependencies anew into requirements.lock
	@$(VENV)/bin/python -m pip install --quiet uv
	@$(VENV)/bin/uv pip compile pyproject.toml --group test --universal --python-version 3.11 \
	    --generate-hashes --no-header --no-annotate --quiet --upgrade -o requirements.lock

clean: ## Remove what setting up made
	rm -rf $(VENV)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "nearcast needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; set PYTHON=python3.x")'
	@echo "Setting up in $(VENV), once: about 1.5 GB on the disk and two minutes (Spark is a third of it)"
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@
