"""A page of runs, newest or oldest first, with counts from the same WHERE and of the same instant. On SQLite the counts
are kept until a run or its labels change (`Counts`).

Keys and counts come from indexes alone: by status, or by label and status, each in the order of the keys. A page merges
the newest keys of each status; only its own runs are read and decoded. If the filter has run ids, or a part of an id
that few runs have, these runs are found first, in the index of the ids. SQL is built once for each shape of filter.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam, func, literal_column

from supervisor.domain.status import Status
from supervisor.ports.store import RunFilter, RunPage
from supervisor.storage.engine.statements import Session, Statement, incoming
from supervisor.storage.engine.tables import labels, runs
from supervisor.storage.rows import rows
from supervisor.storage.rows import runs as run_rows
from supervisor.storage.rows.rows import MICRO

ALL = tuple(str(status) for status in Status)
NAMED = "keys"  # the keys of all runs that can match are known and are sent as rows
FEW = 1000  # runs with a part of an id: for more of them, the scan of a page is faster
PART = "part"
LABELS = Statement(
    lambda dialect: (
        sa.select(labels.c.run, labels.c.key, labels.c.value)
        .join(wanted := incoming(dialect, labels.c.run), wanted.c.run == labels.c.run)
        .where(run_rows.IS_SET_BY_USER)
    )
)


def _listed(select: sa.Select[Any]) -> Any:
    """The keys as one text."""
    page_keys = select.subquery()
    return sa.select(func.aggregate_strings(sa.cast(page_keys.c.key, sa.Text), ","))


BY_ID = Statement(
    lambda dialect: _listed(
        sa.select(runs.c.key).join(wanted := incoming(dialect, runs.c.run_id), wanted.c.run_id == runs.c.run_id)
    )
)
BY_PART = Statement(
    lambda dialect: _listed(sa.select(runs.c.key).where(_condition(PART, dialect)).limit(literal_column(str(FEW + 1))))
)


@dataclass(frozen=True, slots=True)
class Shape:
    """The parts of a filter that change the SQL; its values are parameters."""

    statuses: int
    labels: int
    columns: tuple[str, ...]  # of `runs` in the filter
    further: bool  # not the first page
    ascending: bool = False  # oldest first


def page(session: Session, where: RunFilter, before_key: int | None, limit: int) -> RunPage:
    """At most `limit` runs after the run of `before_key`, in the filter's order; counts and cost are without the
    filter's statuses."""
    noted = 0 if session.counts is None else session.counts.changes  # before the first read
    if where.group is not None:
        where = replace(where, labels=((run_rows.GROUP, where.group), *where.labels))
    columns = _columns(session, where)
    statuses = {f"status_{n}": status for n, status in enumerate(where.statuses or ALL)}
    named = {f"name_{n}": name for n, (name, _) in enumerate(where.labels)}
    valued = {f"value_{n}": value for n, (_, value) in enumerate(where.labels)}
    shape = Shape(len(statuses), len(where.labels), tuple(columns), before_key is not None, where.oldest_first)
    values = {**columns, **named, **valued}
    query = {**values, **statuses, "more": limit + 1}
    if before_key is not None:
        query["before_key"] = before_key
    keys = [key for (key,) in session.run(_keys(shape), query)]
    shown = keys[:limit]
    run_of = {run.key: run for run in run_rows.load(session, shown, rows.unglue_again)}
    total = session.run(_usd_per_h(shape.labels, shape.columns), values).scalar()
    return RunPage(
        runs=tuple(run_of[key] for key in shown if key in run_of),
        labels=_labels(session, shown),
        next_key=shown[-1] if len(keys) > limit else None,
        counts=_counted(session, shape, values, noted),
        usd_per_h=int(total or 0) / MICRO,
    )


def _columns(session: Session, where: RunFilter) -> dict[str, Any]:
    """The conditions of the filter on columns of `runs`, with their values."""
    part = where.text.lower() if where.text else None
    run_keys = _matching(session, where, part)
    columns = {
        "zone": where.zone,
        "owner": where.owner,
        "created_after": where.created_after,
        PART: part if run_keys is None or where.run_ids else None,
        NAMED: None if run_keys is None else json.dumps([[key] for key in run_keys]),
    }
    return {name: value for name, value in columns.items() if value is not None}


def _matching(session: Session, where: RunFilter, part: str | None) -> list[int] | None:
    """The keys of all runs that can match; None = they are too many."""
    text: str | None = ""
    if where.run_ids:
        text = session.run(BY_ID, {"rows": json.dumps([[name] for name in set(where.run_ids)])}).scalar()
    elif part is not None:
        text = session.run(BY_PART, {PART: part}).scalar()
    else:
        return None
    keys = [int(key) for key in text.split(",")] if text else []
    return keys if where.run_ids or len(keys) <= FEW else None


@lru_cache(maxsize=256)
def _keys(shape: Shape) -> Statement:
    """The keys of a page, and one more if there are more."""
    by_label, named = _by_label(shape.labels, shape.columns), NAMED in shape.columns
    key, status = (labels.c.run, labels.c.status) if by_label else (runs.c.key, runs.c.status)

    def newest(which: range, dialect: str) -> sa.Select[Any]:
        """The first keys of these statuses, in the order of the page."""
        of_status = sa.or_(*(_is(status, f"status_{n}", indexed=not named) for n in which))
        select = sa.select(key.label("key")).where(of_status)
        if by_label:
            select = select.where(labels.c.key == bindparam("name_0"), labels.c.value == bindparam("value_0"))
        select = select.where(*(_labelled(m, key) for m in range(int(by_label), shape.labels)))
        if by_label and shape.columns:
            select = select.join(runs, runs.c.key == labels.c.run)
        if shape.further:
            before: sa.BindParameter[Any] = bindparam("before_key")
            select = select.where(key > before if shape.ascending else key < before)
        select = select.where(*(_condition(name, dialect, indexed=not named) for name in shape.columns))
        in_order = key.asc() if shape.ascending else key.desc()
        return sa.select(select.order_by(in_order).limit(bindparam("more")).subquery().c.key)

    def build(dialect: str) -> Any:
        if named:
            return newest(range(shape.statuses), dialect)
        merged = sa.union_all(*(newest(range(n, n + 1), dialect) for n in range(shape.statuses)))
        first: sa.ColumnElement[Any] = literal_column("1")
        return merged.order_by(first.asc() if shape.ascending else first.desc()).limit(bindparam("more"))

    return Statement(build)


@lru_cache(maxsize=256)
def _counts(label_count: int, columns: tuple[str, ...]) -> Statement:
    def build(dialect: str) -> Any:
        conditions = [_condition(name, dialect, indexed=NAMED not in columns) for name in columns]
        if not _by_label(label_count, columns):
            conditions += [_labelled(n, runs.c.key) for n in range(label_count)]
            return sa.select(runs.c.status, func.count()).where(*conditions).group_by(runs.c.status)
        select = sa.select(labels.c.status, func.count()).group_by(labels.c.status)
        select = select.where(labels.c.key == bindparam("name_0"), labels.c.value == bindparam("value_0"))
        if columns:
            select = select.join(runs, runs.c.key == labels.c.run).where(*conditions)
        return select.where(*(_labelled(n, labels.c.run) for n in range(1, label_count)))

    return Statement(build)


def _counted(session: Session, shape: Shape, values: dict[str, Any], noted: int) -> dict[str, int]:
    def count() -> dict[str, int]:
        return dict(session.run(_counts(shape.labels, shape.columns), values))

    if session.counts is None:
        return count()
    return dict(session.counts.of((shape.labels, shape.columns, tuple(values.items())), noted, count))


@lru_cache(maxsize=256)
def _usd_per_h(label_count: int, columns: tuple[str, ...]) -> Statement:
    def build(dialect: str) -> Any:
        # Few runs are billed: their partial index is read first. It needs the literal 0, and unindexed conditions:
        # SQLite prefers all runs of the owner.
        bills = runs.c.usd_per_h_micro > literal_column("0")
        select = sa.select(func.sum(runs.c.usd_per_h_micro)).where(bills)
        select = select.where(*(_condition(name, dialect, indexed=False) for name in columns))
        return select.where(*(_labelled(n, runs.c.key) for n in range(label_count)))

    return Statement(build)


def _by_label(label_count: int, columns: tuple[str, ...]) -> bool:
    """The keys come from the index of labels."""
    return label_count > 0 and NAMED not in columns


def _condition(name: str, dialect: str, indexed: bool = True) -> sa.ColumnElement[bool]:
    value: sa.BindParameter[Any] = bindparam(name)
    if name == NAMED:
        return runs.c.key.in_(sa.select(incoming(dialect, runs.c.key, name=NAMED).c.key))
    if name == PART:
        find = func.instr if dialect == "sqlite" else func.strpos
        return find(runs.c.run_id, value) > literal_column("0")
    if name == "created_after":
        return runs.c.created_at > value
    return _is(runs.c[name], name, indexed)


def _is(column: sa.ColumnElement[Any], name: str, indexed: bool) -> sa.ColumnElement[bool]:
    """`indexed` False: blocks the index of this column, because another one finds fewer rows."""
    value: sa.BindParameter[Any] = bindparam(name)
    return (column if indexed else func.coalesce(column, "")) == value


def _labelled(n: int, key: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """The run has the n-th label of the filter."""
    other = labels.alias()
    return sa.exists().where(
        other.c.run == key, other.c.key == bindparam(f"name_{n}"), other.c.value == bindparam(f"value_{n}")
    )


def _labels(session: Session, keys: list[int]) -> dict[int, dict[str, str]]:
    labels_of: dict[int, dict[str, str]] = {key: {} for key in keys}
    for key, name, value in session.run(LABELS, {"rows": json.dumps([[key] for key in keys])}):
        labels_of[key][name] = value
    return labels_of
