"""Two lines for a Python training under Spot Supervisor:

    import spot_progress
    spot_progress.report(step, total=steps, loss=loss)

and a third one, so that it saves after the present step when it must leave: `if spot_progress.stopping(): ...`.

The agent puts this module on the training's PYTHONPATH. Without SPOT_PROGRESS_FILE every call does nothing, so the same
script runs anywhere. One call is one JSON line, appended in one write; nothing here raises for a full disk.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import math
import os
import signal
import threading
from typing import Any, Dict, Optional


def report(step: int, total: Optional[int] = None, **metrics: float) -> None:
    """So many steps are done, of `total` if that is known. Metrics are numbers; other values are left out. NaN and
    infinity are reported by name, because JSON has no word for them."""
    line: Dict[str, Any] = {"step": int(step)}
    if total is not None:
        line["total"] = int(total)
    numbers = {name: _number(value) for name, value in metrics.items()}
    line["metrics"] = {name: value for name, value in numbers.items() if value is not None and math.isfinite(value)}
    nonfinite = {
        name: str(value) for name, value in numbers.items() if name not in line["metrics"] and value is not None
    }
    if nonfinite:
        line["nonfinite"] = nonfinite
    _append(line)


def checkpoint(path: Any, step: int) -> None:
    """This file or folder in SPOT_CHECKPOINT_DIR (its path or its name) is complete and holds this step."""
    _append({"checkpoint": os.path.basename(str(path).rstrip("/")), "step": int(step)})


def phase(name: str) -> None:
    """`evaluation`, `checkpoint` or `training`: in the first two no step is expected for a while."""
    _append({"phase": str(name)})


def stopping() -> bool:
    """True once this attempt must end (a stop, a preemption notice): save at the end of the step, then leave.

    Call it before the first step and after every step. The first call in the main thread installs a handler for TERM,
    if there is none: from then on TERM does not end the process, and no checkpoint is cut short in a signal handler.
    The file SPOT_STOP_FILE exists before TERM comes; a process that gets no TERM sees the file. Ranks that step
    together must agree: one may see it a step earlier.
    """
    path = os.environ.get("SPOT_STOP_FILE")
    if not path:
        return False
    if not _stop["handled"] and threading.current_thread() is threading.main_thread():
        _stop["handled"] = True
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _on_term)
    return _stop["received"] or os.path.exists(path)


def should_save() -> bool:
    """True once each time when a save is due, by its cost and the hazard of this machine; without the agent never."""
    before = _save["due"]
    with contextlib.suppress(OSError):
        status = os.stat(os.environ.get("SPOT_SAVE_FILE") or "")
        _save["due"] = (status.st_ino, status.st_mtime_ns)
    return bool(_save["due"] != before)


_save: Dict[str, Any] = {"due": None}
_stop = {"handled": False, "received": False}


def _on_term(number: int, frame: Any) -> None:
    _stop["received"] = True


def _append(line: Dict[str, Any]) -> None:
    path = os.environ.get("SPOT_PROGRESS_FILE")
    if not path:
        return
    try:
        with open(path, "ab", buffering=0) as target:
            target.write(json.dumps(line).encode() + b"\n")
    except OSError:
        pass  # the next report replaces a lost one


def _number(value: Any) -> Optional[float]:
    try:
        return float(value)  # also numbers of numpy and torch
    except (TypeError, ValueError, OverflowError):
        return None


def _offer_thread_dump() -> None:
    """Let the agent read where our threads stand, if the steps stop: at a realtime signal without another use,
    faulthandler writes the stacks into a file with our pid in its name. It never replaces another handler."""
    number = getattr(signal, "SIGRTMIN", 0) + 5
    folder = os.path.join(os.environ.get("SPOT_MACHINE_DIR", ""), "work", "threads")
    if not os.path.isabs(folder) or number == 5:
        return
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as source:
            fields = dict(line.partition(":")[::2] for line in source)
        if any(int(fields[name], 16) >> (number - 1) & 1 for name in ("SigCgt", "SigIgn", "SigBlk")):
            return
        path = os.path.join(folder, "%d.%d" % (os.getpid(), number))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        target = os.open(path, flags, 0o600)  # never closed: faulthandler writes to it
        faulthandler.register(number, file=target, all_threads=True, chain=False)
    except (OSError, ValueError, KeyError, RuntimeError):
        pass  # then there is no dump of this kind, and the training is not affected


_offer_thread_dump()
