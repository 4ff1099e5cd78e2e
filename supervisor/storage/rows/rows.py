"""A run as columns and documents, and back; and how rows that cannot be read are skipped.

One statement reads a run from four tables: its document, its current attempt and try, its last written pulse. The
database joins them into one JSON text for many runs, so a page of runs is one row to fetch.
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

Item = TypeVar("Item")
MICRO = 1_000_000
HIDDEN_MAX = 1000
RUNS_KEPT = 1000  # as many as the largest page has; 5 to 10 MB
PUT_ASIDE = "put aside: it cannot be read"  # why a queued row was given up
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)  # raised for a damaged row, or one of a newer version
ELSEWHERE = frozenset({"key", "version", "attempt", "try_", "pulse"})  # fields of a run outside its document
_NONCE = frozenset({"nonce_hash"})
_RECENT = frozenset({"recent"})
_REPEATED = ("owner", "cell", "provider")  # many runs in memory have the same few texts
_OF_TRY = ("machine_name", "requested_at", "price_usd_per_h", "on_demand_usd_per_h")  # an attempt repeats these
_hidden: set[tuple[str, object]] = set()  # already logged by this process


def readable(rows: Iterable[Sequence[Any]], make: Callable[[Sequence[Any]], Item], table: str) -> list[Item]:
    """The items of the readable rows: an unreadable one must not hide the others. The first column is for its log
    line."""
    return parted(rows, make, table)[0]


def parted(
    mixed_rows: Iterable[Sequence[Any]], make: Callable[[Sequence[Any]], Item], table: str
) -> tuple[list[Item], list[Sequence[Any]]]:
    """The items of the readable rows, and the other rows; a queue gives these up, or they fill its page forever."""
    kept, unreadable = [], []
    for row in mixed_rows:
        try:
            kept.append(make(row))
        except UNREADABLE as error:
            hide(table, row[0], error)
            unreadable.append(row)
    return kept, unreadable


def hide(table: str, key: object, error: Exception) -> None:
    """Log once that this row is skipped."""
    if (table, key) not in _hidden and len(_hidden) < HIDDEN_MAX:
        _hidden.add((table, key))
        extra = {telemetry.ACTION: "row_unreadable", telemetry.ERROR: f"{type(error).__name__}: {error}"}
        log.error(
            "a row of %s cannot be read and is skipped: %s; other rows are not affected. A backup may have it: "
            "docs/operations.md", table, key, extra=extra,
        )  # fmt: skip


def attempt_doc(attempt: Attempt) -> str:
    return dumps(to_plain(attempt))


def try_doc(try_: Try) -> str:
    """Without the nonce's hash: its own column is written without a change of the run's version."""
    return dumps(to_plain(try_, _NONCE))


def pulse_doc(pulse: Pulse) -> str:
    """Without the points of its beat: the next beat carries them again."""
    return dumps(to_plain(pulse, _RECENT))


def read_try(doc: str, nonce_hash: str) -> Try:
    return from_plain(Try, json.loads(doc), nonce_hash=nonce_hash)


def read_attempt(doc: str) -> Attempt:
    return from_plain(Attempt, json.loads(doc))


def copies(run: Run) -> dict[str, Any]:
    """The columns of `runs` that are copied from the run and change with it, without its document."""
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
    """One text with the runs of `keys` (a subquery with a column `key`), a line each, for `unglue`."""

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
    return sa.select(func.aggregate_strings(line, "\n")).select_from(joined)


def unglue(text: str | None) -> list[Run]:
    """The runs, in any order."""
    return list(map(_run, text.split("\n"))) if text else []  # no JSON text of ours contains a line break


def unglue_again(text: str | None) -> list[Run]:
    """As `unglue`, for readers that see the same rows again and again: an unchanged row gives the same object."""
    return list(map(_run_again, text.split("\n"))) if text else []


def _run(line: str) -> Run:
    key, version, doc, attempt, try_, nonce_hash, pulse = json.loads(line)
    for name in _REPEATED:
        doc[name] = sys.intern(doc[name])
    for part in (attempt, try_, pulse):
        if part is not None:
            part["launch_id"] = sys.intern(part["launch_id"])
    if attempt is not None and try_ is not None:
        for name in _OF_TRY:
            if name in try_ and attempt.get(name) == try_[name]:
                attempt[name] = try_[name]
    return from_plain(
        Run,
        doc,
        key=key,
        version=version,
        attempt=from_plain(Attempt, attempt) if attempt is not None else None,
        try_=from_plain(Try, try_, nonce_hash=nonce_hash) if try_ is not None else None,
        pulse=from_plain(Pulse, pulse) if pulse is not None else None,
    )


_run_again = functools.lru_cache(RUNS_KEPT)(_run)
