# Everything happens in .venv of this clone. `make` alone says what there is.

PYTHON ?= python3
BIND ?= 127.0.0.1:8000

VENV := .venv
BIN := $(VENV)/bin
MADE := $(VENV)/.made
CORE := $(VENV)/.core
TOKENS := $(VENV)/.auth
DEV := $(VENV)/.dev
NODE := $(VENV)/.node
BENCH := $(VENV)/.bench
DOCS := $(VENV)/.docs
HOSTING := $(VENV)/.hosting
OVER_A_LINK := $(addprefix tests/,asking bus e2e features tasks transport/test_batches.py transport/test_http_sse.py)
BOTH_SHELLS := $(addprefix tests/,asking auth bus e2e examples tasks transport)
CONNECTED := $(addprefix tests/,asking features middleware tasks)
SIDE_BY_SIDE := --numprocesses=auto --maxprocesses=4 --dist
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable

# Where it is set, each process that tests start compiles once more what it imports, which doubles its start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test fuzz mutate soak attacks conformance interop hosting bench docs lint clean

help: ## Say what there is to make
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(DEV) $(DOCS) $(NODE) $(HOSTING) ## Install what all goals but bench need

demo: $(if $(AUTH),$(TOKENS),$(CORE)) ## Serve the demonstration server at http://BIND/mcp (BIND=127.0.0.1:8000; AUTH=1 for one with tokens)
ifeq ($(AUTH),)
	@exec $(BIN)/mcpbus demo --bind $(BIND)
else
	@BIND=$(BIND) exec $(BIN)/python -m examples.authorized
endif

test: $(DEV) ## Run the tests (ARGS="-k name" to choose)
ifeq ($(ARGS),)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE)=worksteal --at-least=9000
	@echo "What depends on how HTTP is read, once more through ASGI ..."
	$(BIN)/python -m pytest $(SIDE_BY_SIDE)=worksteal --at-least=3300 --shell=asgi $(BOTH_SHELLS)
	@echo "What a client can tell, once more with each request served over a link ..."
	$(BIN)/python -m pytest $(SIDE_BY_SIDE)=worksteal --at-least=2700 --forward-all $(OVER_A_LINK)
	@echo "What has a client in process, once more over a WebSocket ..."
	$(BIN)/python -m pytest $(SIDE_BY_SIDE)=worksteal --at-least=300 --shell=websocket $(CONNECTED)
else
	$(BIN)/python -m pytest $(ARGS)
endif

fuzz: $(DEV) ## Try what no test has thought of (ARGS="--seed 7 --minutes 2 --only lane")
	@$(BIN)/python -m tests.fuzz.run $(ARGS)

mutate: $(DEV) ## Break one place of the code after the other, and list the faults that no test notices (ARGS="--package serving --sample 50 --seed 7")
	@$(BIN)/python -m tests.mutation.run $(ARGS)

soak: $(DEV) ## Have clients of all transports come and go, with faults, and see what is left (ARGS="--minutes 10 --seed 1")
	@$(BIN)/python -m tests.soak.run $(ARGS)

attacks: $(DEV) ## Attack servers in all known ways, and print what each attack costs in memory and in time (ARGS="--only HTTP/2")
	@$(BIN)/python -m tests.attacks.run $(ARGS)

conformance: $(NODE) ## Run the official conformance suite (ARGS=2026-07-28 for one revision)
	@$(BIN)/python -m tests.conformance.run $(ARGS)
ifeq ($(ARGS),)
	@echo "Once more with each request served over a link ..."
	@$(BIN)/python -m tests.conformance.run --forward-all
endif

interop: $(DEV) $(NODE) ## Run the tests with what others wrote for Node: the official TypeScript client, issuers, and servers behind gateways, OpenAPI documents (ARGS="-k name" to choose)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE)=loadgroup $(if $(ARGS),,--at-least=480) tests/typescript tests/issuers tests/gateways tests/api_documents $(ARGS)

hosting: $(DEV) $(HOSTING) ## Run the tests of hosted FastMCP servers, then the official SDK's own suite with its servers hosted (ARGS=--newest for its newest release, too)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE)=worksteal tests/fastmcp_servers
	@$(BIN)/python -m tests.hosting.environments
	@$(BIN)/python -m tests.hosting.holdout $(ARGS)

bench: $(BENCH) ## Run the benchmarks (ARGS=--quick in some seven minutes with its set-up, ARGS="short-call --peer mcpbus" to choose)
	@$(BIN)/python -m benchmarks $(ARGS)

docs: $(DOCS) ## Build the site of the documentation in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

lint: $(DEV) ## Check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy tests/typechecks
	$(BIN)/pyright --pythonpath $(BIN)/python mcpbus/demo.py examples/*.py examples/failures tests/typechecks

clean: ## Remove what make has made
	rm -rf $(VENV)

# Stamps are written last, so that an installation which was cut short is done again. An environment of yours is added to, and never cleared.
$(CORE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "mcpbus needs Python 3.11 or later, and $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name one that is: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; \
		exit 1; \
	}
	@echo "Setting up $(VENV) ..."
	@if [ -e $(VENV) ] && [ ! -e $(MADE) ]; then $(PYTHON) -m venv $(VENV); \
	else $(PYTHON) -m venv --clear $(VENV) && touch $(MADE); fi
	@$(INSTALL) .
	@touch $@

$(TOKENS): $(CORE)
	@echo "Adding what verifies tokens to $(VENV) ..."
	@$(INSTALL) '.[auth]'
	@touch $@

$(DEV): $(CORE)
	@echo "Adding what tests and checks need to $(VENV) ..."
	@$(INSTALL) '.[dev]'
	@touch $@

$(HOSTING): $(CORE)
	@echo "Adding FastMCP to $(VENV) ..."
	@$(INSTALL) '.[hosting]'
	@touch $@

$(NODE): $(CORE)
	@echo "Adding Node to $(VENV) ..."
	@$(INSTALL) '.[conformance]'
	@touch $@

$(BENCH): $(CORE)
	@echo "Adding what benchmarks need to $(VENV) ..."
	@$(INSTALL) '.[bench]'
	@touch $@

$(DOCS): $(CORE)
	@echo "Adding what builds the documentation to $(VENV) ..."
	@$(INSTALL) '.[docs]'
	@touch $@
