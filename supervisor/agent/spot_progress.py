"""Two lines for a Python training under Spot Supervisor:

    import spot_progress
    spot_progress.report(step, total=steps, loss=loss)

The agent puts this module on the training's PYTHONPATH. Without SPOT_PROGRESS_FILE every call does nothing, so the
same script runs anywhere. One call is one JSON line, appended in one write; nothing here raises for a full disk.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any, Dict, Optional


def report(step: int, total: Optional[int] = None, **metrics: float) -> None:
    """This many steps are done, of `total` when known. Metrics are numbers; others are left out."""
    line: Dict[str, Any] = {"step": int(step)}
    if total is not None:
        line["total"] = int(total)
    numbers = {name: _number(value) for name, value in metrics.items()}
    line["metrics"] = {name: value for name, value in numbers.items() if value is not None}
    _append(line)


def checkpoint(name: str, step: int) -> None:
    """The file or folder `name` in SPOT_CHECKPOINT_DIR is complete and holds this step."""
    _append({"checkpoint": os.path.basename(str(name).rstrip("/")), "step": int(step)})


def phase(name: str) -> None:
    """`evaluation`, `checkpoint` or `training`: in the first two no step is expected for a while."""
    _append({"phase": str(name)})


def _append(line: Dict[str, Any]) -> None:
    path = os.environ.get("SPOT_PROGRESS_FILE")
    if not path:
        return
    try:
        with open(path, "ab", buffering=0) as target:
            target.write(json.dumps(line).encode() + b"\n")
    except OSError:
        pass  # a report that is lost is caught up by the next one


def _number(value: Any) -> Optional[float]:
    try:
        number = float(value)  # also numbers of numpy and torch
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
