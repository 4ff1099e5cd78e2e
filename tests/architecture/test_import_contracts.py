"""Each contract of .importlinter works: a small tree with the same packages, one wrong import, one broken contract."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACTS = re.findall(r"^\[importlinter:contract:(.+)\]$", (ROOT / ".importlinter").read_text(), re.MULTILINE)

# The packages, and their correct imports.
HOUSE = {
    "__main__.py": "import supervisor.cli.main",
    "wiring/bootstrap.py": "import supervisor.wiring.application, supervisor.storage.engine.schema",
    "wiring/application.py": "import supervisor.providers.gce.provider, supervisor.notifiers.log",
    "images/cloudbuild.py": "import google, supervisor.machinefolder.agent_archive",
    "machinefolder/agent_archive.py": "import zipfile, supervisor.host.machines",
    "remote/hosts.py": "import supervisor.ports.store, supervisor.host.machines",
    "settings/loading.py": "import supervisor.domain.status",
    "telemetry/metrics.py": "import threading",
    "contract/baton.py": "import dataclasses",
    "contract/stores/folder.py": "import os",
    "host/machines.py": "import supervisor.contract.baton",
    "domain/run.py": "import supervisor.contract.baton",
    "domain/status.py": "import supervisor.domain.run",
    "wording/figures.py": "import supervisor.domain.run",
    "lifecycle/decide.py": "import supervisor.wording.figures",
    "ports/store.py": "import supervisor.domain.run",
    "storage/engine/schema.py": "import sqlalchemy, supervisor.ports.store",
    "providers/local/provider.py": "import supervisor.machinefolder.agent_archive",
    "providers/gce/provider.py": "import google",
    "objectstores/filesystem.py": "import supervisor.contract.stores.folder",
    "objectstores/gcs/store.py": "import google",
    "notifiers/log.py": "import logging",
    "notifiers/forms.py": "import httpx",
    "services/submit.py": "import supervisor.ports.store",
    "reconciler/loop.py": "import apscheduler, supervisor.lifecycle.decide",
    "api/wire/exposition.py": "import prometheus_client, supervisor.telemetry.metrics",
    "api/server.py": "import fastapi, supervisor.services.submit",
    "dashboard/app.py": "import starlette, supervisor.wording.figures",
    "cli/main.py": "import click, supervisor.cli.server.server",
    "cli/server/server.py": "import supervisor.wiring.bootstrap",
    "agent/main.py": "import supervisor.contract.baton",
}

# (contract, file, the import that breaks it)
BREAKS = [
    ("layers", "contract/baton.py", "import supervisor.domain.run"),
    ("layers", "host/machines.py", "import supervisor.domain.run"),
    ("layers", "domain/run.py", "import supervisor.ports.store"),
    ("layers", "ports/store.py", "import supervisor.lifecycle.decide"),
    ("layers", "wording/figures.py", "import supervisor.lifecycle.decide"),
    ("layers", "agent/main.py", "import supervisor.domain.run"),
    ("layers", "surprise.py", ""),
    ("layers", "machinefolder/agent_archive.py", "import supervisor.images.cloudbuild"),
    ("layers", "remote/hosts.py", "import supervisor.machinefolder.agent_archive"),
    ("layers", "images/cloudbuild.py", "import supervisor.services.submit"),
    ("layers", "dashboard/app.py", "import supervisor.api.server"),
    ("adapters", "api/server.py", "import supervisor.storage.engine.schema"),
    ("adapters", "reconciler/loop.py", "import supervisor.providers.local.provider"),
    ("agent", "providers/local/provider.py", "import supervisor.agent.main"),
    ("agent", "wiring/application.py", "import supervisor.agent.main"),
    ("api", "api/server.py", "import supervisor.reconciler.loop"),
    ("dashboard", "dashboard/app.py", "import supervisor.services.submit"),
    ("cli", "cli/main.py", "import supervisor.wiring.bootstrap"),
    ("cli", "cli/main.py", "import supervisor.services.submit"),
    ("pure", "domain/run.py", "import time"),
    ("pure", "wording/figures.py", "import logging"),
    ("pure", "lifecycle/decide.py", "import random"),
    ("pure", "lifecycle/decide.py", "import os.path"),
    ("promises", "ports/store.py", "import sqlalchemy"),
    ("providers", "providers/gce/provider.py", "import supervisor.providers.local.provider"),
    ("objectstores", "objectstores/gcs/store.py", "import supervisor.objectstores.filesystem"),
    ("notifiers", "notifiers/forms.py", "import supervisor.notifiers.log"),
    ("database", "services/submit.py", "import sqlite3"),
    ("scheduler", "wiring/bootstrap.py", "import apscheduler.schedulers.background"),
    ("http", "services/submit.py", "import starlette"),
    ("terminal", "settings/loading.py", "import rich.table"),
    ("vendors", "cli/server/server.py", "import mcp.server"),
    ("vendors", "providers/local/provider.py", "from google.cloud import compute_v1"),
    ("metrics", "telemetry/metrics.py", "import prometheus_client"),
    ("cycles", "domain/run.py", "import supervisor.domain.status"),
]


def build_tree(folder: Path, changed: str | None = None, line: str = "") -> None:
    """The tree under folder/supervisor; one file gets one more line."""
    files = dict(HOUSE)
    if changed is not None:
        files[changed] = f"{files.get(changed, '')}\n{line}"
    for name, text in files.items():
        path = folder / "supervisor" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
        for room in path.relative_to(folder).parents[:-1]:
            (folder / room / "__init__.py").touch()


# One process for all trees: to import the linter takes longer than to use it. Each tree has a fork of its own, because
# the linter finds the packages of the folder in which it runs.
LINT_ALL = """
import io, json, os, sys
from contextlib import redirect_stdout
from importlinter.cli import lint_imports
for folder, contracts in json.load(sys.stdin):
    sys.stdout.flush()
    if os.fork() == 0:
        os.chdir(folder)
        sys.path.insert(0, folder)
        with redirect_stdout(io.StringIO()) as told:
            code = lint_imports(sys.argv[1], limit_to_contracts=tuple(contracts), cache_dir=None)
        print(json.dumps([code, told.getvalue()]), flush=True)
        os._exit(0)
    os.wait()
"""
GOOD = ("", None, "")


@pytest.fixture(scope="module")
def linted(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str | None, str], tuple[int, str]]:
    """(contract, file, line) -> the linter's exit code and output. `GOOD`: the tree as it is, and all contracts."""
    trees = []
    for contract, file, line in (GOOD, *BREAKS):
        folder = tmp_path_factory.mktemp("tree")
        build_tree(folder, file, line)
        trees.append((str(folder), [contract] if contract else []))
    command = [sys.executable, "-c", LINT_ALL, str(ROOT / ".importlinter")]
    told = subprocess.run(command, input=json.dumps(trees), capture_output=True, text=True, check=True)
    return dict(zip((GOOD, *BREAKS), map(json.loads, told.stdout.splitlines()), strict=True))


def test_the_small_tree_breaks_no_contract(linted: dict) -> None:
    code, output = linted[GOOD]
    assert code == 0
    assert f"{len(CONTRACTS)} kept, 0 broken" in output, output


def test_every_contract_is_broken_below() -> None:
    assert {contract for contract, _, _ in BREAKS} == set(CONTRACTS)


@pytest.mark.parametrize("change", BREAKS, ids=" ".join)
def test_a_wrong_import_breaks_its_contract(linted: dict, change: tuple[str, str, str]) -> None:
    code, output = linted[change]
    assert code == 1
    assert "0 kept, 1 broken" in output, output
