# Two commands are enough: `make up` and `make test`. Both set everything up on first use and are quick afterwards.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# An index with another build of torch (CUDA, or CPU only). README.md says when to set it.
TORCH_INDEX ?=
STAMP := $(VENV)/.installed$(subst /,_,$(subst :,,$(TORCH_INDEX)))
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup up test lint check bench screenshots clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 14

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v == (3, 11) else \
	  f"Decode Lab needs Python 3.11, this is {v[0]}.{v[1]}; install it or run: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the pinned packages into $(VENV) (once, about two minutes) ..."
	@if [ -n "$(TORCH_INDEX)" ]; then \
	  $(PIP_INSTALL) --force-reinstall --no-deps --index-url $(TORCH_INDEX) torch; fi
	@$(PIP_INSTALL) -e '.[web,worker,embedded,dev]'
	@rm -f $(VENV)/.installed* && touch $(STAMP)

setup: $(STAMP) ## Create .venv and fetch the default checkpoint
	@$(BIN)/python -m workers.prepare

up: $(STAMP) ## Start everything; prints the address when the page answers
	@$(BIN)/decodelab up

test: setup ## Run all tests
	@$(BIN)/python -m workers.engine.rehearsal  # compiles once, not in every process of the tests
	$(BIN)/python -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

lint: $(STAMP) ## Style, types, import rules, migrations
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@folder=$$(mktemp -d); export DECODELAB_DATABASE_URL=sqlite:///$$folder/check.sqlite3; \
	  $(BIN)/python -m alembic upgrade head && $(BIN)/python -m alembic check; status=$$?; rm -rf $$folder; exit $$status

check: lint test ## Everything that must hold before a commit lands

bench: setup ## Measure every claim that has a number, and write it into README.md
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.table

screenshots: $(STAMP) ## Make the pictures of the documentation, while `make up` runs
	$(BIN)/python docs/screenshots/make.py

clean: ## Remove what set-up made, except the data folder
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info
