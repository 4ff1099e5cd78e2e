"""What the supervisor needs to tell of itself: how long it was away, what was spent, and when it last said so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from supervisor.domain.attempt import Attempt
from supervisor.domain.events import Event


@dataclass(frozen=True, slots=True)
class Lapse:
    """`unled_s`: seconds since a holder of the lease was last known to live, by the database's clock; None = the lease
    was given back by a version that did not keep that. `held`: a holder may still live."""

    unled_s: float | None
    held: bool


class Patrols(Protocol):
    """Every call may raise StoreDown."""

    def last(self) -> float | None:
        """When the last patrol was told (epoch seconds); None = never, nor begun to count."""
        ...

    def tell(self, event: Event | None, last: float | None, now: float) -> bool:
        """Write the event and that it was told now, in one transaction; False, and nothing is written, where somebody
        did so since `last` was read. No event = begin to count from now."""
        ...

    def attempts(self, since: float, after_key: int, limit: int) -> tuple[list[Attempt], int | None]:
        """All attempts of at most `limit` runs that are live or ended after `since`, beginning behind the run
        `after_key`; and what to give as `after_key` for the next ones, None = there are no more."""
        ...

    def lapse(self, lease: str, ttl_s: float) -> Lapse | None:
        """Of this lease, which its holders renew for `ttl_s`. None = it was never held."""
        ...
