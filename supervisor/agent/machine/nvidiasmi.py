"""The same figures from the program nvidia-smi, where the library itself cannot be loaded (another libc, say).

One call takes a good part of a second, so it is asked at most once a minute. What a card does not have, it answers with
a word in brackets.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import time
from typing import Callable, Dict, List, Optional, Sequence, Tuple

PROGRAM = "nvidia-smi"
PACE_S, TIMEOUT_S = 60.0, 20.0
_FIELDS: Tuple[Tuple[str, str], ...] = (
    ("util_pct", "utilization.gpu"),
    ("memory_used_mib", "memory.used"),
    ("memory_total_mib", "memory.total"),
    ("sm_clock_mhz", "clocks.sm"),
    ("sm_clock_max_mhz", "clocks.max.sm"),
    ("power_w", "power.draw"),
    ("power_limit_w", "power.limit"),
    ("temperature_c", "temperature.gpu"),
    ("ecc_uncorrected", "ecc.errors.uncorrected.volatile.total"),
)
# The newer name, the older one; without either where a driver knows none of them: it refuses the whole question then.
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active", "")

Row = Dict[str, Optional[float]]
_log = logging.getLogger("agent")


class NvidiaSmi:
    """`read` gives what was last told for a minute. Used by one thread at a time."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, timeout_s: float = TIMEOUT_S) -> None:
        self._monotonic, self._timeout_s = monotonic, timeout_s
        self._reasons: Tuple[str, ...] = _REASONS
        self._rows: Dict[str, Row] = {}  # by index and by UUID
        self._indexes: List[str] = []
        self._asked_at: Optional[float] = None

    def read(self, names: Optional[Sequence[str]]) -> List[Row]:
        """One row for each of `names`, None = all cards; empty for one that it does not tell of."""
        self._ask()
        return [self._rows.get(name, {}) for name in (self._indexes if names is None else names)]

    def _ask(self) -> None:
        now = self._monotonic()
        if self._asked_at is not None and now - self._asked_at < PACE_S:
            return
        self._asked_at, self._rows, self._indexes = now, {}, []
        if shutil.which(PROGRAM) is None:
            return
        for reasons in self._reasons:
            fields = ["index", "uuid", *(field for _, field in _FIELDS), *([reasons] if reasons else [])]
            try:
                lines = query(fields, self._timeout_s, ",nounits")
            except subprocess.CalledProcessError:
                continue  # it refused the question
            except (OSError, subprocess.TimeoutExpired) as error:
                _log.warning("nvidia-smi does not answer: %s", error)
                return
            if lines:
                self._reasons = (reasons,)
                self._read(lines)
                return

    def _read(self, lines: List[List[str]]) -> None:
        columns = [name for name, _ in _FIELDS] + ["clock_reasons"]
        for cells in lines:
            if len(cells) < 2 + len(_FIELDS):
                continue
            row = {name: _figure(cell) for name, cell in zip(columns, cells[2:])}
            self._indexes.append(cells[0])
            self._rows[cells[0]] = self._rows[cells[1]] = row


def query(fields: Sequence[str], timeout_s: float, form: str = "") -> List[List[str]]:
    """A line of cells for each card. Raises OSError, subprocess.SubprocessError."""
    done = subprocess.run(
        [PROGRAM, "--query-gpu=" + ",".join(fields), "--format=csv,noheader" + form],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=timeout_s,
        check=True,
    )
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return [[cell.strip() for cell in line.split(",")] for line in lines]


def _figure(cell: str) -> Optional[float]:
    try:
        return float(int(cell, 16)) if cell.startswith("0x") else float(cell)
    except ValueError:
        return None
