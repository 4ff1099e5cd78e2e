"""The line of steps of many runs, a few points each: found by seeks in the samples' key, without reading the rest.

The time between a run's first and its newest point is cut into equal parts; of each part's end the newest point before
it is taken. A run of a month costs as many seeks as one of an hour, and all runs of a page are one statement.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam, cast, func, literal_column

from supervisor.ports.listing import LINE_PARTS, Step
from supervisor.storage.engine.statements import Session, Statement, in_chunks, incoming
from supervisor.storage.engine.tables import samples
from supervisor.storage.rows.beats import STEP_AT

RUNS = 200  # in one statement


def _lines(dialect: str) -> Any:
    """One text: `run:at_ms:attempt:step`, separated by commas; no step is an empty one."""
    asked = incoming(dialect, samples.c.run)
    first, last = _edge(func.min, asked.c.run), _edge(func.max, asked.c.run)
    # Distinct, or SQLite would look for both edges again at every part.
    ends = sa.select(asked.c.run, first.label("first"), last.label("last")).distinct().cte("ends")
    part = sa.select(literal_column("0").label("n")).cte("part", recursive=True)
    part = part.union_all(sa.select(part.c.n + literal_column("1")).where(part.c.n < bindparam("parts")))
    moment = ends.c.first + (ends.c.last - ends.c.first) * part.c.n // bindparam("parts")
    taken = (
        sa.select(ends.c.run, _edge(func.max, ends.c.run, samples.c.at_ms <= moment).label("at_ms"))
        .select_from(ends.join(part, literal_column("1") == literal_column("1")))
        .distinct()
        .subquery("taken")
    )
    if dialect == "sqlite":
        step: sa.ColumnElement[Any] = func.json_extract(samples.c.doc, literal_column(f"'$[{STEP_AT}]'"))
    else:
        step = samples.c.doc.op("::")(literal_column("jsonb")).op("->>")(literal_column(str(STEP_AT)))
    cells = (samples.c.run, samples.c.at_ms, samples.c.attempt, func.coalesce(cast(step, sa.Text), ""))
    text: sa.ColumnElement[str] = cast(cells[0], sa.Text)
    for cell in cells[1:]:
        text = text.concat(":").concat(cast(cell, sa.Text))
    found = samples.join(taken, sa.and_(samples.c.run == taken.c.run, samples.c.at_ms == taken.c.at_ms))
    return sa.select(func.aggregate_strings(text, ",")).select_from(found)


def _edge(which: Any, run: sa.ColumnElement[int], *more: sa.ColumnElement[bool]) -> Any:
    return sa.select(which(samples.c.at_ms)).where(samples.c.run == run, *more).scalar_subquery()


LINES = Statement(_lines)


def of_runs(session: Session, keys: Sequence[int]) -> dict[int, list[Step]]:
    found: dict[int, list[Step]] = {}
    for chunk in in_chunks(keys, RUNS):
        rows = json.dumps([[key] for key in chunk])
        text = session.run(LINES, {"rows": rows, "parts": LINE_PARTS}).scalar() or ""
        for point in text.split(",") if text else ():
            key, at_ms, attempt, step = point.split(":")
            taken = Step(int(at_ms) / 1000, int(attempt), int(step) if step else None)
            found.setdefault(int(key), []).append(taken)
    for line in found.values():
        line.sort(key=lambda point: point.at)
    return found
