# Everything needs only Python 3.11+ and make; the rest is installed into .venv, pinned.
PYTHON ?= python3
BIN := .venv/bin
OTHER = .venvs/$(shell $(PYTHON) -c 'import platform; print(platform.python_version())')
# By environment, so that the environment in which pip builds the package is pinned too.
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check

# Containers often turn Python's cache of compiled modules off: each process would compile them anew.
unexport PYTHONDONTWRITEBYTECODE

# The coding agents that em is tried with, pinned; they are installed into .clients.
CLIENTS := @anthropic-ai/claude-code@2.1.197 @openai/codex@0.166.0
OTHER_CLIENTS := opencode-ai@1.18.33
OPENCODE_PLUGIN := @opencode-ai/plugin@1.18.33  # opencode installs it into every home that has plugins
MINI := mini-swe-agent==2.4.6 mcp  # mcp: its library for models imports it

.PHONY: help demo docs test test-python test-wheel test-properties test-clients setup-clients lint bench bench-peers screenshots golden plugin constraints clean setup-sandbox setup-browser setup-proxy

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: .venv/server ## set up, and show em at work: record, compile, run
	@$(BIN)/python examples/help_desk/demo.py

test: .venv/dev setup-sandbox ## set up, and run every check
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest

test-python: setup-sandbox ## a small part of the tests on another Python: make test-python PYTHON=python3.12
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "em needs Python 3.11 or newer" >&2; exit 1; }
	$(PYTHON) -m venv $(OTHER)
	PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
		$(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(OTHER)/bin/python -m pytest -k "not postgres" tests/test_imports.py tests/values tests/work

test-wheel: .venv/dev ## build the wheel, install it into an empty environment, and try the first hour
	rm -rf build/wheel && mkdir -p build/wheel/projects
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
	$(BIN)/python -m bench.series.transcripts build/wheel/projects
	$(PYTHON) -m venv build/wheel/empty
	PIP_CONSTRAINT=constraints.txt build/wheel/empty/bin/python -m pip install --quiet \
		--disable-pip-version-check "em-core[shell] @ file://$(CURDIR)/$$(ls build/wheel/*.whl)"
	build/wheel/empty/bin/python tests/wheel/first_hour.py README.md build/wheel/projects
	UV_CACHE_DIR=$(CURDIR)/build/wheel/uv $(BIN)/python tests/wheel/plugin.py plugins/em build/wheel

test-properties: .venv/dev setup-sandbox ## every night: fifty times as many examples for each property
	$(BIN)/pytest -m hypothesis --hypothesis-profile=nightly --timeout=7200

test-clients: .venv/dev setup-clients ## drive real coding agents against a scripted model
	$(BIN)/pytest -m clients -n 0 --timeout=900 tests/clients

setup-clients: ## install the coding agents that test-clients drives, pinned, into .clients
	@command -v npm >/dev/null && npm install --prefix .clients --no-audit --no-fund --prefer-offline \
		--fetch-retries=1 --loglevel=error $(CLIENTS) $(OTHER_CLIENTS) >/dev/null
	@test -z "$(OTHER_CLIENTS)" || test -d .clients/opencode-config || npm install --prefix .clients/opencode-config \
		--save-exact --no-audit --no-fund --prefer-offline --loglevel=error $(OPENCODE_PLUGIN) >/dev/null
	@test -z "$(OTHER_CLIENTS)" || test -x .clients/mini/bin/mini || { $(PYTHON) -m venv .clients/mini \
		&& .clients/mini/bin/python -m pip install --quiet --disable-pip-version-check $(MINI); }

setup-sandbox: ## install bubblewrap where that is ours to do (root on Debian); tests need it to try it
	@command -v bwrap >/dev/null || ! command -v apt-get >/dev/null || test "$$(id -u)" != 0 \
		|| apt-get install -qq -y --no-install-recommends bubblewrap >/dev/null 2>&1 \
		|| { apt-get update -qq && apt-get install -qq -y --no-install-recommends bubblewrap; } >/dev/null 2>&1 \
		|| echo "bubblewrap could not be installed: its tests will be skipped" >&2

setup-browser: ## install Debian's Chromium (as root or with sudo): the pages are tested in it where it is
	@command -v chromium >/dev/null || { \
		command -v apt-get >/dev/null || { echo "install Chromium as this system does" >&2; exit 1; }; \
		test "$$(id -u)" = 0 || sudo="sudo -n"; \
		$$sudo apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1 \
		|| { $$sudo apt-get update -qq && $$sudo apt-get install -qq -y --no-install-recommends chromium; } >/dev/null; }

setup-proxy: ## install nginx where that is ours to do (root on Debian): the documented proxy is tested where it is
	@command -v nginx >/dev/null || { test "$$(id -u)" = 0 && apt-get install -qq -y --no-install-recommends nginx-light >/dev/null 2>&1; }

docs: .venv/docs ## build the documentation as a site, into build/docs; a broken link is an error
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs
	@echo "open build/docs/index.html"

bench: .venv/dev setup-sandbox ## set up, and print each figure beside its limit
	$(BIN)/python -m bench

screenshots: .venv/dev setup-browser ## a picture of every page, light and dark, into docs/images
	$(BIN)/python -m bench.screenshots

golden: .venv/core ## compile the recorded example again, to look at the difference
	$(BIN)/em compile examples/csv_report/trace.json -o examples/csv_report/routine --name csv_report
	@rm -f examples/csv_report/routine/*.old
	$(BIN)/em routine validate examples/csv_report/routine

bench-peers: .venv/dev ## recall beside mem0 and chromadb, installed for this once
	$(BIN)/python -m bench.peers

plugin: .venv/core ## write plugins/em and its marketplaces anew, for the version in src/em
	$(BIN)/python -c 'from pathlib import Path; from em.clients.plugin import marketplace, published, write; \
		write(Path("."), marketplace(published()))'

constraints: .venv/dev ## pin what is installed now, without naming where it came from
	$(BIN)/python -m pip freeze --exclude-editable --exclude em-core --exclude pip --exclude setuptools | sort -f > constraints.txt

clean: ## remove what these targets made
	rm -rf build .venv .clients .em .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "em needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/core: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable .
	@touch $@

.venv/server: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[server]'
	@touch .venv/core $@

.venv/docs: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[docs]'
	@touch .venv/core $@

.venv/dev: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[dev]'
	@touch .venv/core .venv/server $@
