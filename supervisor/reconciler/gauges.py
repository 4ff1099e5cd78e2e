"""The state of the loop for metrics and health checks: from memory alone, so it is there while all else is down.

Most of it is known only to the leader; the other replicas show that they do not lead, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from supervisor.domain.machines import Away
from supervisor.domain.observation import sources_of
from supervisor.domain.status import Status
from supervisor.reconciler.leader import Leader
from supervisor.reconciler.loop import Loop
from supervisor.reconciler.tally import Standing
from supervisor.telemetry import metrics
from supervisor.telemetry.metrics import Reading


def readings(loop: Loop, others: Mapping[str, Leader | None]) -> Iterator[Reading]:
    """`others`: further leases that this process may hold, by name; None = it has no such lease."""
    leads = loop.leader.lease() is not None
    yield metrics.POLL_S.reading(loop.poll_interval_s)
    yield metrics.LEADER.reading(float(leads), "cell")
    for name, leader in others.items():
        if leader is not None:
            yield metrics.LEADER.reading(float(leader.lease() is not None), name)
    if not leads:
        return
    if loop.status.last_tick_at is not None:
        yield metrics.TICK_AGE_S.reading(max(0.0, loop.clock.monotonic() - loop.status.last_tick_at))
        yield metrics.TICK_LAG_S.reading(loop.status.lag_s)
    yield metrics.ACTIONS_PENDING.reading(loop.tick.actor.pending)
    for source, breaker in loop.tick.worldview.breakers.items():
        yield metrics.BREAKER_OPEN.reading(float(breaker.open), source)
    yield metrics.INCIDENTS_OPEN.reading(loop.tick.incidents.open)
    standing = loop.tick.tally.standing
    if standing is not None:
        yield from _standing(standing, list(loop.tick.observer.providers), loop.clock.now())


def listings(loop: Loop) -> tuple[dict[str, float], dict[str, bool], Mapping[tuple[str, str], Away]]:
    """(provider -> age in seconds of its last complete listing, absent before the first; provider -> is the breaker of
    its machines open?; by provider and zone, zones that cannot be read)."""
    observer, breakers, monotonic = loop.tick.observer, loop.tick.worldview.breakers, loop.clock.monotonic()
    sources = sources_of(observer.providers)
    ages = {name: observer.freshness.age_s(source, monotonic) for name, source in sources.items()}
    return (
        {name: age_s for name, age_s in ages.items() if age_s is not None},
        {name: breakers[source].open for name, source in sources.items()},
        observer.away,
    )


def _standing(standing: Standing, providers: list[str], now: float) -> Iterator[Reading]:
    """Zeros too: an alert on a series that does not exist never fires."""
    for status in Status:
        yield metrics.RUNS.reading(standing.statuses[status], status)
    yield metrics.RUNS_ASKING.reading(standing.asking)
    for provider in dict.fromkeys([*providers, *standing.active, *standing.retiring, *standing.usd_per_h]):
        yield metrics.ATTEMPTS_ACTIVE.reading(standing.active[provider], provider)
        yield metrics.MACHINES_RETIRING.reading(standing.retiring[provider], provider)
        overdue_s = max(0.0, now - standing.gone_due_at.get(provider, now))
        yield metrics.RETIRING_OVERDUE_S.reading(overdue_s, provider)
        yield metrics.USD_PER_HOUR.reading(standing.usd_per_h.get(provider, 0.0), provider)
