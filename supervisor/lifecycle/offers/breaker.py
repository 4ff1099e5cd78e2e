"""When many look dead at once, it is us.

Ends that rest on inference are counted per source over ten minutes. At max(2, 20 %) of the runs that are read from
that source the breaker opens, and nothing is ended on its word until it is proven fresh; for ten minutes after that,
at most two a tick.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

WINDOW_S = 600.0
SHARE = 0.2
FLOOR = 2
AFTER_CLOSING_PER_TICK = 2


@dataclass(frozen=True, slots=True)
class Breaker:
    """`ends`: times of inferred ends within the window. All times are monotonic: a breaker lives as long as its
    process, and no step of the wall clock may keep it open."""

    ends: tuple[float, ...] = ()
    opened_at: float | None = None
    closed_at: float | None = None

    @property
    def open(self) -> bool:
        return self.opened_at is not None


def threshold(active: int) -> float:
    return max(FLOOR, SHARE * active)


def admit(breaker: Breaker, wanted: int, active: int, now: float, poll_interval_s: float = 0.0) -> tuple[Breaker, int]:
    """How many of `wanted` inferred ends may happen in this tick, and the breaker after it. Looks that come sooner
    than the poll interval, because something woke the loop, are one tick."""
    recent = tuple(at for at in breaker.ends if at > now - WINDOW_S)
    if wanted == 0 or breaker.open:
        return replace(breaker, ends=recent), 0
    if breaker.closed_at is not None and now - breaker.closed_at < WINDOW_S:
        in_this_poll = sum(at > now - poll_interval_s for at in recent)
        granted = min(wanted, max(0, AFTER_CLOSING_PER_TICK - in_this_poll))
        return replace(breaker, ends=(*recent, *(now,) * granted)), granted
    if len(recent) + wanted >= threshold(active) and active > 1:
        return replace(breaker, ends=recent, opened_at=now), 0
    return replace(breaker, ends=(*recent, *(now,) * wanted)), wanted


def prove_fresh(breaker: Breaker, read_at: float, now: float) -> Breaker:
    """The source was read completely and its canary is fresh, in a read that began after the breaker opened."""
    if breaker.opened_at is None or read_at <= breaker.opened_at:
        return breaker
    return replace(breaker, opened_at=None, closed_at=now)
