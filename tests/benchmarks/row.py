"""A row of the report: one figure, its target, and how far apart they are.

`distance` is how the figure compares with its target: 1.0 is exactly on it, below is better, 1.25 misses it by a
quarter. A measurement that failed is a row too, with value null and the reason: a figure that nobody sees is missed.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

AT_MOST, AT_LEAST = "<=", ">="


@dataclass(frozen=True, slots=True)
class Row:
    """What will be measured. `target` None: it depends on what is measured with it, or nothing is promised."""

    name: str
    unit: str
    better: str = AT_MOST
    target: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured. `baseline`: the bare thing that it stands on, measured in the same run. `target`: where the
    row's own depends on the baseline. `note`: what one has to know to read the figure."""

    value: float
    baseline: float | None = None
    target: float | None = None
    note: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. Quick: does everything work, in a minute; its figures say little."""

    runs: int = 10_000
    rows: int = 100_000
    seconds: float = 10.0
    idle_s: float = 30.0
    times: int = 5


FULL = Size()
QUICK = Size(runs=500, rows=3_000, seconds=2.0, idle_s=4.0, times=2)

Measure = Callable[[Size], Mapping[str, Figure]]


@dataclass(frozen=True, slots=True)
class Bench:
    """One measurement and the rows that it fills, in the order in which they are printed."""

    measure: Measure
    rows: tuple[Row, ...]

    def report(self, size: Size) -> list[dict[str, Any]]:
        try:
            found, reason = self.measure(size), "not measured"
        except Exception as error:  # noqa: BLE001 - whatever broke one row, the others are measured and this one says so
            found, reason = {}, f"{type(error).__name__}: {error}"[:2000]
        return [_line(row, found.get(row.name), reason, size) for row in self.rows]


def _line(row: Row, figure: Figure | None, reason: str, size: Size) -> dict[str, Any]:
    line: dict[str, Any] = {"name": row.name, "value": None, "unit": row.unit}
    if figure is None:
        return {**line, "target": row.target, "met": False, "reason": reason, "machine": machine()}
    target = figure.target if figure.target is not None else row.target
    distance = None if target is None else _distance(figure.value, target, row.better)
    line |= {"value": _short(figure.value), "better": row.better, "target": _short(target)}
    line |= {"met": None if distance is None else distance <= 1.0, "distance": _short(distance)}
    line |= {"baseline": _short(figure.baseline), **figure.note}
    if size != FULL:
        line["quick"] = True
    return {**line, "machine": machine()}


def _distance(value: float, target: float, better: str) -> float:
    over, under = (value, target) if better == AT_MOST else (target, value)
    return over / under if under else float(over > 0) * 1e9


def _short(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.4g}")


def dumps(line: Mapping[str, Any]) -> str:
    return json.dumps(line, allow_nan=False)


@cache
def machine() -> dict[str, Any]:
    cpus = [line for line in _read("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": cpus[0].partition(":")[2].strip() if cpus else platform.machine(),
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
