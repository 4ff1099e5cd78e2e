"""Times at the doors: RFC 3339 in UTC with a Z, to the millisecond."""

from __future__ import annotations

from datetime import UTC, datetime


def text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def maybe(at: float | None) -> str | None:
    return None if at is None else text(at)
