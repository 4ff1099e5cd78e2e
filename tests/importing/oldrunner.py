"""A folder as the older shell runner leaves it: the shapes of its entry point, reconciler and submit script.

The shapes come from what those scripts write: state.json with its last changes, one object an event, a heartbeat
without a step, the command as plain text in run_config.json and as base64 in the restart configuration.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

OLD_ID = "rav-chexpert-20260227-010203"
COMMAND = 'set -euo pipefail; python train.py --config "configs/primary.yaml"'
IMAGE = "us-east1-docker.pkg.dev/rav-ai/rav/trainer:latest"
LAST, BEST = b"last checkpoint " * 4096, b"best checkpoint"
MACHINE = "rav-chexpert-1a2b3c4d-r1"


def moved(before: str | None, after: str, at: str, by: str, reason: str) -> dict[str, Any]:
    return {"from": before, "to": after, "at": at, "by": by, "reason": reason}


HISTORY = [
    moved(None, "RUNNING", "2026-02-27T01:10:00Z", "vm", "container_started"),
    moved("RUNNING", "PREEMPTED", "2026-02-27T03:24:00Z", "vm", "preemption_detected"),
    moved("PREEMPTED", "RESTARTING", "2026-02-27T03:29:00Z", "reconciler", "restart 1 of 3"),
    moved("RESTARTING", "RUNNING", "2026-02-27T03:33:00Z", "vm", "container_started"),
    moved("RUNNING", "STOPPED", "2026-02-27T05:00:00Z", "operator", "stop_requested"),
]


def old_run(
    old_id: str = OLD_ID, command: str = COMMAND, image: str = IMAGE, **changed: bytes | None
) -> dict[str, bytes]:
    """key -> content. `changed`: by the names of `NAMES`, None leaves the file out."""
    state = {
        "state": "STOPPED", "prev_state": "RUNNING", "state_version": 5, "owner_id": MACHINE, "instance_name": MACHINE,
        "zone": "us-east1-d", "attempt": 1, "updated_at": "2026-02-27T05:00:00Z", "updated_by": "operator",
        "reason": "stop_requested", "history": HISTORY,
    }  # fmt: skip
    config = {
        "run_id": old_id, "image": image, "machine_type": "n1-standard-8", "gpu_type": "nvidia-tesla-t4",
        "zone": "us-east1-c", "fallback_zones": ["us-east1-b", "us-east1-d"], "max_runtime_sec": "172800",
        "job_command_b64": base64.b64encode(command.encode()).decode(), "conda_env": "",
        "env": {"EPOCHS": "30", "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567"},
    }  # fmt: skip
    run_config = {"run_id": old_id, "instance": MACHINE, "zone": "us-east1-d", "job_command": command, "conda_env": ""}
    manifest = {
        "schema_version": 1, "run_id": old_id, "instance": MACHINE, "zone": "us-east1-d", "phase": "running",
        "exit_code": None, "started_at": "2026-02-27T03:33:00Z", "finished_at": None,
    }  # fmt: skip
    one = {
        "instance_name": "rav-chexpert-1a2b3c4d-r0", "zone": "us-east1-c", "started_at": "2026-02-27T01:05:00Z",
        "ended_at": "2026-02-27T03:24:30Z", "end_reason": "preemption_detected",
    }  # fmt: skip
    two = {"instance_name": MACHINE, "zone": "us-east1-d", "started_at": "2026-02-27T03:30:00Z"}
    heartbeat = {"timestamp": "2026-02-27T04:59:40Z", "phase": "running", "uptime_sec": 5200, "exit_code": 0}
    files: dict[str, bytes | None] = {
        "state.json": _json(state),
        "status.txt": b"STOPPED",
        "heartbeat.json": _json(heartbeat),
        "run_manifest.json": _json(manifest),
        "run_config.json": _json(run_config),
        "restart_config.json": _json(config),
        ".stop": b"stop\n",
        ".owner.lock": _json({"owner_id": MACHINE}),
        "instances/0.json": _json(one),
        "instances/1.json": _json(two),
        "checkpoint_sync/checkpoints/last.pt": LAST,
        "checkpoint_sync/checkpoints/best.pt": BEST,
        "checkpoint_sync/metrics/history.jsonl": b'{"epoch": 1}\n',
        "results/report.md": b"# Report\n",
    }
    for number, change in enumerate(HISTORY):
        files[f"events/20260227T0{number}0000Z_vm_{number:08x}.json"] = _json(change)
    names = {name.rpartition("/")[2].replace(".", "_").lstrip("_"): name for name in files}
    assert set(changed) <= set(names), sorted(set(changed) - set(names))
    files |= {names[short]: content for short, content in changed.items()}
    return {f"runs/{old_id}/{name}": data for name, data in files.items() if data is not None}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=2).encode()
