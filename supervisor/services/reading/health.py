"""Is the supervisor fit for work? Each check gives one line: fit or not, and the fact behind it.

Ready means: a write transaction commits, the schema is the one that this version knows, the loop has ticked within
three intervals, and its last look could write and list the object store (or another replica leads). A fresh process is
not ready before its first tick.

What this supervisor is: its version, its provider, and what that offers. Clients ask before they fill in a spec.

What a scrape reads beside the counters: the state of each part, asked side by side, none waited for in vain.

A part that is away or slow leaves its series out and says so by `spot_scrape_part_up`; the others are told.
"""

from __future__ import annotations

import heapq
import logging
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from operator import attrgetter

from supervisor.domain.errors import SchemaMismatch
from supervisor.domain.run import Run, run_cost_usd
from supervisor.ports.store import StoreDown
from supervisor.services.parts import Parts, ask_together
from supervisor.services.views.run_view import Json
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics
from supervisor.telemetry.metrics import Reading

API = "v1"
# What clients may ask for by name before they rely on it; a word never changes its meaning and never goes away in v1.
FEATURES = (
    "code_bundles", "etags", "event_streams", "idempotency_keys", "imports", "many_runs", "merge_patch", "metrics",
    "plans", "series", "sort", "tokens", "webhooks", "zones",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class About:
    """`config_hash`: of the settings, "" = there are none. `limits`: name -> bound, None = no limit. `database`: its
    kind, "" = not known."""

    config_hash: str = ""
    limits: Mapping[str, float | None] = field(default_factory=dict)
    database: str = ""


def meta(parts: Parts, about: About) -> Json:
    """Touches no database and no network."""
    account = parts.platform.account_so_far()
    places = [offer.placement for offer in parts.providers[parts.own_provider].offers()]
    return {
        "version": version(),
        "api": API,
        "features": list(FEATURES),
        "config_hash": about.config_hash or None,
        "limits": dict(about.limits),
        "database": about.database or None,
        "provider": parts.own_provider,
        "zones": list(dict.fromkeys(place.zone for place in places)),
        "shapes": list(dict.fromkeys(place.shape for place in places)),
        "default_image": parts.defaults.image or None,
        "project": account.name if account.console_url else None,
        "project_number": (account.number or None) if account.console_url else None,
        "console_url": account.console_url or None,
    }


@cache
def version() -> str:
    try:
        return metadata.version("spot-supervisor")
    except metadata.PackageNotFoundError:
        return "unknown"  # run from a checkout that nobody installed


TICKS_MISSED = 3


@dataclass(frozen=True, slots=True)
class LoopStatus:
    """`last_tick_age_s` on the monotonic clock, None before the first tick. `leader`: this process holds the lease;
    `follower`: another replica does, so that no tick is expected here. `last_tick_s`: how long the last tick took;
    `late_s`: how late it began; `ticks`: how many there were. `leases`: name -> whether this process holds it.
    `trouble`: why the leader's last look could not write the database or the object store; "" = it could.
    `listing_ages`: provider -> age in seconds of its last complete listing, absent before the first; `breakers_open`:
    provider -> is the breaker of its machines open? Both are known to the leader alone."""

    last_tick_age_s: float | None = None
    leader: bool = False
    follower: bool = False
    last_tick_s: float | None = None
    late_s: float = 0.0
    ticks: int = 0
    leases: Mapping[str, bool] = field(default_factory=dict)
    trouble: str = ""
    listing_ages: Mapping[str, float] = field(default_factory=dict)
    breakers_open: Mapping[str, bool] = field(default_factory=dict)


LoopView = Callable[[], LoopStatus]


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    ok: bool
    fact: str


def ticks(loop: LoopStatus, poll_interval_s: float) -> bool:
    """Does the loop do its work as often as it should, or another replica instead?"""
    if loop.follower and not loop.leader:
        return True
    return loop.last_tick_age_s is not None and loop.last_tick_age_s < TICKS_MISSED * poll_interval_s


def readiness(parts: Parts, loop: LoopView) -> list[Check]:
    """May block on the database; raises nothing."""
    status = loop()
    return [*_database(parts), _lease(status), _tick(status, parts.knobs.poll_interval_s), _writes(status)]


def readiness_json(checks: list[Check]) -> Json:
    return {
        "ready": all(check.ok for check in checks),
        "checks": [{"name": check.name, "ok": check.ok, "fact": check.fact} for check in checks],
    }


def loop_json(loop: LoopStatus, poll_interval_s: float) -> Json:
    """From memory alone."""
    return {
        "leader": loop.leader,
        "ticking": ticks(loop, poll_interval_s),
        "poll_interval_s": poll_interval_s,
        "late_after_s": TICKS_MISSED * poll_interval_s,
        "ticks": loop.ticks,
        "last_tick_age_s": loop.last_tick_age_s,
        "last_tick_took_s": loop.last_tick_s,
        "last_tick_late_s": loop.late_s,
        "leases": [{"name": name, "held": held} for name, held in loop.leases.items()],
    }


def _writes(loop: LoopStatus) -> Check:
    """As the loop has found it: nothing is written for the question, which anybody may ask as often as they like."""
    if loop.follower and not loop.leader:
        return Check("writes", True, "another replica writes")
    if loop.trouble:
        cost = "nothing is lost, but nothing new can be saved or started until that is mended"
        return Check("writes", False, f"{loop.trouble}: {cost}")
    return Check("writes", True, "the last look wrote and listed the object store")


def full_disk(error: StoreDown | str) -> str:
    """'the disk of … is full' where that is why the database is down, else ''; names no path."""
    words = str(error)
    if "disk is full" in words:  # SQLite's words
        return "the disk of the data folder is full"
    return "the disk of the database is full" if "No space left" in words else ""


def _database(parts: Parts) -> list[Check]:
    started = parts.clock.monotonic()
    try:
        parts.store.check()
    except SchemaMismatch as error:
        return [Check("database", True, "answers"), Check("schema", False, error.detail)]
    except StoreDown as error:
        return [
            Check("database", False, f"a write did not commit: {full_disk(error) or error}"),
            Check("schema", False, "not read"),
        ]
    took_ms = (parts.clock.monotonic() - started) * 1000
    return [Check("database", True, f"a write committed in {took_ms:.1f} ms"), Check("schema", True, "at head")]


def _lease(loop: LoopStatus) -> Check:
    if loop.leader:
        return Check("lease", True, "held by this process")
    return Check("lease", loop.follower, "held by another replica" if loop.follower else "not held by anybody yet")


def _tick(loop: LoopStatus, poll_interval_s: float) -> Check:
    if loop.follower and not loop.leader:
        return Check("tick", True, "another replica ticks")
    if loop.last_tick_age_s is None:
        return Check("tick", False, "no tick yet")
    fact = f"last tick {loop.last_tick_age_s:.1f} s ago, limit {TICKS_MISSED * poll_interval_s:g} s"
    return Check("tick", ticks(loop, poll_interval_s), fact)


log = logging.getLogger(__name__)

Readings = Callable[[], Iterable[Reading]]

WITHIN_S = 3.0  # a scrape that takes ten is given up by its reader


def read(parts: Mapping[str, Readings], within_s: float = WITHIN_S) -> list[Reading]:
    """All parts' readings and which of them answered. May take `within_s` seconds; raises nothing."""
    answers = ask_together({name: _all_of(part) for name, part in parts.items()}, within_s)
    readings: list[Reading] = []
    for name, answer in answers.items():
        readings.append(metrics.PART_UP.reading(float(answer.good), name))
        if answer.good:
            readings += answer.value
        elif answer.error is not None and not isinstance(answer.error, StoreDown):
            log.error(
                "a part could not be read for metrics",
                exc_info=answer.error,
                extra={telemetry.ACTION: "metrics", telemetry.DETAIL: name},
            )
    return readings


def _all_of(part: Readings) -> Callable[[], list[Reading]]:
    return lambda: list(part())


def database(parts: Parts) -> Iterator[Reading]:
    """One question with a bound. Raises StoreDown."""
    now, waits = parts.clock.now(), parts.store.backlog()
    yield metrics.OUTBOX_PENDING.reading(waits.outbox_pending)
    yield metrics.OUTBOX_OVERDUE_S.reading(_overdue_s(waits.outbox_due_at, now))
    yield metrics.DELIVERIES_PENDING.reading(waits.deliveries_pending)
    yield metrics.DELIVERIES_OVERDUE_S.reading(_overdue_s(waits.deliveries_due_at, now))
    yield metrics.ENDPOINTS_DISABLED.reading(waits.endpoints_disabled)
    yield metrics.CONNECTIONS.reading(waits.connections)


def _overdue_s(due_at: float | None, now: float) -> float:
    return 0.0 if due_at is None else max(0.0, now - due_at)


def runs(active: Iterable[Run], most: int, now: float) -> Iterator[Reading]:
    """Series of single runs, of the `most` oldest: as runs come and go, those that are shown stay the same ones."""
    for run in heapq.nsmallest(most, active, key=attrgetter("key")):
        pulse = run.pulse
        if pulse is not None and pulse.step is not None:
            yield metrics.RUN_STEP.reading(pulse.step, run.run_id)
            if pulse.total:
                yield metrics.RUN_PROGRESS.reading(min(1.0, pulse.step / pulse.total), run.run_id)
        yield metrics.RUN_USD.reading(run_cost_usd(run, now), run.run_id)


def build(parts: Parts, kind_of_database: str) -> Iterator[Reading]:
    labels = (version(), platform.python_version(), kind_of_database, parts.own_provider)
    yield metrics.BUILD.reading(1.0, *labels)
