"""The runs of a group as rows of cells: the values in which they differ, their last metrics, what they cost together.

From the API's JSON; the terminal and the page show the same texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from supervisor.domain.status import Status
from supervisor.wording.figures import DASH, count, money_text, percent, plural, spent

AXES_MOST = 8
METRICS_MOST = 3

RunJson = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CellRow:
    """One run of a group. `values`: of each axis, in their order. `done_pct`: None = the total is unknown."""

    run_id: str
    values: tuple[str, ...]
    status: str
    status_text: str
    step: str
    done_pct: float | None
    metrics: str
    cost: str


def cell_rows(runs: Sequence[RunJson]) -> tuple[list[str], list[CellRow]]:
    """(the axes, a row for each run)."""
    names = axes(runs)
    return names, [_row(run, names) for run in runs]


def _row(run: RunJson, names: Sequence[str]) -> CellRow:
    labels, progress = run.get("labels") or {}, run.get("progress") or {}
    step, total = progress.get("step"), progress.get("total")
    done_pct = 100.0 if run["status"] == Status.COMPLETED and step is not None else percent(step, total)
    return CellRow(
        run_id=run["run_id"],
        values=tuple(labels.get(name, DASH) for name in names),
        status=run["status"],
        status_text=run["status_text"],
        step=f"{count(step)} of {count(total)}" if step is not None and total else count(step),
        done_pct=done_pct,
        metrics=metrics_text(progress.get("metrics") or {}),
        cost=spent(run.get("cost")),
    )


def axes(runs: Sequence[RunJson]) -> list[str]:
    """The labels in which the runs differ, in the order of their first run; a label that some lack differs too."""
    names = dict.fromkeys(name for run in runs for name in run.get("labels") or {})
    different = [name for name in names if len({(run.get("labels") or {}).get(name) for run in runs}) > 1]
    return different[:AXES_MOST]


def metrics_text(metrics: Mapping[str, float]) -> str:
    """`loss 0.42, accuracy 0.91` of the newest beat or sample."""
    shown = [f"{name} {value:.4g}" for name, value in list(metrics.items())[:METRICS_MOST]]
    return (", ".join(shown) + (", …" if len(metrics) > METRICS_MOST else "")) or DASH


def group_line(name: str, runs: Sequence[RunJson], counts: Mapping[str, int]) -> str:
    """`sweep: 6 runs · 3 waiting, 2 running, 1 completed · $1.20`. The cost is of `runs` alone."""
    states = [f"{counts[word]} {word.replace('_', ' ')}" for word in map(str, Status) if counts.get(word)]
    costs = [run.get("cost") or {} for run in runs]
    total = {"usd": sum(cost.get("usd") or 0.0 for cost in costs), "known": all(c.get("known", True) for c in costs)}
    parts = [f"{name}: {plural(sum(counts.values()), 'run')}", ", ".join(states), spent(total)]
    return " · ".join(part for part in parts if part and part not in (DASH, money_text(0.0)))
