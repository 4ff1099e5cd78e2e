"""What a launch on this computer would start: the agent beside the training, in a folder of its own.

Nothing is made. Of the environment the names are told, never a value: the service's own variables are among it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from supervisor.ports.provider import LaunchRequest
from supervisor.providers.local.secrets import variables, without_secrets


def preview(data_dir: Path, request: LaunchRequest) -> Mapping[str, object]:
    """`argv`: the agent's; `job`: what it reads; `environment`: names of what it inherits and gets, secrets left out;
    `secrets`: name -> reference."""
    folder = data_dir.resolve() / "machines" / request.name
    inherited = without_secrets(os.environ, variables(request.secrets.values()))
    return {
        "kind": "process",
        "argv": [sys.executable, str(folder / "agent.pyz"), str(folder)],
        "folder": str(folder),
        "environment": sorted({*inherited, "SPOT_MACHINE", "SPOT_MACHINE_DIR"}),
        "job": {**request.job, "name": request.name, "zone": request.placement.zone},
        "secrets": dict(request.secrets),
    }
