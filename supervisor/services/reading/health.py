"""Is the supervisor ready? Each check gives one line: ok or not, and the fact behind it.

Ready means: a write transaction commits, the schema is the one that this version knows, the loop has ticked within
three intervals, and its last tick could write and list the object store (or another replica leads). A new process is
not ready before its first tick.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NotRequired

from typing_extensions import TypedDict

from supervisor.domain.errors import SchemaMismatch
from supervisor.domain.machines import Away
from supervisor.domain.run import Run, run_cost_usd
from supervisor.domain.status import Status
from supervisor.ports.store import RunFilter, StoreDown
from supervisor.services.parts import Parts

TICKS_MISSED = 3
WINDOW_S = 30 * 86_400.0  # of the preemptions that are counted
PAGES, PAGE = 40, 500  # runs that are read for that, at most
KEPT_S = 60.0
COMPLETED_PAGES = 4
LEAST_FORECASTS = 10  # of fewer, a share says nothing


class CheckShown(TypedDict):
    name: str
    ok: bool
    fact: str


class Ready(TypedDict):
    ready: bool
    checks: NotRequired[list[CheckShown]]


class LeaseShown(TypedDict):
    """`held`: by this process."""

    name: str
    held: bool


class SavedOnNotice(TypedDict):
    """Of the runs that are live or ended within `window_s`: preemptions after which they train again, and how many of
    these lost no step, because the last one was saved on notice."""

    window_s: float
    preemptions: int
    saved: int


class ForecastsHeld(TypedDict):
    """Of the newest completed runs that had a forecast when they began to train: how many they are, and which share of
    them ended by the p90 of the end, and cost no more than the p90 of the cost; null: too few runs to say."""

    runs: int
    ends_held: float | None
    costs_held: float | None


class LoopShown(TypedDict):
    """`ticking`: ticks come as often as they should, or another replica ticks. `last_tick_age_s`: since the end of the
    last tick, null where there was none or another replica ticks; the tick is late after `late_after_s`.
    `last_tick_late_s`: how late that tick started. `ticks`: since this process started. `saved_on_notice`: null where
    the database could not be read. `forecasts_held`: the same."""

    leader: bool
    ticking: bool
    poll_interval_s: float
    late_after_s: float
    ticks: int
    last_tick_age_s: float | None
    last_tick_took_s: float | None
    last_tick_late_s: float
    leases: list[LeaseShown]
    saved_on_notice: SavedOnNotice | None
    forecasts_held: ForecastsHeld | None


@dataclass(frozen=True, slots=True)
class LoopStatus:
    """`last_tick_age_s` on the monotonic clock, None before the first tick. `leader`: this process holds the lease;
    `follower`: another replica does, so no tick is expected here. `last_tick_s`: how long the last tick took; `late_s`:
    how late it started; `ticks`: how many there were. `leases`: name -> whether this process holds it. `trouble`: why
    the leader's last tick could not write the database or the object store; "" = it could. `listing_ages`: provider ->
    age in seconds of its last complete listing, absent before the first; `breakers_open`: provider -> is the breaker of
    its machines open? `away`: by provider and zone. These are known to the leader alone."""

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
    away: Mapping[tuple[str, str], Away] = field(default_factory=dict)

    @property
    def elsewhere(self) -> bool:
        """Another replica ticks."""
        return self.follower and not self.leader


LoopView = Callable[[], LoopStatus]


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    ok: bool
    fact: str


def ticks(loop: LoopStatus, poll_interval_s: float) -> bool:
    """Ticks come as often as they should, or another replica ticks."""
    if loop.elsewhere:
        return True
    return loop.last_tick_age_s is not None and loop.last_tick_age_s < TICKS_MISSED * poll_interval_s


def readiness(parts: Parts, loop: LoopView) -> list[Check]:
    """May block on the database; raises nothing."""
    status = loop()
    return [*_database(parts), _lease(status), _tick(status, parts.knobs.poll_interval_s), _writes(status)]


def readiness_json(checks: list[Check]) -> Ready:
    return {
        "ready": all(check.ok for check in checks),
        "checks": [{"name": check.name, "ok": check.ok, "fact": check.fact} for check in checks],
    }


class Preemptions:
    """How many preemptions lost no step, by the stored attempts. They are read at most once in KEPT_S, for people who
    look, and never by a tick."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._saved: SavedOnNotice | None = None

    def read(self) -> SavedOnNotice | None:
        """None where the database could not be read."""
        with self._lock:
            now = self._parts.clock.monotonic()
            if self._read_at is None or now - self._read_at >= KEPT_S:
                self._saved, self._read_at = self._count(), now
            return self._saved

    def _count(self) -> SavedOnNotice | None:
        outcomes, after, since = [], 0, self._parts.clock.now() - WINDOW_S
        try:
            for _ in range(PAGES):
                attempts, more = self._parts.store.patrols.attempts(since, after, PAGE)
                outcomes += [attempt.begins_saved for attempt in attempts if attempt.begins_saved is not None]
                if more is None:
                    break
                after = more
        except StoreDown:
            return None
        return {"window_s": WINDOW_S, "preemptions": len(outcomes), "saved": sum(outcomes)}


class Calibration:
    """How many past forecasts held. The rows are read at most once in KEPT_S, for people who look."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._held: ForecastsHeld | None = None

    def read(self) -> ForecastsHeld | None:
        """None where the database could not be read."""
        with self._lock:
            now = self._parts.clock.monotonic()
            if self._read_at is None or now - self._read_at >= KEPT_S:
                self._held, self._read_at = self._count(), now
            return self._held

    def _count(self) -> ForecastsHeld | None:
        where, before, runs = RunFilter(statuses=(str(Status.COMPLETED),)), None, list[Run]()
        try:
            for _ in range(COMPLETED_PAGES):
                page = self._parts.store.page(where, before, PAGE)
                runs += page.runs
                before = page.next_key
                if before is None:
                    break
        except StoreDown:
            return None
        return forecasts_held(runs, self._parts.clock.now())


def forecasts_held(runs: Iterable[Run], now: float) -> ForecastsHeld:
    """Of completed runs. A run that a person or a limit stopped would have ended later, which says nothing."""
    ends, costs = list[bool](), list[bool]()
    for run in runs:
        first = run.chain.first_forecast
        if first is None or first.generation != run.generation:
            continue
        ended_at = run.attempt.ended_at if run.attempt is not None else None
        ends.append((run.status_since if ended_at is None else ended_at) <= first.ends_at[-1])
        if first.usd and run.money.all_known:
            costs.append(run_cost_usd(run, now) <= first.usd[-1])
    return {"runs": len(ends), "ends_held": _share(ends), "costs_held": _share(costs)}


def _share(held: Sequence[bool]) -> float | None:
    return round(sum(held) / len(held), 4) if len(held) >= LEAST_FORECASTS else None


def loop_json(
    loop: LoopStatus, poll_interval_s: float, saved: SavedOnNotice | None = None, held: ForecastsHeld | None = None
) -> LoopShown:
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
        "saved_on_notice": saved,
        "forecasts_held": held,
    }


def full_disk(error: StoreDown | str) -> str:
    """'the disk of ... is full' where that is why the database is unavailable, else ''; names no path."""
    words = str(error)
    if "disk is full" in words:  # SQLite's words
        return "the disk of the data folder is full"
    return "the disk of the database is full" if "No space left" in words else ""


def _database(parts: Parts) -> list[Check]:
    started = parts.clock.monotonic()
    try:
        parts.store.check()
    except SchemaMismatch as error:
        return [Check("database", True, "responds"), Check("schema", False, error.detail)]
    except StoreDown as error:
        fact = f"a write did not commit: {full_disk(error) or error}"
        return [Check("database", False, fact), Check("schema", False, "not read")]
    took_ms = (parts.clock.monotonic() - started) * 1000
    return [Check("database", True, f"a write committed in {took_ms:.1f} ms"), Check("schema", True, "at head")]


def _lease(loop: LoopStatus) -> Check:
    if loop.leader:
        return Check("lease", True, "held by this process")
    return Check("lease", loop.follower, "held by another replica" if loop.follower else "not held by any replica yet")


def _tick(loop: LoopStatus, poll_interval_s: float) -> Check:
    if loop.elsewhere:
        return Check("tick", True, "another replica ticks")
    if loop.last_tick_age_s is None:
        return Check("tick", False, "no tick yet")
    fact = f"last tick {loop.last_tick_age_s:.1f} s ago, limit {TICKS_MISSED * poll_interval_s:g} s"
    return Check("tick", ticks(loop, poll_interval_s), fact)


def _writes(loop: LoopStatus) -> Check:
    """As the last tick found it. The check itself writes nothing, because any client may ask as often as it likes."""
    if loop.elsewhere:
        return Check("writes", True, "another replica writes")
    if loop.trouble:
        cost = "nothing is lost, but nothing new can be saved or started until that is fixed"
        return Check("writes", False, f"{loop.trouble}: {cost}")
    return Check("writes", True, "the last tick wrote and listed the object store")
