"""What the routes reach: the services, made by the composition root and hung on the application."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastapi import Request

from supervisor.services.checkup import answers
from supervisor.services.dev import Dev
from supervisor.services.doctor import Surroundings
from supervisor.services.health import LoopView
from supervisor.services.heartbeat import BeatInbox
from supervisor.services.logs import Logs
from supervisor.services.parts import OWNER, Parts
from supervisor.services.plan import Asking, Preview, nothing_sent
from supervisor.services.queries import Live, Queries, nobody_live

PLAN_CHECKS_S = 3.5  # a plan waits 4 s for all of it


@dataclass(frozen=True, slots=True)
class Services:
    """`dev` is None where no provider can inject disasters. `beat_host`: a name of the outside world under which beats
    may come in, and nothing else; "" = there is none. `asking`: what a plan asks beside the store."""

    parts: Parts
    inbox: BeatInbox
    queries: Queries
    logs: Logs
    loop: LoopView
    around: Surroundings
    dev: Dev | None = None
    beat_host: str = ""
    asking: Asking = field(default_factory=lambda: Asking(tuple, nothing_sent))


def assemble(
    parts: Parts,
    inbox: BeatInbox,
    loop: LoopView,
    around: Surroundings,
    dev: Dev | None = None,
    live: Live = nobody_live,
    beat_host: str = "",
    preview: Preview = nothing_sent,
) -> Services:
    queries = Queries(parts, inbox, loop, live)
    asking = Asking(lambda: answers(around.checks(), PLAN_CHECKS_S), preview)
    return Services(parts, inbox, queries, Logs(parts, queries, inbox), loop, around, dev, beat_host, asking)


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


def actor_of(request: Request) -> str:
    """Who asks. Until there are tokens everybody who reaches this loopback server is its owner."""
    return OWNER
