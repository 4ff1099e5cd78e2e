"""What the routes use: the services, which the composition root sets on the application, and threads for slow work.

Object stores, clouds and receivers of alerts may take seconds, or hang until a time limit. The threads that serve from
the database are few and shared by all requests. If they did this work too, sixty pages that show a log would stop the
whole server while the object store is slow. A request that finds no free slow thread waits without a thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import Request

from supervisor.api.errors import AddressUnknown
from supervisor.api.streams.listeners import Limits, Streams
from supervisor.api.wire.middleware import BODY_MAX_BYTES
from supervisor.api.wire.rates import Rates
from supervisor.contract.bundle import MAX_GZIP_BYTES
from supervisor.domain.callers import LOCAL, Caller
from supervisor.domain.errors import ObjectsAway
from supervisor.services.access.claims import Door
from supervisor.services.access.identity import Identity
from supervisor.services.doctor.checkup import answers
from supervisor.services.doctor.doctor import Surroundings
from supervisor.services.logs.logs import Logs
from supervisor.services.machines.gpus import Gpus
from supervisor.services.parts import Parts
from supervisor.services.plan.forecasting import Forecasts
from supervisor.services.plan.plan import PlanSources
from supervisor.services.plan.spec_view import Preview, nothing_sent
from supervisor.services.reading import queries, series
from supervisor.services.reading.about import About
from supervisor.services.reading.billed import Billed
from supervisor.services.reading.curves import Curves
from supervisor.services.reading.health import Calibration, LoopView, Preemptions
from supervisor.services.reading.queries import Live, Queries, nobody_live
from supervisor.services.reading.scrape import Readings
from supervisor.services.runs import many
from supervisor.services.runs.altering import LABELS_MAX
from supervisor.services.runs.dev import Dev
from supervisor.services.runs.heartbeat import BeatInbox

PLAN_CHECKS_S = 3.5  # a plan waits 4 s for all of it
SLOW_THREADS = 16
DOOR_THREADS = 16
TRANSFERS, OF_ONE_RUN = 64, 8  # of objects, at once
# Of the event loop.
_LIMITER: RunVar[CapacityLimiter] = RunVar("slow threads")
_DOOR_LIMITER: RunVar[CapacityLimiter] = RunVar("threads of the door")

Identify = Callable[[str, str], Caller]
Recall = Callable[[str, str], Caller | None]
Given = ParamSpec("Given")
Result = TypeVar("Result")


def local_caller(authorization: str, request_id: str) -> Caller:
    """An `Identify` where no token is needed."""
    return replace(LOCAL, request_id=request_id)


def nobody_recalled(authorization: str, request_id: str) -> Caller | None:
    """A `Recall` without memory."""
    return None


@dataclass
class Transfers:
    """Those that are open, by run. Used from the event loop only."""

    most: int = TRANSFERS
    of_one_run: int = OF_ONE_RUN
    _open: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def transfer(self, run_id: str) -> Iterator[None]:
        """Raises ObjectsAway where too many are open."""
        if self._open.total() >= self.most or self._open[run_id] >= self.of_one_run:
            raise ObjectsAway("Too many transfers are open at once. Repeat this one.")
        self._open[run_id] += 1
        try:
            yield
        finally:
            self._open[run_id] -= 1
            if not self._open[run_id]:
                del self._open[run_id]


@dataclass(frozen=True, slots=True)
class Services:
    """`dev` None: no provider can inject disasters. `beat_host`: a public name under which beats may arrive, and no
    other request; "" = there is none. `plan_sources`: what a plan reads beside the store. `identify`: the caller of a
    header Authorization and a request id, raises Unauthorized; `recall`: the same from memory alone, None = not in
    memory. `identity`: knows the tokens, also where none is needed. `rates`: rate limits; None = there are none.
    `readings`: what a scrape reads beside the counters, by part. `identify_soon`: an `identify` for a scrape, also
    while the database is unavailable; None = `identify`. `streams`: how many may be open. `about`: the settings of this
    server. `open_operations`: names of operations that need a token by default and need none here, by a setting.
    `exec_for_others`: admins may run commands on the machines of other owners. `door`: for machines that claim their
    job; None: they would not know where, because there is no public_url. `transfers`: of objects, through the door."""

    parts: Parts
    inbox: BeatInbox
    queries: Queries
    logs: Logs
    loop: LoopView
    around: Surroundings
    identity: Identity
    gpus: Gpus
    curves: Curves
    preemptions: Preemptions
    calibration: Calibration
    forecasts: Forecasts
    billed: Billed
    dev: Dev | None = None
    beat_host: str = ""
    plan_sources: PlanSources = field(default_factory=lambda: PlanSources(tuple, nothing_sent))
    identify: Identify = local_caller
    recall: Recall = nobody_recalled
    rates: Rates | None = None
    readings: Mapping[str, Readings] = field(default_factory=dict)
    identify_soon: Identify | None = None
    streams: Limits = field(default_factory=Limits)
    about: About = field(default_factory=About)
    open_operations: frozenset[str] = frozenset()
    exec_for_others: bool = False
    door: Door | None = None
    transfers: Transfers = field(default_factory=Transfers)


def assemble(
    parts: Parts,
    inbox: BeatInbox,
    loop: LoopView,
    *,
    around: Surroundings,
    dev: Dev | None = None,
    live: Live = nobody_live,
    beat_host: str = "",
    preview: Preview = nothing_sent,
) -> Services:
    queries = Queries(parts, inbox, loop, live)
    plan_sources = PlanSources(lambda: answers(around.checks(), PLAN_CHECKS_S), preview)
    logs, identity = Logs(parts, queries, inbox), Identity(parts.store, parts.clock)
    readers = (
        Gpus(parts, None),
        Curves(parts, queries),
        Preemptions(parts),
        Calibration(parts),
        Forecasts(parts, queries),
        Billed(parts, queries),
    )
    return Services(parts, inbox, queries, logs, loop, around, identity, *readers, dev, beat_host, plan_sources)


def with_tokens(services: Services, rates: Rates | None = None) -> Services:
    """The same services, where every request needs a token."""
    identity = services.identity
    return replace(
        services, identify=identity.identify, recall=identity.recall, rates=rates, identify_soon=identity.identify_soon
    )


def without_tokens(services: Services) -> Services:
    """The same services, where no token is needed."""
    return replace(services, identify=local_caller, recall=local_caller)


def streams_of(services: Services) -> Streams:
    parts = services.parts
    return Streams(parts.store.history, parts.clock, services.identify, services.streams)


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


def caller_of(request: Request) -> Caller:
    """Set on the request by its route (wire/route.py)."""
    caller: Caller = request.state.caller
    return caller


def door_of(request: Request) -> Door:
    """Raises AddressUnknown."""
    door = services_of(request).door
    if door is None:
        raise AddressUnknown("There is no door here: the setting public_url is empty.")
    return door


def transfers_of(request: Request) -> Transfers:
    return services_of(request).transfers


async def in_slow_thread(work: Callable[Given, Result], *args: Given.args, **named: Given.kwargs) -> Result:
    """As starlette's run_in_threadpool, in threads of its own."""
    limiter = _LIMITER.get(None)
    if limiter is None:
        _LIMITER.set(limiter := CapacityLimiter(SLOW_THREADS))
    return await to_thread.run_sync(partial(work, *args, **named), limiter=limiter)


async def in_door_thread(work: Callable[Given, Result], *args: Given.args, **named: Given.kwargs) -> Result:
    """The same for machines, whose transfers may take long: they take no thread from people."""
    limiter = _DOOR_LIMITER.get(None)
    if limiter is None:
        _DOOR_LIMITER.set(limiter := CapacityLimiter(DOOR_THREADS))
    return await to_thread.run_sync(partial(work, *args, **named), limiter=limiter)


def limits_of(services: Services) -> About:
    """The settings and bounds of this server."""
    streams = services.streams
    rates = services.rates if services.rates is not None and services.rates.rate_per_s > 0 else None
    return replace(
        services.about,
        limits={
            "body_bytes": BODY_MAX_BYTES,
            "bundle_bytes": MAX_GZIP_BYTES,
            "page_size": queries.PAGE_SIZE,
            "page_size_max": queries.PAGE_MAX,
            "points_max": series.POINTS_MAX,
            "many_max": many.MOST,
            "labels": LABELS_MAX,
            "requests_per_s": None if rates is None else rates.rate_per_s,
            "requests_at_once": None if rates is None else rates.burst,
            "streams": streams.streams,
            "streams_per_token": streams.each,
        },
    )
