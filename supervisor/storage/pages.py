"""A page of runs, newest first, with counts from the same WHERE. All of it is of one instant.

The keys are chosen from indexes alone; only the runs on the page are read and decoded.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import func, literal_column

from supervisor.ports.store import RunFilter, RunPage
from supervisor.storage import runs as run_rows
from supervisor.storage.rows import MICRO
from supervisor.storage.statements import Session
from supervisor.storage.tables import labels, runs

Where = list[sa.ColumnElement[bool]]


def page(session: Session, where: RunFilter, before_key: int | None, limit: int) -> RunPage:
    """At most `limit` runs; counts and cost leave the filter's statuses out."""
    keys = _page_keys(session, where, before_key, limit)
    shown = keys[:limit]
    found = {run.key: run for run in run_rows.load(session, shown)}
    return RunPage(
        runs=tuple(found[key] for key in shown if key in found),
        labels=_labels(session, shown),
        next_key=shown[-1] if len(keys) > limit else None,
        counts=_counts(session, where),
        usd_per_h=_usd_per_h(session, where),
    )


def _page_keys(session: Session, where: RunFilter, before_key: int | None, limit: int) -> list[int]:
    """One more than asked for where there are more."""
    conditions = _conditions(where)
    if where.statuses:
        conditions.append(runs.c.status.in_(where.statuses))
    source, key = _source(where, needs_runs=bool(conditions))
    if before_key is not None:
        conditions.append(key < before_key)
    select = sa.select(key).select_from(source).where(*conditions, *_labelled(where)).order_by(key.desc())
    return list(session.query(select.limit(limit + 1)).scalars())


def _counts(session: Session, where: RunFilter) -> dict[str, int]:
    source, _ = _source(where, needs_runs=True)
    select = sa.select(runs.c.status, func.count()).select_from(source)
    select = select.where(*_conditions(where), *_labelled(where)).group_by(runs.c.status)
    return dict(session.query(select).tuples().all())


def _usd_per_h(session: Session, where: RunFilter) -> float:
    source, _ = _source(where, needs_runs=True)
    # Spelt out, or the partial index of the runs that bill could not be used.
    bills = runs.c.usd_per_h_micro > literal_column("0")
    select = sa.select(func.sum(runs.c.usd_per_h_micro)).select_from(source)
    total = session.query(select.where(bills, *_conditions(where), *_labelled(where))).scalar()
    return int(total or 0) / MICRO


def _source(where: RunFilter, needs_runs: bool) -> tuple[sa.FromClause, sa.ColumnElement[int]]:
    """What to select from, and its column with the run's key: the first label leads, where there is one."""
    if not where.labels:
        return runs, runs.c.key
    if not needs_runs:
        return labels, labels.c.run
    return labels.join(runs, runs.c.key == labels.c.run), labels.c.run


def _conditions(where: RunFilter) -> Where:
    """On columns of `runs`, without the statuses."""
    found: Where = []
    if where.zone is not None:
        found.append(runs.c.zone == where.zone)
    if where.owner is not None:
        found.append(runs.c.owner == where.owner)
    if where.created_after is not None:
        found.append(runs.c.created_at > where.created_after)
    if where.text:
        found.append(runs.c.run_id.contains(where.text.lower(), autoescape=True))
    return found


def _labelled(where: RunFilter) -> Where:
    found: Where = []
    for position, (name, value) in enumerate(where.labels):
        if position == 0:
            found += [labels.c.key == name, labels.c.value == value]
            continue
        other = labels.alias()
        found.append(
            sa.exists().where(other.c.run == labels.c.run, other.c.key == name, other.c.value == value)
        )
    return found


def _labels(session: Session, keys: list[int]) -> dict[int, dict[str, str]]:
    found: dict[int, dict[str, str]] = {key: {} for key in keys}
    select = sa.select(labels.c.run, labels.c.key, labels.c.value).where(labels.c.run.in_(keys))
    for key, name, value in session.query(select):
        found[key][name] = value
    return found
