"""The history as one sequence of events that a reader can follow, and the patrols that report the state of all runs.

An event gets its id when it is written and is visible when its transaction commits. With several writers a higher id
may be visible before a lower one: a reader must not pass a gap in the ids while a writer that may fill it is open. Some
gaps stay forever, after a rollback or a deletion by retention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from supervisor.domain.attempt import Attempt
from supervisor.domain.events import Event

Writers = frozenset[str]
KEPT_S = 90 * 86_400.0  # events may be deleted this long after the end of their run (RULES section 8)


@dataclass(frozen=True, slots=True)
class StoredEvent:
    id: int
    key: int | None  # of the run; None = about the supervisor itself
    run_id: str
    at: float
    generation: int
    attempt: int
    event: Event
    owner: str = ""  # of the run; "" = about the supervisor itself


@dataclass(frozen=True, slots=True)
class EventFilter:
    """None, and no kinds: no filter."""

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
    """All calls but `on_written` may raise StoreDown."""

    def newest(self) -> int:
        """The highest visible event id; 0 = there is no event."""

    def writers(self) -> Writers:
        """The open transactions that may have taken event ids. The events of a transaction that is no longer among them
        are visible to a read that begins after this call. Always empty where only one can write at a time."""

    def after(self, event_id: int, limit: int) -> list[StoredEvent]:
        """The visible events with higher ids, in order of ids."""

    def between(self, where: EventFilter, after: int, to: int, limit: int) -> tuple[list[StoredEvent], int]:
        """The matching events with after < id <= to, in order, and the last id that was searched: `to`, or less where
        there are more. `to` must not lie beyond a gap that may still be filled."""

    def time_of(self, event_id: int) -> float | None:
        """When the newest event with this id or a lower one was written; None = there is none."""

    def on_written(self, wake: Callable[[], None]) -> None:
        """Calls `wake`, which must not block, after each commit with events, of this process and of others as far as
        notifications arrive: a reader also polls. A later call replaces `wake`."""


@dataclass(frozen=True, slots=True)
class LeaseGap:
    """`unled_s`: seconds since a holder of the lease was last known to live, by the database's clock; None = a version
    without this record gave the lease back. `held`: a holder may still live."""

    unled_s: float | None
    held: bool


class Patrols(Protocol):
    """All calls may raise StoreDown."""

    def last(self) -> float | None:
        """The time of the last patrol (epoch seconds), or the start of the first period; None = neither."""

    def record(self, event: Event | None, last: float | None, now: float) -> bool:
        """Write the event, and now as the time of the last patrol, in one transaction. False: there was another patrol
        after `last`, so nothing was written. No event = the first period starts now."""

    def attempts(self, since: float, after_key: int, limit: int) -> tuple[list[Attempt], int | None]:
        """All attempts of at most `limit` runs that are live or ended after `since`, in order of run keys from
        `after_key`; and the `after_key` of the next page, None = this was the last one."""

    def lease_gap(self, lease: str, ttl_s: float) -> LeaseGap | None:
        """Of this lease, which its holders renew for `ttl_s`. None = it never had a holder."""
