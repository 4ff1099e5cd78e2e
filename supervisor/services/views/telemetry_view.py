"""How a run's machine is, as the API shows it: one object for each GPU, null for what is not known.

The figures are those of the newest beat that told any, and its shape is `Telemetry` in openapi/openapi.json.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from supervisor.contract.beat_telemetry import Cgroup, Disk, Gpus, Telemetry, Tree, decode
from supervisor.domain.machines.figures import disks_of
from supervisor.domain.run import Run
from supervisor.wording.forecast import live_pulse

_GPU_NAMES = tuple(field.name for field in fields(Gpus))


def telemetry_json(run: Run) -> dict[str, Any] | None:
    """Of the live attempt; None when there is none, or when its beats have told nothing yet."""
    pulse = live_pulse(run)
    told = decode(pulse.telemetry) if pulse is not None else None
    if told is None:
        return None
    disks = disks_of(told)
    return {
        "gpus": _gpus(told),
        "cgroup": _part(told.cgroup),
        "disks": {role: _part(disks.get(role)) for role in ("checkpoints", "results", "scratch")},
        "tree": _part(told.tree),
        "uptime_s": told.uptime_s,
        "log_bytes": _whole(told.log_bytes),
        "shm_bytes": _whole(told.shm_bytes),
        "shm_free_bytes": _whole(told.shm_free_bytes),
    }


def _gpus(told: Telemetry) -> list[dict[str, Any]]:
    """One object for each card that any column tells of: forged columns may differ in length."""
    if told.gpus is None:
        return []
    columns = {name: getattr(told.gpus, name) for name in _GPU_NAMES}
    count = max(len(column) for column in columns.values())
    return [
        {name: _whole(column[n]) if n < len(column) else None for name, column in columns.items()}
        for n in range(count)
    ]


def _part(part: Cgroup | Disk | Tree | None) -> dict[str, Any] | None:
    return None if part is None else {name: _whole(figure) for name, figure in vars(part).items()}


def _whole(figure: float | None) -> float | int | None:
    """Read back from a row, whole figures are int already."""
    return int(figure) if isinstance(figure, float) and figure.is_integer() else figure
