"""The history as one line that can be followed: every event once, in an order that never changes afterwards.

Ids are given out when an event is written, and it is seen when its transaction commits. Where writers are many, a
higher id may be seen before a lower one: a follower must not pass a hole in the ids while a writer that may fill it is
still open. Holes also stay for ever, where a transaction was rolled back or retention has deleted something.

Patrols are what the supervisor tells of itself: how long it was away, what was spent, and when it last said so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from supervisor.domain.attempt import Attempt
from supervisor.domain.events import Event

Writers = frozenset[str]
KEPT_S = 90 * 86_400.0  # events may be deleted so long after the end of their run (RULES section 8)


@dataclass(frozen=True, slots=True)
class StoredEvent:
    id: int
    key: int | None
    run_id: str
    at: float
    generation: int
    attempt: int
    event: Event
    owner: str = ""  # of the run; "" = about the supervisor itself


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events somebody follows. None, and no kinds: all of them."""

    run_id: str | None = None
    owner: str | None = None
    actor: str | None = None
    kinds: frozenset[str] = frozenset()

    def matches(self, stored: StoredEvent) -> bool:
        return (
            self.run_id in (None, stored.run_id)
            and self.owner in (None, stored.owner)
            and self.actor in (None, stored.event.actor)
            and (not self.kinds or stored.event.kind in self.kinds)
        )


class History(Protocol):
    """Every call but `on_written` may raise StoreDown."""

    def newest(self) -> int:
        """The highest event id that can be seen; 0 = there is no event."""
        ...

    def writers(self) -> Writers:
        """The open transactions that may have taken event ids. Whatever is not among them any more can be seen by a
        read that begins after this call. Always empty where only one can write at a time."""
        ...

    def after(self, event_id: int, limit: int) -> list[StoredEvent]:
        """The events that can be seen now with higher ids, in order of ids."""
        ...

    def between(self, where: EventFilter, after: int, to: int, limit: int) -> tuple[list[StoredEvent], int]:
        """Those of the events with after < id <= to that are looked for, in order, and the id up to which was looked:
        `to`, or less when there is more. `to` must not lie beyond a hole that may still be filled."""
        ...

    def time_of(self, event_id: int) -> float | None:
        """When the newest event with this id or a lower one was written; None when there is none."""
        ...

    def on_written(self, wake: Callable[[], None]) -> None:
        """`wake` is called after each commit that wrote events, of this process or of one that is heard; it must not
        block. The last one given counts. What it misses is found by looking."""
        ...


@dataclass(frozen=True, slots=True)
class LeaseGap:
    """`unled_s`: seconds since a holder of the lease was last known to live, by the database's clock; None = the lease
    was given back by a version that did not keep that. `held`: a holder may still live."""

    unled_s: float | None
    held: bool


class Patrols(Protocol):
    """Every call may raise StoreDown."""

    def last(self) -> float | None:
        """When the last patrol was told (epoch seconds); None = never, nor begun to count."""
        ...

    def record(self, event: Event | None, last: float | None, now: float) -> bool:
        """Write the event and that it was told now, in one transaction; False, and nothing is written, where somebody
        did so since `last` was read. No event = begin to count from now."""
        ...

    def attempts(self, since: float, after_key: int, limit: int) -> tuple[list[Attempt], int | None]:
        """All attempts of at most `limit` runs that are live or ended after `since`, beginning behind the run
        `after_key`; and what to give as `after_key` for the next ones, None = there are no more."""
        ...

    def lease_gap(self, lease: str, ttl_s: float) -> LeaseGap | None:
        """Of this lease, which its holders renew for `ttl_s`. None = it was never held."""
        ...
