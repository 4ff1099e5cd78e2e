"""What the routes reach: the services, made by the composition root and hung on the application; what the API bounds;
and threads for what is asked of others: object stores, clouds, receivers of alerts.

Others may take seconds, or hang until their time is over. The threads that answer from the database are few and shared
by all requests: were they lent to this, too, sixty pages that show a log would stop the whole server while the store of
its bytes is slow. Who finds none free here waits without holding one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import Request

from supervisor.api.streams.listeners import Limits, Streams
from supervisor.api.wire.door import BODY_MAX_BYTES
from supervisor.api.wire.rates import Rates
from supervisor.contract.bundle import MAX_GZIP_BYTES
from supervisor.domain.callers import LOCAL, Caller
from supervisor.services.access.identity import Identity
from supervisor.services.doctor.checkup import answers
from supervisor.services.doctor.doctor import Surroundings
from supervisor.services.logs.logs import Logs
from supervisor.services.machines.gpus import Gpus
from supervisor.services.parts import Parts
from supervisor.services.plan.plan import PlanSources
from supervisor.services.plan.spec_view import Preview, nothing_sent
from supervisor.services.reading import queries, series
from supervisor.services.reading.about import About
from supervisor.services.reading.health import LoopView
from supervisor.services.reading.queries import Live, Queries, nobody_live
from supervisor.services.reading.scrape import Readings
from supervisor.services.runs import many
from supervisor.services.runs.altering import LABELS_MAX
from supervisor.services.runs.dev import Dev
from supervisor.services.runs.heartbeat import BeatInbox

Identify = Callable[[str, str], Caller]
Recall = Callable[[str, str], Caller | None]


def everybody(authorization: str, request_id: str) -> Caller:
    """An `Identify` where nobody is asked who he is."""
    return replace(LOCAL, request_id=request_id)


def nobody_known(authorization: str, request_id: str) -> Caller | None:
    """A `Recall` that remembers nobody."""
    return None


PLAN_CHECKS_S = 3.5  # a plan waits 4 s for all of it


@dataclass(frozen=True, slots=True)
class Services:
    """`dev` is None where no provider can inject disasters. `beat_host`: a name of the outside world under which beats
    may come in, and nothing else; "" = there is none. `asking`: what a plan asks beside the store. `identify`: whom the
    header Authorization and the request id stand for, raises Unauthorized; `recall`: the same from memory alone, None =
    ask `identify`. `identity`: what knows of tokens, also where none is asked for. `rates`: how many requests may come;
    None = as many as like to. `readings`: what a scrape reads beside the counters, by part. `identify_soon`:
    `identify` for who reads them, also while the database is away; None = it has no such word.
    `streams`: how many may be open. `about`: which settings these are. `open_operations`: names of operations that need
    a token by themselves and need none here, by a setting."""

    parts: Parts
    inbox: BeatInbox
    queries: Queries
    logs: Logs
    loop: LoopView
    around: Surroundings
    identity: Identity
    gpus: Gpus
    dev: Dev | None = None
    beat_host: str = ""
    plan_sources: PlanSources = field(default_factory=lambda: PlanSources(tuple, nothing_sent))
    identify: Identify = everybody
    recall: Recall = nobody_known
    rates: Rates | None = None
    readings: Mapping[str, Readings] = field(default_factory=dict)
    identify_soon: Identify | None = None
    streams: Limits = field(default_factory=Limits)
    about: About = field(default_factory=About)
    open_operations: frozenset[str] = frozenset()


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
    gpus = Gpus(parts, None)
    return Services(parts, inbox, queries, logs, loop, around, identity, gpus, dev, beat_host, plan_sources)


def with_tokens(services: Services, rates: Rates | None = None) -> Services:
    """The same services, where everybody is asked who he is."""
    identity = services.identity
    return replace(
        services, identify=identity.identify, recall=identity.recall, rates=rates, identify_soon=identity.identify_soon
    )


def without_tokens(services: Services) -> Services:
    """The same services, where nobody is asked, nor waits for the answer."""
    return replace(services, identify=everybody, recall=everybody)


def streams_of(services: Services) -> Streams:
    parts = services.parts
    return Streams(parts.store.history, parts.clock, services.identify, services.streams)


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


def caller_of(request: Request) -> Caller:
    """Who asks, as `api/access` has found out."""
    caller: Caller = request.state.caller
    return caller


MOST = 16
_LIMITER: RunVar[CapacityLimiter] = RunVar("asking others")  # of the event loop
Given = ParamSpec("Given")
Found = TypeVar("Found")


async def in_slow_thread(work: Callable[Given, Found], *args: Given.args, **named: Given.kwargs) -> Found:
    """As starlette's run_in_threadpool."""
    limiter = _LIMITER.get(None)
    if limiter is None:
        _LIMITER.set(limiter := CapacityLimiter(MOST))
    return await to_thread.run_sync(partial(work, *args, **named), limiter=limiter)


def limits_of(services: Services) -> About:
    """What there is to tell of this server, its bounds included."""
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
