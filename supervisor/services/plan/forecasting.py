"""The forecast of a run: what it will cost and when it ends, from a simulation of this very run.

The facts and their sources are those of `course`, the simulation is lifecycle/rungs/futures.

A simulation takes up to two seconds of a core. So it is made when somebody looks, at most once a minute for each row
of a run, and never by a tick. Its seed follows from the run's name and the day: a page that is read again does not
flicker.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from random import Random

from typing_extensions import TypedDict

from supervisor.domain.attempt import FirstForecast
from supervisor.domain.run import Run, run_cost_usd
from supervisor.domain.status import Status
from supervisor.lifecycle.offers.choosing import queue
from supervisor.lifecycle.rungs.futures import FUTURES, Draw, Outlook, Range, outlook
from supervisor.lifecycle.rungs.survival import CALLS_READ, outlooks
from supervisor.ports.store import Change, RunFilter
from supervisor.services.parts import Parts
from supervisor.services.plan.course import AssumptionShown, Basis, History, basis_of, start_s
from supervisor.services.reading.queries import Queries
from supervisor.services.reading.sessions import lending_world
from supervisor.services.views import formats
from supervisor.services.views.formats import usd
from supervisor.wording.sessions import outlook_text, work_of

DAY_S = 86_400.0
KEPT_S, KEPT_MOST = 60.0, 200
STARTS_KEPT_S, STARTS_SINCE_S, STARTS_RUNS = 600.0, 30 * DAY_S, 500
PACE_SINCE_S, PACE_SAMPLES = 6 * 3600.0, 500
FIRST_AFTER_S, FIRST_FUTURES = 120.0, 1000
FIRST_PAGE, FIRST_MOST = 500, 5  # runs of one pass, and forecasts of one
FIRST_LATER_S, FIRST_LATER_MOST = 3600.0, 10_000


class RangeShown(TypedDict):
    """In US dollars: a tenth of all futures costs less than `p10`, half less than `p50`, nine tenths less than
    `p90`."""

    p10: float
    p50: float
    p90: float


class EndsShown(TypedDict):
    """As RangeShown, for the end of the work. null: not within a year."""

    p10: formats.Time | None
    p50: formats.Time | None
    p90: formats.Time | None


class ForecastShown(TypedDict):
    """`text`: all in one clause. `cost_usd`: of the whole run, with what it has cost so far; null where a price is not
    known. `ends_at`: of the work, whatever limit may end the run before. `deadline_kept`: the share of futures that end
    by the deadline; null: there is none. `on_demand_usd`: the same on demand alone. `futures`: how many were simulated;
    0: none, because of what `unknown` says."""

    text: str
    cost_usd: RangeShown | None
    ends_at: EndsShown | None
    deadline: formats.Time | None
    deadline_kept: float | None
    on_demand_usd: float | None
    on_demand_ends_at: formats.Time | None
    spent_usd: float
    futures: int
    unknown: list[str]
    assumes: list[AssumptionShown]
    made_at: formats.Time


class Forecasts:
    """One of a process. `of` is for people who look; two of them together wait for one simulation."""

    def __init__(self, parts: Parts, queries: Queries) -> None:
        self._parts, self._queries, self._lock = parts, queries, threading.Lock()
        self._kept: dict[tuple[int, int, int], ForecastShown] = {}
        self._starts_s: Mapping[str, Sequence[float]] = {}
        self._starts_at: float | None = None

    def of(self, run_id: str) -> ForecastShown:
        """Raises NotFound, StoreDown."""
        run, now = self._queries.fresh(run_id), self._parts.clock.now()
        key = (run.key, run.version, int(now // KEPT_S))
        with self._lock:
            shown = self._kept.get(key)
            if shown is None:
                shown = forecast_json(run, basis_now(self._parts, run, self._starts_of_all(now), now), now)
                if len(self._kept) >= KEPT_MOST:
                    self._kept.clear()
                self._kept[key] = shown
            return shown

    def _starts_of_all(self, now: float) -> Mapping[str, Sequence[float]]:
        if self._starts_at is None or not 0.0 <= now - self._starts_at < STARTS_KEPT_S:
            self._starts_s, self._starts_at = _starts_lately(self._parts, now), now
        return self._starts_s


def basis_now(parts: Parts, run: Run, starts_s: Mapping[str, Sequence[float]], now: float) -> Basis:
    """Of a run as it is now. Raises StoreDown."""
    samples = parts.store.samples(run.key, now - PACE_SINCE_S, PACE_SAMPLES)
    calls = parts.store.past_calls(run.cell, CALLS_READ)
    return _basis(parts, run, History(samples, parts.store.attempts(run.key), starts_s, calls), now)


def history_of_all(parts: Parts, cell: str, now: float) -> History:
    """What runs of the past say about one that begins. Raises StoreDown."""
    return History(starts_s=_starts_lately(parts, now), calls=parts.store.past_calls(cell, CALLS_READ))


def forecast_plan(parts: Parts, run: Run, history: History, now: float, *, futures: int = FUTURES) -> ForecastShown:
    """Of a run that a submit would make or restart: nothing of this generation is measured yet. `history`: of all
    runs. Raises StoreDown."""
    return forecast_json(run, _basis(parts, run, history, now), now, futures)


def _basis(parts: Parts, run: Run, history: History, now: float) -> Basis:
    world = replace(lending_world(parts, run), zones=parts.store.zones(run.cell), outlooks=outlooks(history.calls, now))
    return basis_of(parts, run, world, queue(run, world, now), history=history, now=now)


def _starts_lately(parts: Parts, now: float) -> Mapping[str, Sequence[float]]:
    """Of the attempts of all runs, by provider."""
    attempts, _ = parts.store.patrols.attempts(now - STARTS_SINCE_S, 0, STARTS_RUNS)
    starts: dict[str, list[float]] = {}
    for attempt in attempts:
        took_s = start_s(attempt)
        if took_s is not None:
            starts.setdefault(attempt.placement.provider, []).append(took_s)
    return starts


def forecast_json(run: Run, basis: Basis, now: float, futures: int = FUTURES) -> ForecastShown:
    """Simulates, which takes up to two seconds."""
    deadline, course = run.policy.limits.deadline, basis.course
    seen = None if course is None else outlook(course, _draw_of(run, now), futures)
    unknown = list(basis.unknown)
    if seen is not None and seen.usd is None:
        unknown.append("the price of a machine that it may use is not known, so there is no cost")
    return {
        "text": _text(seen, unknown, run, now),
        "cost_usd": None if seen is None or seen.usd is None else _usd_range(seen.usd),
        "ends_at": None if seen is None else _ends_range(seen.ends_at),
        "deadline": formats.maybe_time(deadline),
        "deadline_kept": None if seen is None or seen.kept is None else round(seen.kept, 4),
        "on_demand_usd": None if seen is None else usd(seen.on_demand_usd),
        "on_demand_ends_at": None if seen is None else formats.time_text(seen.on_demand_ends_at),
        "spent_usd": usd(run_cost_usd(run, now)),
        "futures": 0 if seen is None else seen.futures,
        "unknown": unknown,
        "assumes": basis.assumes,
        "made_at": formats.time_text(now),
    }


def _draw_of(run: Run, now: float) -> Draw:
    seed = zlib.crc32(f"{run.run_id} {int(now // DAY_S)}".encode())
    return Random(seed).random  # noqa: S311 - no secret


def _text(seen: Outlook | None, unknown: Sequence[str], run: Run, now: float) -> str:
    if seen is None:
        return f"no forecast: {'; '.join(unknown)}"
    ends, costs = seen.ends_at, seen.usd
    return outlook_text(
        now,
        (ends.p10, ends.p50, ends.p90),
        None if costs is None else (costs.p10, costs.p50, costs.p90),
        on_demand_usd=seen.on_demand_usd,
        spent=run_cost_usd(run, now) > 0,
        deadline=run.policy.limits.deadline,
        kept=seen.kept,
    )


def _usd_range(each: Range) -> RangeShown:
    return {"p10": round(each.p10, 4), "p50": round(each.p50, 4), "p90": round(each.p90, 4)}


def _ends_range(each: Range) -> EndsShown:
    p10, p50, p90 = (formats.time_text(at) if isfinite(at) else None for at in (each.p10, each.p50, each.p90))
    return {"p10": p10, "p50": p50, "p90": p90}


# --- the first forecast of a run --------------------------------------------------------------------------------------


class FirstForecasts:
    """Stores the forecast of each run that has begun to train, once in a generation: its end is held against it later
    (services/reading/health). One thread of one process does it, a few runs at a time, and no tick waits for it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._before: int | None = None
        self._later = dict[int, float]()  # run -> when it is tried again, after there was no forecast of it

    def run(self, now: float) -> None:
        """Looks at the next page of the runs that train. Raises StoreDown."""
        where = RunFilter(statuses=(str(Status.RUNNING),))
        page = self._parts.store.page(where, self._before, FIRST_PAGE)
        self._before = page.next_key
        due = [run for run in page.runs if self._later.get(run.key, 0.0) <= now and is_due(run, now)]
        starts_s = _starts_lately(self._parts, now) if due else {}
        for run in due[:FIRST_MOST]:
            self._store(run, basis_now(self._parts, run, starts_s, now), now)

    def _store(self, run: Run, basis: Basis, now: float) -> None:
        seen = None if basis.course is None else outlook(basis.course, _draw_of(run, now), FIRST_FUTURES)
        if seen is None or not isfinite(seen.ends_at.p90):
            if len(self._later) >= FIRST_LATER_MOST:
                self._later.clear()
            self._later[run.key] = now + FIRST_LATER_S
            return
        ends, costs = seen.ends_at, seen.usd
        usd_range = () if costs is None else (costs.p10, costs.p50, costs.p90)
        first = FirstForecast(run.generation, now, (ends.p10, ends.p50, ends.p90), usd_range)
        with self._parts.store.begin(now) as tx:  # a row that has changed meanwhile has its turn again
            tx.apply(Change(run, replace(run, chain=replace(run.chain, first_forecast=first))), now)


def is_due(run: Run, now: float) -> bool:
    """It has trained for a moment, the work that is left is known, and this generation has no forecast yet."""
    live, first = run.live_attempt, run.chain.first_forecast
    if live is None or live.training_at is None or now - live.training_at < FIRST_AFTER_S:
        return False
    if first is not None and first.generation == run.generation:
        return False
    return bool(work_of(run, live.placement.provider, now).left_s)
