"""Try now: a run that waits asks for its machine at the next look, whatever pause is left.

The pauses of its zones end, and places whose GPUs did not work may serve again: a person who has raised a quota or
mended a driver need not wait for them. A refusal that comes again begins its pause again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from supervisor.domain.access.callers import Caller
from supervisor.domain.errors import NothingToRetry
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines.placement import offer_key
from supervisor.domain.run import Run
from supervisor.domain.status import PLACING, Status
from supervisor.domain.world import World
from supervisor.lifecycle.offers.choosing import is_cooling, ladder
from supervisor.services.parts import Parts
from supervisor.services.runs.changing import Judge, change
from supervisor.services.runs.keys import Once, Reply, change_once
from supervisor.services.views.run_view import Json, dumps

UNDONE = "nothing is tried sooner"
View = Callable[[Run, Mapping[str, str]], Json]


def retry(parts: Parts, run_id: str, caller: Caller) -> Run:
    """The run, due now; one whose machine is being asked for already as it is. Raises NotFound, NothingToRetry,
    Unavailable, StoreDown."""
    return change(parts, run_id, _judge(parts, caller), UNDONE)


def retry_once(parts: Parts, run_id: str, caller: Caller, asked: Once, view: View) -> Reply:
    """The same for a request with a key. Raises KeyReused, KeyInFlight too."""

    def shape(run: Run, labels: Mapping[str, str]) -> Reply:
        return Reply(202, dumps(view(run, labels)), "")

    return change_once(parts, run_id, _judge(parts, caller), undone=UNDONE, asked=asked, shape=shape)


def _judge(parts: Parts, caller: Caller) -> Judge:
    def judge(run: Run, now: float) -> tuple[Run, Event] | None:
        if run.status == Status.LAUNCHING:
            return None
        if run.status not in PLACING or run.stop is not None:
            raise _refused(run)
        _end_pauses(parts, run, now)
        text = f"{caller.actor} asked to try again now."
        event = caller.event(EventKind.RETRY_REQUESTED, text)
        # Only a wait forgets which GPUs did not work: a run that recovers has another place to go to.
        refusals = () if run.status == Status.WAITING else run.refusals
        return replace(run, next_at=None, refusals=refusals), event

    return judge


def _end_pauses(parts: Parts, run: Run, now: float) -> None:
    """Of the offers that this run may use. Written before the row: a pause that ended too soon costs one request."""
    offers = {name: provider.offers() for name, provider in parts.providers.items()}
    world = World(parts.knobs, offers, parts.store.zones(run.cell))
    for offer in ladder(run, world, now):
        key = offer_key(offer.placement)
        record = world.zones.get(key)
        if record is not None and is_cooling(record, world, now):
            parts.store.put_zone(run.cell, key, replace(record, cool_until=now))


def _refused(run: Run) -> NothingToRetry:
    what = "nothing of it waits for a next try"
    if run.terminal:
        what = f"it is over; `spot resume {run.run_id}` starts it again"
    elif run.stop is not None:
        what = "it is being stopped"
    elif run.needs_person:
        what = (
            f"its machine goes on trying by itself; `spot approve {run.run_id} --accept-loss REASON` gives up"
        )
    return NothingToRetry(
        f"{run.run_id} is {run.status}: {what}.", {"run_id": run.run_id, "status": run.status}
    )
