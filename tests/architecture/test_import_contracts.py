"""Each contract of .importlinter works: a small tree with the same packages, one wrong import, one broken contract."""

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


def lint(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    config = ["--config", str(ROOT / ".importlinter"), "--no-cache", "--no-logo"]
    return subprocess.run([*program, *config, *options], cwd=folder, capture_output=True, text=True, check=False)


def test_the_small_tree_breaks_no_contract(tmp_path: Path) -> None:
    build_tree(tmp_path)
    result = lint(tmp_path)
    assert f"{len(CONTRACTS)} kept, 0 broken" in result.stdout, result.stdout + result.stderr


def test_every_contract_is_broken_below() -> None:
    assert {contract for contract, _, _ in BREAKS} == set(CONTRACTS)


@pytest.mark.parametrize(("contract", "file", "line"), BREAKS)
def test_a_wrong_import_breaks_its_contract(tmp_path: Path, contract: str, file: str, line: str) -> None:
    build_tree(tmp_path, file, line)
    result = lint(tmp_path, "--contract", contract)
    assert result.returncode == 1
    assert "0 kept, 1 broken" in result.stdout, result.stdout + result.stderr
