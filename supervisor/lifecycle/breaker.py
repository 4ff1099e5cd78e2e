"""When many runs look dead at once, the fault is ours.

Attempts that end by inference, without an authority, are counted for each source over ten minutes. At max(2, 20 %) of
the attempts that are read from a source its breaker opens. Then nothing ends on that source's readings until it is
proven fresh, and for ten minutes after that at most two attempts in a tick.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from supervisor.domain.events import Event, EventKind
from supervisor.lifecycle.decision import Decision

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


def admit(breaker: Breaker, count: int, active: int, now: float, poll_interval_s: float = 0.0) -> tuple[Breaker, int]:
    """(the breaker after this tick, how many of `count` inferred ends may happen in it). `active`: attempts that are
    read from this source. Ticks within one poll interval, after an early wake-up, count as one."""
    recent = tuple(at for at in breaker.ends if at > now - WINDOW_S)
    if count == 0 or breaker.open:
        return replace(breaker, ends=recent), 0
    if breaker.closed_at is not None and now - breaker.closed_at < WINDOW_S:
        in_this_poll = sum(at > now - poll_interval_s for at in recent)
        granted = min(count, max(0, AFTER_CLOSING_PER_TICK - in_this_poll))
        return replace(breaker, ends=(*recent, *(now,) * granted)), granted
    if len(recent) + count >= threshold(active) and active > 1:
        return replace(breaker, ends=recent, opened_at=now), 0
    return replace(breaker, ends=(*recent, *(now,) * count)), count


def prove_fresh(breaker: Breaker, read_at: float, now: float) -> Breaker:
    """The source was read completely, in a read that began at `read_at`. A read from before the opening proves
    nothing."""
    if breaker.opened_at is None or read_at <= breaker.opened_at:
        return breaker
    return replace(breaker, opened_at=None, closed_at=now)


def admitted(
    breakers: Mapping[str, Breaker],
    decisions: Sequence[Decision],
    active_of: Callable[[str], int],
    now: float,
    poll_interval_s: float,
) -> tuple[dict[str, Breaker], list[Decision], list[Event]]:
    """(the breakers that changed, the decisions without those ends that they do not admit, the events). `active_of`:
    source -> how many attempts are read from it."""
    inferred = Counter(decision.inferred for decision in decisions if decision.inferred)
    changed, left, events = {}, {}, []
    for source, count in inferred.items():
        before = breakers[source]
        changed[source], left[source] = admit(before, count, active_of(source), now, poll_interval_s)
        if changed[source].open and not before.open:
            text = f"{count} runs look dead at once by their {source}. No run is ended until these are fresh."
            events.append(Event(EventKind.BREAKER_OPENED, text, data={"source": source, "count": count}))
    kept = []
    for decision in decisions:
        if decision.inferred:
            left[decision.inferred] -= 1
            if left[decision.inferred] < 0:
                continue
        kept.append(decision)
    return changed, kept, events
