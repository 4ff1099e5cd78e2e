# `make` alone lists the targets. Everything runs inside .venv; no target needs anything installed but Python >= 3.11.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
PY := $(VENV)/bin/python

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(VENV)/.project-installed  ## Make or refresh the environment in .venv (at once when nothing changed)
	@:

$(VENV)/.lock-installed: requirements-dev.lock tools/make_venv.sh
	@tools/make_venv.sh $(VENV)
	@$(PY) -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements-dev.lock
	@touch $@

$(VENV)/.project-installed: pyproject.toml $(VENV)/.lock-installed
	@$(PY) -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: help env
