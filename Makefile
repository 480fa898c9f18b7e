# The two that matter: `make demo` and `make test`. Each builds what it needs, once.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# The warnings would be setuptools', about an editable install being one.
PIP    := PYTHONWARNINGS=ignore $(BIN)/python -m pip --disable-pip-version-check --no-input
LOCK   := requirements/dev.lock
# More processes than cores: tests wait for subprocesses, servers and clocks.
JOBS   ?= $(shell expr 3 \* $$(nproc 2>/dev/null || echo 2))
INTEROP := $(VENV)/interop
PYTEST  := $(BIN)/python -m pytest
STRESS  ?= test

SHELL       := /bin/bash
.SHELLFLAGS := -o pipefail -c
# For `make demo` and `make test`, whose first run takes a minute: pip's lines as a counter.
COUNTED := | bash requirements/progress.sh

# Tests start hundreds of processes: what is compiled is kept, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo demo-research test test-all near stress golden soak lint format types bench bench-guard bench-rivals interop dev docs prices lock clean

help:  ## what there is to make
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(VENV)/.local  ## three agents repair a program, are killed, and continue (a minute the first time)
	@$(BIN)/callboard demo

demo-research: $(VENV)/.embed  ## questions looked up in docs/, with models that run here
	@$(BIN)/callboard models pull smollm2 > /dev/null
	@$(BIN)/callboard models pull wordllama > /dev/null
	@bash examples/demo-research.sh $(BIN)/callboard

test: $(VENV)/.dev .types/callboard  ## the tests that every change has to pass (8 minutes on two cores)
	$(PYTEST) -m "not (full or soak)" --workers $(JOBS)

test-all: $(VENV)/.dev .types/callboard  ## those, browsers, terminals, cluster faults, other people's programs (15 minutes)
	$(PYTEST) -m "not soak" --workers $(JOBS)

near: $(VENV)/.dev .types/callboard  ## the tests near the uncommitted change, in 30 seconds
	@$(BIN)/python tests/support/near.py

stress: $(VENV)/.dev .types/callboard  ## `make test` beside eight busy loops (STRESS=test-all: all tests)
	@bash tests/support/beside_busy_loops.sh 8 $(MAKE) $(STRESS)

golden: $(VENV)/.dev  ## rewrite tests/golden/: messages, --help, OpenAPI, schemas, events, API, rows
	@$(BIN)/python tests/golden/write_surface.py
	@PYTHONPATH=tests $(BIN)/python tests/golden/write.py

soak: $(VENV)/.dev  ## the long repetitions (hours)
	$(PYTEST) -m soak --timeout 3600

lint: $(VENV)/.dev  ## style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev  ## put into the house's format
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

types: $(VENV)/.dev .types/callboard  ## mypy --strict
	$(BIN)/mypy -p callboard
	MYPYPATH=examples/python $(BIN)/mypy examples/python/[!f]*.py  # FastAPI is in the environment of tests/interop alone

bench: $(VENV)/.dev  ## the speed budget, as ratios (rivals: make bench-rivals)
	@for each in benchmarks/*.py; do echo "== $$each"; $(BIN)/python $$each; done

bench-guard: $(VENV)/.dev  ## count function calls; fails when one of benchmarks/ledger.md has grown by more than 3 %
	@$(BIN)/python benchmarks/guard.py

bench-rivals: $(INTEROP)/rivals.made $(INTEROP)/agents.made  ## install the rivals of the benchmarks, in environments of their own

interop: $(INTEROP)/embedding.made $(INTEROP)/modern.made $(INTEROP)/legacy.made $(INTEROP)/control.made $(INTEROP)/openai.made $(INTEROP)/codegen.made $(INTEROP)/deploy.made $(INTEROP)/install.made $(INTEROP)/node.made  ## other people's servers, clients and SDKs, for tests/interop

dev: $(VENV)/.dev  ## the environment for working on callboard

docs: $(VENV)/.dev  ## rewrite the generated parts of docs/
	$(BIN)/python tests/packaging/events_table.py
	$(BIN)/python tests/packaging/corpus_table.py
	$(BIN)/python tests/qa/table.py
	$(BIN)/python tests/packaging/chat_tables.py
	$(BIN)/python tests/packaging/chat_pictures.py > /dev/null
	$(BIN)/python tests/packaging/demo_picture.py > /dev/null

prices: $(VENV)/.dev  ## make the table of prices of genai-prices' file (FROM=data_slim.json COMMIT=its commit DAY=of which day)
	$(BIN)/python -m callboard.actors.work.models.prices.genai_prices $(FROM) \
		"genai-prices, https://github.com/pydantic/genai-prices, commit $(COMMIT)" $(DAY)

lock: $(VENV)/.dev  ## pin what is installed now
	{ sed -n '/^#/p' $(LOCK); $(BIN)/python -m pip freeze --all --exclude-editable | grep -vE '^(#|pip=)'; } > $(LOCK).new
	mv $(LOCK).new $(LOCK)

clean:  ## remove everything that was built
	rm -rf $(VENV) .types build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- stamps: a file in the environment says that a step is done ------------------------------------------

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "callboard needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)."; \
	  echo "Name another one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "Python's venv module is missing. On Debian: apt-get install python3-venv"; exit 1; }
	@bash requirements/elapsed.sh "making $(VENV)" $(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.local: $(VENV)/.made pyproject.toml $(LOCK)
	@echo "installing callboard and its engine for local models (a minute or so, this once)"
	@$(PIP) install -c $(LOCK) -e '.[local]' $(COUNTED)
	@touch $@

$(VENV)/.embed: $(VENV)/.local
	@echo "installing what reads and embeds documents"
	@$(PIP) install -c $(LOCK) -e '.[embed]' $(COUNTED)
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml $(LOCK)
	@echo "installing the development environment (a minute or so, this once)"
	@$(PIP) install -r $(LOCK) $(COUNTED)
	@$(PIP) install -qq --no-deps -e .
	@$(BIN)/python -m compileall -q -j 0 actors cli protocol supervisors
	@touch $@

# Other people's programs, each in an environment of its own: none of them is a dependency of callboard.
$(INTEROP)/%.made: requirements/interop/%.lock $(VENV)/.made
	@echo "installing $(INTEROP)/$* ($$(sed -n '1s/^# //p' $<))"
	@rm -rf $(INTEROP)/$*
	@$(BIN)/python -m venv --without-pip $(INTEROP)/$*
	@$(PIP) --python $(INTEROP)/$*/bin/python install -qq -r $<
	@touch $@

$(INTEROP)/node.made: requirements/interop/package-lock.json $(VENV)/.made
	@command -v npm >/dev/null || { echo "npm is missing: MCP servers from npm can't be had"; exit 1; }
	@echo "installing $(INTEROP)/node (MCP servers and clients from npm)"
	@rm -rf $(INTEROP)/node
	@mkdir -p $(INTEROP)/node
	@cp requirements/interop/package.json requirements/interop/package-lock.json $(INTEROP)/node
	@npm ci --prefix $(INTEROP)/node --silent --no-audit --no-fund
	@touch $@

.types/callboard:
	@mkdir -p .types
	@ln -sfn .. $@
