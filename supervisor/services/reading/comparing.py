"""Several runs beside each other: their curves, what differs in their specs, the last and the best value of each
metric, and the best checkpoint by one metric.

The runs are read side by side, each within READ_S; a run that cannot be read in that time is in the response without
its figures, and says so. Which values are better is told by the request, else by the name of the metric.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from typing_extensions import TypedDict

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Pointer
from supervisor.domain.errors import InvalidRequest, NotFound
from supervisor.domain.run import Run
from supervisor.ports.objectstore import ObjectMissing, StoreUnavailable
from supervisor.ports.store import RunFilter
from supervisor.services.parts import Answer, Parts, ask_together
from supervisor.services.reading.curves import Curves, Figure, Joined, MetricShown, StepValue, higher_is_better
from supervisor.services.runs.spec_secrets import shown_spec
from supervisor.services.views import formats
from supervisor.wording.figures import clip

RUNS_MAX = 20
CURVES_MAX = 8  # metrics with their points
READ_S = 8.0
DIFFERENCES = 60
TEXT_CHARS = 200
UNREAD = "The metrics of this run cannot be read now. Try again."

Direction = Literal["min", "max"]


class Difference(TypedDict):
    """`name`: of a field of the spec, or `labels.NAME`. `values`: in the order of the runs; null: it has none."""

    name: str
    values: list[str | None]


class CheckpointShown(TypedDict):
    """`path`: of the folder, as in the list of files. `value`: the last one that was reported up to its step."""

    step: int
    value: Figure
    path: str


class ComparedRun(TypedDict):
    """`best`: of the metric `by`; null: it was never finite. `best_checkpoint`: among those that are kept; null: none
    has a value. `problem`: what could not be read; "" = nothing is missing."""

    run_id: str
    status: str
    since: formats.Time
    metrics: list[MetricShown]
    best: StepValue | None
    best_checkpoint: CheckpointShown | None
    problem: str


class Comparison(TypedDict):
    """`by`: the metric by which a run is the best, as requested; null: no run reported any. `better`: `min` or `max`.
    `best_run`: of the best value, `best_checkpoint_run`: of the best checkpoint that is kept. `left_out`: runs of the
    group beyond the first 20."""

    runs: list[ComparedRun]
    metrics: list[str]
    by: str | None
    better: Direction
    best_run: str | None
    best_checkpoint_run: str | None
    differs: list[Difference]
    differs_left_out: int
    left_out: int


@dataclass(frozen=True, slots=True)
class Wish:
    """`names`: metrics whose curves are wanted; none = only the first one. `better` None = by the name of `by`."""

    names: tuple[str, ...] = ()
    points: int = 500
    by: str | None = None
    better: Direction | None = None


def compare(parts: Parts, curves: Curves, where: RunFilter, wish: Wish) -> Comparison:
    """The runs in the order in which they were named, else submitted. Raises NotFound, InvalidRequest."""
    page = parts.store.page(where, None, len(where.run_ids) or RUNS_MAX)
    runs = _in_order(page.runs, where)
    if not runs:
        raise InvalidRequest("No run is named: give `run_id` or a group with runs.", {}, [("?run_id", "names no run")])
    answers = ask_together({run.run_id: partial(_read, parts, curves, run) for run in runs}, READ_S)
    names = _names(answers)
    by = wish.by or next(iter(names), None)
    better: Direction = wish.better or ("max" if by is not None and higher_is_better(by) else "min")
    shown = [_compared(run, answers[run.run_id], _Rank(by, better), wish) for run in runs]
    rows = list(_differences(parts, runs, page.labels))
    return {
        "runs": shown,
        "metrics": names,
        "by": by,
        "better": better,
        "best_run": _best_run({run["run_id"]: run["best"] for run in shown}, better),
        "best_checkpoint_run": _best_run({run["run_id"]: run["best_checkpoint"] for run in shown}, better),
        "differs": rows[:DIFFERENCES],
        "differs_left_out": max(0, len(rows) - DIFFERENCES),
        "left_out": max(0, sum(page.counts.values()) - len(runs)),
    }


def _in_order(runs: Sequence[Run], where: RunFilter) -> list[Run]:
    """Raises NotFound."""
    if not where.run_ids:
        return list(runs)
    by_id = {run.run_id: run for run in runs}
    for run_id in where.run_ids:
        if run_id not in by_id:
            raise NotFound(f"There is no run {clip(run_id, 80)}. `spot ls` lists the runs.")
    return [by_id[run_id] for run_id in dict.fromkeys(where.run_ids)]


def _read(parts: Parts, curves: Curves, run: Run) -> tuple[Joined, tuple[Pointer, ...]]:
    """The metrics, and the checkpoints that are kept, as far as they can be read."""
    joined = curves.of(run)
    try:
        return joined, tuple(batons.pointers(batons.decode(parts.objects.get(runfiles.baton(run.run_id))[0])))
    except (StoreUnavailable, ObjectMissing, ValueError):
        return joined, ()


def _names(answers: Mapping[str, Answer]) -> list[str]:
    """Those of the most runs first, then a loss first."""
    counts = Counter(name for answer in answers.values() if answer.good for name in answer.value[0].names)
    return sorted(counts, key=lambda name: (-counts[name], "loss" not in name.lower(), name))


@dataclass(frozen=True, slots=True)
class _Rank:
    """By which metric runs are compared, and which of its values are better."""

    by: str | None
    better: Direction

    def of(self, row: MetricShown) -> StepValue | None:
        return row["lowest"] if self.better == "min" else row["highest"]


def _compared(run: Run, answer: Answer, rank: _Rank, wish: Wish) -> ComparedRun:
    joined: Joined | None = answer.value[0] if answer.good else None
    wanted = wish.names or (rank.by,)
    rows = []
    if joined is not None:
        rows = [joined.metric(name, wish.points if name in wanted else 0) for name in joined.names]
    ranked = joined is not None and rank.by in joined.names
    return {
        "run_id": run.run_id,
        "status": str(run.status),
        "since": formats.time_text(run.created_at),
        "metrics": rows,
        "best": next((rank.of(row) for row in rows if row["name"] == rank.by), None),
        "best_checkpoint": _best_checkpoint(run, answer.value, rank) if ranked else None,
        "problem": UNREAD if joined is None else joined.problem,
    }


def _best_checkpoint(run: Run, read: tuple[Joined, Sequence[Pointer]], rank: _Rank) -> CheckpointShown | None:
    """Its value is the last finite one that was reported up to its step."""
    joined, pointers = read
    points = [point for point in joined.points(rank.by or "") if math.isfinite(point[2])]
    steps = [point[0] for point in points]
    valued = [(points[at - 1][2], pointer) for pointer in pointers if (at := bisect_right(steps, pointer.step))]
    if not valued:
        return None
    value, pointer = (min if rank.better == "min" else max)(valued, key=lambda pair: pair[0])
    path = pointer.prefix.removeprefix(runfiles.folder(run.run_id)).rstrip("/")
    return {"step": pointer.step, "value": value, "path": path}


def _best_run(values: Mapping[str, StepValue | CheckpointShown | None], better: Direction) -> str | None:
    valued = {name: shown["value"] for name, shown in values.items() if shown is not None}
    if not valued:
        return None
    return (min if better == "min" else max)(valued, key=lambda name: float(valued[name]))


# --- specs ------------------------------------------------------------------------------------------------------------


def _differences(parts: Parts, runs: Sequence[Run], labels: Mapping[int, Mapping[str, str]]) -> Iterator[Difference]:
    """The labels first: they are the axes of a sweep."""
    specs = [
        {
            **{f"labels.{name}": text for name, text in labels.get(run.key, {}).items()},
            **dict(_fields("", {**shown_spec(parts.store.spec(run.key)), "labels": None})),
        }
        for run in runs
    ]
    names = dict.fromkeys(name for spec in specs for name in spec)
    for name in sorted(names, key=lambda name: not name.startswith("labels.")):
        values = [spec.get(name) for spec in specs]
        if len(set(values)) > 1:
            yield {"name": name, "values": [None if value is None else clip(value, TEXT_CHARS) for value in values]}


def _fields(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _fields(f"{prefix}.{name}" if prefix else str(name), inner)
    elif isinstance(value, str):
        yield prefix, value
    elif value is not None:
        yield prefix, formats.dumps(value)
