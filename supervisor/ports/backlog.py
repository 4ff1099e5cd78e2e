"""What waits in the database to be told to somebody, in numbers that cost next to nothing to ask for."""

from __future__ import annotations

from dataclasses import dataclass

COUNTED_TO = 10_000  # more is told as this many: a number that grows must not make its own question dear


@dataclass(frozen=True, slots=True)
class Backlog:
    """`…_pending`: how many are neither delivered nor given up, at most COUNTED_TO; what is kept for an endpoint that
    is switched off does not count. `…_due_at`: epoch seconds since which the oldest of them has been due, which may lie
    ahead; None = there is none. `endpoints_disabled`: because they failed. `connections`: to the database, in use
    now."""

    outbox_pending: int
    outbox_due_at: float | None
    deliveries_pending: int
    deliveries_due_at: float | None
    endpoints_disabled: int
    connections: int
