"""The same figures from the program nvidia-smi, where the library itself cannot be loaded (another libc, say).

One call takes a good part of a second, so it is asked at most once a minute. What a card does not have, it answers with
a word in brackets.
"""

from __future__ import annotations

import logging
import shutil
import time
from typing import Callable, Dict, List, Optional, Sequence, Tuple

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

    def every_card(self) -> List[str]:
        self._ask()
        return list(self._indexes)

    def read(self, names: Sequence[str]) -> List[Row]:
        """One row for each card; empty for one that was not named."""
        self._ask()
        return [self._rows.get(name, {}) for name in names]

    def _ask(self) -> None:
        now = self._monotonic()
        if self._asked_at is not None and now - self._asked_at < PACE_S:
            return
        self._asked_at, self._rows, self._indexes = now, {}, []
        path = shutil.which("nvidia-smi")
        if path is None:
            return
        for reasons in self._reasons:
            text = self._output(path, reasons)
            if text:
                self._reasons = (reasons,)
                self._read(text)
            if text is None or text:
                return

    def _output(self, path: str, reasons: str) -> Optional[str]:
        """'' when it refused the question, None when it did not answer."""
        import subprocess  # seldom needed, and the agent is small

        names = ["index", "uuid", *(field for _, field in _FIELDS), *([reasons] if reasons else [])]
        command = [path, "--query-gpu=" + ",".join(names), "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=self._timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            _log.warning("nvidia-smi does not answer: %s", error)
            return None
        return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""

    def _read(self, text: str) -> None:
        columns = [name for name, _ in _FIELDS] + ["clock_reasons"]
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.split(",")]
            if len(cells) < 2 + len(_FIELDS):
                continue
            row = {name: _figure(cell) for name, cell in zip(columns, cells[2:])}
            self._indexes.append(cells[0])
            self._rows[cells[0]] = self._rows[cells[1]] = row


def _figure(cell: str) -> Optional[float]:
    try:
        return float(int(cell, 16)) if cell.startswith("0x") else float(cell)
    except ValueError:
        return None
