"""Each contract of .importlinter bites: a small house with the same rooms, one wrong import, one broken contract."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACTS = re.findall(
    r"^\[importlinter:contract:(.+)\]$", (ROOT / ".importlinter").read_text(), re.MULTILINE
)

# The rooms, and the imports that are right.
HOUSE = {
    "__main__.py": "import supervisor.cli.main",
    "bootstrap.py": "import supervisor.house, supervisor.storage.schema, supervisor.settings",
    "examining.py": "import supervisor.house, supervisor.surroundings, supervisor.storage.store",
    "surroundings.py": "import supervisor.adapters, supervisor.services.submit",
    "house.py": "import supervisor.adapters, supervisor.outlets, supervisor.settings_digest",
    "settings_digest.py": "import supervisor.settings",
    "outlets.py": "import supervisor.adapters, supervisor.notifiers.log, supervisor.reconciler.loop",
    "building/cloudbuild.py": "import google",
    "adapters.py": "import supervisor.providers.gce.provider, supervisor.objectstores.gcs, supervisor.settings_gce",
    "settings.py": "import supervisor.settings_values",
    "settings_env_file.py": "import supervisor.settings_env_google",
    "settings_env_google.py": "",
    "settings_gce.py": "import supervisor.settings_values",
    "settings_access.py": "import supervisor.settings_values",
    "settings_alerts.py": "import supervisor.settings_files",
    "settings_files.py": "import supervisor.domain.errors",
    "service_manager.py": "",
    "google_recording.py": "",
    "trial_cloud.py": "import supervisor.adapters",
    "serving_process.py": "",
    "settings_env_text.py": "",
    "settings_values.py": "import os",
    "telemetry.py": "import supervisor.telemetry_redaction",
    "telemetry_metrics.py": "import supervisor.telemetry_counting",
    "telemetry_counting.py": "import threading",
    "telemetry_redaction.py": "import supervisor.domain.status",
    "agent_bundle.py": "import zipfile",
    "image_registry.py": "import httpx, supervisor.ports.provider",
    "domain/run.py": "import dataclasses",
    "domain/status.py": "import supervisor.domain.run",
    "lifecycle/decide.py": "import supervisor.domain.run",
    "ports/store.py": "import supervisor.domain.run",
    "storage/tables.py": "import sqlalchemy, supervisor.ports.store",
    "providers/registry.py": "import supervisor.providers.local.provider",
    "providers/local/provider.py": "import os",
    "providers/gce/provider.py": "import google",
    "objectstores/filesystem.py": "import supervisor.agent.stores.folder",
    "objectstores/gcs.py": "import supervisor.objectstores.gcs_session",
    "objectstores/plainfolder.py": "",
    "objectstores/gcs_session.py": "import google",
    "notifiers/log.py": "import logging",
    "notifiers/slack.py": "import httpx",
    "services/submit.py": "import supervisor.ports.store",
    "reconciler/loop.py": "import apscheduler, supervisor.lifecycle.decide",
    "api/exposition.py": "import prometheus_client, supervisor.telemetry_metrics",
    "api/app.py": "import fastapi, supervisor.services.submit",
    "dashboard/app.py": "import starlette, supervisor.lifecycle.decide",
    "cli/main.py": "import click, supervisor.cli.server",
    "cli/server.py": "import supervisor.bootstrap",
    "agent/main.py": "import supervisor.domain.run",
    "agent/stores/folder.py": "import os",
}

# (contract, file, the import that breaks it)
BREAKS = [
    ("layers", "domain/run.py", "import supervisor.ports.store"),
    ("layers", "ports/store.py", "import supervisor.lifecycle.decide"),
    ("layers", "agent/main.py", "import supervisor.ports.store"),
    ("layers", "surprise.py", ""),
    ("adapters", "api/app.py", "import supervisor.storage.tables"),
    ("adapters", "reconciler/loop.py", "import supervisor.providers.local.provider"),
    ("layers", "adapters.py", "import supervisor.bootstrap"),
    ("layers", "house.py", "import supervisor.bootstrap"),
    ("layers", "outlets.py", "import supervisor.house"),
    ("layers", "building/cloudbuild.py", "import supervisor.services.submit"),
    ("layers", "image_registry.py", "import supervisor.providers.gce.provider"),
    ("agent", "providers/local/provider.py", "import supervisor.agent.main"),
    ("agent", "objectstores/filesystem.py", "import supervisor.agent.main"),
    ("api", "api/app.py", "import supervisor.reconciler.loop"),
    ("layers", "dashboard/app.py", "import supervisor.api.app"),
    ("dashboard", "dashboard/app.py", "import supervisor.services.submit"),
    ("cli", "cli/main.py", "import supervisor.bootstrap"),
    ("cli", "cli/main.py", "import supervisor.services.submit"),
    ("pure", "domain/run.py", "import time"),
    ("pure", "lifecycle/decide.py", "import random"),
    ("pure", "lifecycle/decide.py", "import os.path"),
    ("promises", "ports/store.py", "import sqlalchemy"),
    ("providers", "providers/gce/provider.py", "import supervisor.providers.local.provider"),
    ("objectstores", "objectstores/gcs.py", "import supervisor.objectstores.filesystem"),
    ("notifiers", "notifiers/slack.py", "import supervisor.notifiers.log"),
    ("database", "services/submit.py", "import sqlite3"),
    ("scheduler", "bootstrap.py", "import apscheduler.schedulers.background"),
    ("http", "services/submit.py", "import starlette"),
    ("terminal", "settings.py", "import rich.table"),
    ("vendors", "providers/local/provider.py", "from google.cloud import compute_v1"),
    ("metrics", "telemetry_metrics.py", "import prometheus_client"),
    ("cycles", "domain/run.py", "import supervisor.domain.status"),
]


def build_house(folder: Path, changed: str | None = None, line: str = "") -> None:
    """The house under folder/supervisor; one file gets one more line."""
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
    program = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command; lint_imports_command()",
    ]
    config = ["--config", str(ROOT / ".importlinter"), "--no-cache", "--no-logo"]
    return subprocess.run(
        [*program, *config, *options], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_small_house_is_in_order(tmp_path: Path) -> None:
    build_house(tmp_path)
    result = lint(tmp_path)
    assert f"{len(CONTRACTS)} kept, 0 broken" in result.stdout, result.stdout + result.stderr


def test_every_contract_is_broken_below() -> None:
    assert {contract for contract, _, _ in BREAKS} == set(CONTRACTS)


@pytest.mark.parametrize(("contract", "file", "line"), BREAKS)
def test_the_contract_bites(tmp_path: Path, contract: str, file: str, line: str) -> None:
    build_house(tmp_path, file, line)
    result = lint(tmp_path, "--contract", contract)
    assert result.returncode == 1
    assert "0 kept, 1 broken" in result.stdout, result.stdout + result.stderr
