"""Rows of a run: how it is taken apart into columns and documents, and put together again.

One run is read from four tables in one statement: its own document, its current attempt and try, its last written
pulse. The database glues them to one JSON text for many runs, so that a page of runs is one row to fetch.
"""

from __future__ import annotations

import functools
import json
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import and_, func, literal

from supervisor.domain.attempt import Attempt, Pulse, Try
from supervisor.domain.run import Run
from supervisor.domain.status import TERMINAL
from supervisor.storage.engine.codec import dumps, from_plain, to_plain
from supervisor.storage.engine.tables import attempts, pulses, runs, tries
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

MICRO = 1_000_000
HIDDEN_MAX = 1000
PUT_ASIDE = "put aside: it cannot be read"  # why a row of a queue was given up
ELSEWHERE = frozenset({"key", "version", "attempt", "try_", "pulse"})  # of a run: not in its document
_NONCE = frozenset({"nonce_hash"})
_RECENT = frozenset({"recent"})
_REPEATED = ("owner", "cell", "provider")  # the same few texts in all runs that the loop holds in memory


# What a damaged row, or one of a newer version, looks like when it is read.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
Item = TypeVar("Item")
_hidden: set[tuple[str, object]] = set()  # told of once by this process


def readable(rows: Iterable[Sequence[Any]], make: Callable[[Sequence[Any]], Item], table: str) -> list[Item]:
    """Without the rows that cannot be read: one of them must not hide the others. Their first column names them."""
    return parted(rows, make, table)[0]


def parted(
    mixed_rows: Iterable[Sequence[Any]], make: Callable[[Sequence[Any]], Item], table: str
) -> tuple[list[Item], list[Sequence[Any]]]:
    """What can be read, and the rows that cannot: a queue puts those aside, or they would fill its page for ever."""
    kept, unreadable = [], []
    for row in mixed_rows:
        try:
            kept.append(make(row))
        except UNREADABLE as error:
            hide(table, row[0], error)
            unreadable.append(row)
    return kept, unreadable


def hide(table: str, key: object, error: Exception) -> None:
    """Tell the log, once, that this row is left out."""
    if (table, key) not in _hidden and len(_hidden) < HIDDEN_MAX:
        _hidden.add((table, key))
        extra = {telemetry.ACTION: "row_unreadable", telemetry.ERROR: f"{type(error).__name__}: {error}"}
        log.error(
            "a row of %s cannot be read and is left out: %s; the others are not touched by it. A backup has it "
            "as it was: docs/operations.md", table, key, extra=extra,
        )  # fmt: skip


def attempt_doc(attempt: Attempt) -> str:
    return dumps(to_plain(attempt))


def try_doc(try_: Try) -> str:
    """Without the nonce's hash, which has a column of its own: it is written without changing the run's version."""
    return dumps(to_plain(try_, _NONCE))


def pulse_doc(pulse: Pulse) -> str:
    """Without the points that its beat carries: the next beat carries them again."""
    return dumps(to_plain(pulse, _RECENT))


def read_try(doc: str, nonce_hash: str) -> Try:
    return from_plain(Try, json.loads(doc), nonce_hash=nonce_hash)


def read_attempt(doc: str) -> Attempt:
    return from_plain(Attempt, json.loads(doc))


def copies(run: Run) -> dict[str, Any]:
    """The columns of `runs` that follow from the run and may change with it, but for its document."""
    attempt, try_ = run.attempt, run.try_
    bills = not run.settled and attempt is not None and attempt.gone_at is None
    price = attempt.price_usd_per_h if attempt is not None and bills else None
    return {
        "generation": run.generation,
        "status": str(run.status),
        "zone": try_.placement.zone if try_ is not None else "",
        "ended_at": run.status_since if run.status in TERMINAL else None,
        "settled": int(run.settled),
        "usd_per_h_micro": round((price or 0.0) * MICRO),
        "attempt": attempt.number if attempt is not None else 0,
        "try_attempt": try_.attempt if try_ is not None else 0,
        "try_number": try_.number if try_ is not None else 0,
    }


def glued(keys: sa.Subquery) -> sa.Select[Any]:
    """One text with the runs of `keys` (a subquery with a column `key`); see `unglue`."""

    def text(value: Any) -> Any:
        return sa.cast(value, sa.Text)

    parts = (
        literal("["), text(runs.c.key), literal(","), text(runs.c.version), literal(","), runs.c.doc, literal(","),
        func.coalesce(attempts.c.doc, "null"), literal(","), func.coalesce(tries.c.doc, "null"), literal(',"'),
        func.coalesce(tries.c.nonce_hash, ""), literal('",'), func.coalesce(pulses.c.doc, "null"), literal("]"),
    )  # fmt: skip
    line: Any = functools.reduce(lambda left, right: left.concat(right), parts)
    joined = (
        keys.join(runs, runs.c.key == keys.c.key)
        .outerjoin(attempts, and_(attempts.c.run == runs.c.key, attempts.c.number == runs.c.attempt))
        .outerjoin(
            tries,
            and_(tries.c.run == runs.c.key, tries.c.attempt == runs.c.try_attempt, tries.c.number == runs.c.try_number),
        )
        .outerjoin(pulses, pulses.c.run == runs.c.key)
    )
    return sa.select(func.aggregate_strings(line, ",")).select_from(joined)


def unglue(text: str | None) -> list[Run]:
    """The runs in no particular order."""
    if text is None:
        return []
    return [_run(*cells) for cells in json.loads(f"[{text}]")]


def _run(key: int, version: int, doc: dict[str, Any], attempt: Any, try_: Any, nonce_hash: str, pulse: Any) -> Run:
    for name in _REPEATED:
        doc[name] = sys.intern(doc[name])
    return from_plain(
        Run,
        doc,
        key=key,
        version=version,
        attempt=from_plain(Attempt, attempt) if attempt is not None else None,
        try_=from_plain(Try, try_, nonce_hash=nonce_hash) if try_ is not None else None,
        pulse=from_plain(Pulse, pulse) if pulse is not None else None,
    )
