"""The runs of a group as a table of cells: where they differ, their last metrics, what they cost together; and runs
that are compared.

From the API's JSON; the terminal and the page show the same texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from supervisor.domain.status import TERMINAL, Status
from supervisor.wording.figures import DASH, count, metric_text, percent, plural, spent

AXES_MOST = 8
METRICS_MOST = 4

RunJson = Mapping[str, Any]
Named = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CellRow:
    """One run. `values`, `metrics`: as text, in the order of the table's names; a dash where it has none."""

    run: RunJson
    values: Named
    metrics: Named
    step: str
    done_pct: float | None  # None = the total is unknown
    cost: str


@dataclass(frozen=True, slots=True)
class CellTable:
    """`axes`: labels in which the runs differ. `metrics`: names in the newest beats and samples."""

    axes: Named
    metrics: Named
    rows: tuple[CellRow, ...]


def cell_table(runs: Sequence[RunJson]) -> CellTable:
    axes, metrics = _axes(runs), _metrics(runs)
    return CellTable(axes, metrics, tuple(_row(run, axes, metrics) for run in runs))


def _axes(runs: Sequence[RunJson]) -> Named:
    """In the order of the first run that has them; a label that some runs lack differs, too."""
    names = dict.fromkeys(name for run in runs for name in run["labels"])
    different = [name for name in names if len({run["labels"].get(name) for run in runs}) > 1]
    return tuple(different[:AXES_MOST])


def _metrics(runs: Sequence[RunJson]) -> Named:
    names = dict.fromkeys(name for run in runs for name in _progress(run).get("metrics") or {})
    return tuple(names)[:METRICS_MOST]


def _progress(run: RunJson) -> Mapping[str, Any]:
    return run.get("progress") or {}


def _row(run: RunJson, axes: Named, metrics: Named) -> CellRow:
    progress, newest = _progress(run), _progress(run).get("metrics") or {}
    step, total = progress.get("step"), progress.get("total")
    about = "≈ " if progress.get("guessed") else ""
    return CellRow(
        run=run,
        values=tuple(run["labels"].get(name, DASH) for name in axes),
        metrics=tuple(f"{newest[name]:.4g}" if name in newest else DASH for name in metrics),
        step=about + (f"{count(step)} of {count(total)}" if step is not None and total else count(step)),
        done_pct=100.0 if run["status"] == Status.COMPLETED and step is not None else percent(step, total),
        cost=spent(run.get("cost")),
    )


def group_line(name: str, runs: Sequence[RunJson], counts: Mapping[str, int]) -> str:
    """`sweep: 6 runs · 3 waiting, 2 running, 1 completed · at most 2 at once · $1.20`. Limit and cost are of `runs`
    alone."""
    states = [f"{counts[word]} {word.replace('_', ' ')}" for word in map(str, Status) if counts.get(word)]
    parts = (f"{name}: {plural(sum(counts.values()), 'run')}", ", ".join(states), limit_text(runs), group_cost(runs))
    return " · ".join(part for part in parts if part not in ("", DASH))


def limit_text(runs: Sequence[RunJson]) -> str:
    """`at most 2 at once`; "" = no live run states a limit."""
    limits = [run["max_parallel"] for run in runs if run["status"] not in TERMINAL and run.get("max_parallel")]
    return f"at most {min(limits)} at once" if limits else ""


def group_cost(runs: Sequence[RunJson]) -> str:
    """Of these runs together; a lower bound where a price is unknown."""
    costs = [run.get("cost") or {} for run in runs]
    return spent({"usd": sum(cost.get("usd") or 0.0 for cost in costs), "known": all(c.get("known") for c in costs)})


def value_at(shown: Mapping[str, Any] | None) -> str:
    """`0.3112 at step 4,200`."""
    return DASH if shown is None else f"{metric_text(shown['value'])} at step {count(shown['step'])}"


def verdict_texts(comparison: Mapping[str, Any]) -> list[str]:
    """Which of the compared runs is the best, which checkpoint, and how to get it."""
    by, best, kept = comparison["by"], comparison["best_run"], comparison["best_checkpoint_run"]
    runs = {run["run_id"]: run for run in comparison["runs"]}
    texts = []
    if best is not None:
        which = "lowest" if comparison["better"] == "min" else "highest"
        texts.append(f"The {which} {by}: {best}, {value_at(runs[best]['best'])}.")
    if kept is not None:
        checkpoint = runs[kept]["best_checkpoint"]
        texts.append(
            f"The best checkpoint that is kept: step {count(checkpoint['step'])} of {kept} ({by} "
            f"{metric_text(checkpoint['value'])}), {checkpoint['path']}. Get it: spot pull {kept} --kind checkpoints"
        )
    if comparison["left_out"]:
        texts.append(f"{plural(comparison['left_out'], 'run')} of the group left out: name the runs to compare others.")
    texts += [f"{run['run_id']}: {run['problem']}" for run in comparison["runs"] if run["problem"]]
    return texts
