# `make` alone lists the targets. Everything runs inside .venv and needs only Python >= 3.11. With npm the pages of the
# dashboard also get their scripts.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Whatever the shell says, Python keeps its bytecode: else each process under test compiles every source it imports.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(VENV)/.project-installed build/vendor/.fetched  ## Make or refresh the environment in .venv (nothing to do: at once)
	@:

$(VENV)/.lock-installed: requirements-dev.lock tools/make_venv.sh
	@tools/make_venv.sh $(VENV)
	@tools/install_locked.sh $(PY) requirements-dev.lock
	@touch $@

$(VENV)/.project-installed: pyproject.toml $(VENV)/.lock-installed
	@$(PY) -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation --editable .
	@touch $@

# Without npm there is no stamp, and each run says so in one line.
build/vendor/.fetched: $(addprefix supervisor/dashboard/,package.json package-lock.json .npmrc) tools/fetch_assets.sh
	@tools/fetch_assets.sh

CHECKS := check-types check-style check-imports check-caps check-agent check-openapi check-lock check-links
check: env  ## Check every rule that a program can check (-k: continue after a failure)
	@$(MAKE) --jobs=2 --output-sync=target $(CHECKS)

check-style: env
	$(BIN)/ruff check --quiet --output-format concise .
	$(BIN)/ruff format --quiet --check .
	@find . \( -name '.?*' -o -name build -o -name dist \) -prune -o -name '*.sh' -print0 | xargs -0 $(BIN)/shellcheck
	@find . \( -name '.?*' -o -name build -o -name dist \) -prune -o -name 'Dockerfile*' -print0 | xargs -0 $(BIN)/hadolint

check-types: env
	$(BIN)/mypy --no-error-summary

check-imports: env
	$(BIN)/lint-imports --no-logo --cache-dir build/import-linter

check-agent: env
	$(BIN)/vermin --quiet --no-tips --violations --target=3.8- supervisor/agent supervisor/host supervisor/contract
	$(PY) -m tools.checks agent

check-caps: env
	$(PY) -m tools.checks caps

house: env  ## Print the figures of the code with their goals; ARGS=--list lists each place that breaks a rule
	@$(PY) -m tools.house $(ARGS)

house-ratchet: env  ## Write the present numbers into tools/house/limits.toml
	@$(PY) -m tools.house --ratchet

check-lock: env
	$(PY) -m tools.checks lock

check-links: env
	$(PY) -m tools.checks links

check-openapi: env
	$(PY) -m tools.checks openapi

# Five workers on two cores: tests of real processes wait more than they compute. With seven, two tests of real
# supervisors were late in the one run on quiet cores.
WORKERS := 5
test: env agent  ## Run the whole suite, on SQLite and on a real PostgreSQL; ARGS="..." goes to pytest
	$(PY) -m pytest -n $(WORKERS) --durations=10 $(ARGS)

policy: env  ## Replay the rule that chooses spot, on-demand or waiting on measured traces; ARGS=--held-out tells more
	@$(PY) -m tools.policy $(ARGS)

demo: env agent  ## Run a real training through five failures to the same model
	@$(PY) -m examples.demo

demo-cloud: env agent  ## The same on Google Cloud: machines that boot, on a local stand-in for Google
	@$(PY) -m examples.demo_cloud

replay: env  ## RECORDING=path: compare a recording of `spot trial` with the tests' cloud
	@$(PY) -m tests.cloud.replay "$(RECORDING)"

bench: env agent  ## Run the benchmarks: one JSON line for each figure, with its target
	@$(PY) -m tests.benchmarks

# Tests that try less in `make test` ask tests/properties.py how much.
campaign: env agent  ## Run the long random campaigns; `make test` runs short ones
	$(PY) -m pytest tests/campaign $(shell grep -rl --include='test_*.py' 'tests.properties import' tests) --hypothesis-profile=campaign --durations=10 -o faulthandler_timeout=3000 $(ARGS)

FRAMEWORKS := build/frameworks
$(FRAMEWORKS)/.installed: tests/frameworks/requirements.txt tools/make_venv.sh
	@tools/make_venv.sh $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip --disable-pip-version-check --quiet install --requirement $<
	@touch $@

frameworks: env agent $(FRAMEWORKS)/.installed build/trackers/.installed  ## Train with the real Transformers, Lightning, Keras, ... on CPU, in an environment of 2 GB
	$(PY) -m pytest tests/frameworks/real --durations=10 -o faulthandler_timeout=1200 $(ARGS)

diagnose: env  ## Measure the verdicts on the labeled corpus: confusion matrix, dangerous mistakes, mutations
	@$(PY) -m tests.diagnosis $(ARGS)

corpus: env agent  ## Make the missing cases of tests/diagnosis/corpus by real faults and from documented texts
	@$(PY) -m tests.diagnosis.makers $(ARGS)

# A machine with a card may have no network: without .venv any Python from 3.11 on will do.
RECORDER ?= $(firstword $(wildcard $(PY)) python3)
record-gpu:  ## Record cases of the corpus on an NVIDIA card; TORCH_PYTHONS="path..." names Pythons with torch
	@$(RECORDER) -m tests.diagnosis.makers.recorded $(ARGS)

fuzz: env  ## Fuzz the API with schemathesis, ten times as long as `make test`, with the boundary values of each field
	$(PY) -m pytest -n 2 tests/api/test_conformance.py tests/api/test_fuzz.py --hypothesis-profile=fuzz --durations=10 -o faulthandler_timeout=3000 $(ARGS)

# Of its own: nothing else needs these packages. pip takes its index from the machine's configuration.
build/trackers/.installed: tests/frameworks/trackers.txt tools/make_venv.sh
	@tools/make_venv.sh build/trackers
	@build/trackers/bin/python -m pip --disable-pip-version-check --quiet install --requirement $<
	@touch $@

trackers: env agent build/trackers/.installed  ## Test W&B, MLflow, Trackio and TensorBoard over lost machines, with their real packages
	$(PY) -m pytest tests/frameworks/real/test_trackers.py $(ARGS)

agent: env  ## Build the agent: build/agent.pyz
	@$(PY) -m tools.build_agent

screenshots: env  ## Write docs/images/: each page of the dashboard, light and dark
	@$(PY) -m tests.dashboard.screenshots $(ARGS)

openapi: env  ## Write openapi/ from the routes
	@$(PY) -m tests.api.record_examples
	@$(PY) -m tools.write_openapi

release-openapi: openapi  ## Let clients rely on the present API; the changelog must describe the change
	@$(PY) -m tools.write_openapi --release

lock:  ## Write requirements-dev.lock; UPGRADE=1 takes the newest versions
	@tools/make_lock.sh $(if $(UPGRADE),--upgrade)

clean:  ## Remove built and cached files; .venv stays
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

.PHONY: help env check $(CHECKS)
.PHONY: house house-ratchet test policy demo demo-cloud replay bench campaign frameworks corpus record-gpu diagnose fuzz agent screenshots openapi release-openapi lock clean trackers
