"""Stop: the wish is written to the row at once; the loop does the rest, the .stop marker included (RULES section 5)."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.errors import NotFound, Unavailable
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Run, StopRequest
from supervisor.domain.status import Status
from supervisor.ports.store import Change
from supervisor.services.parts import OWNER, Parts

RACES = 8  # how often we look again when the loop was faster


def stop(parts: Parts, run_id: str, actor: str) -> Run:
    """The run with the stop on record. A terminal run, one that is being stopped already, and one whose verified work
    awaits its teardown are given back as they are. Raises NotFound, Unavailable, StoreDown."""
    for _ in range(RACES):
        now = parts.clock.now()
        with parts.store.begin(now) as tx:
            run = tx.find(run_id)
            if run is None or run.owner != OWNER:
                raise NotFound(f"There is no run {run_id}.", {"run_id": run_id})
            if run.terminal or run.stop is not None:
                return run
            if run.status == Status.AWAITING_TEARDOWN:
                text = f"Stop by {actor} ignored: the work is finished and verified; approve the teardown instead."
                tx.add_events(run, (Event(EventKind.STOP_IGNORED, text, actor),), now)
                return run
            asked = replace(run, stop=StopRequest(actor, now))
            event = Event(EventKind.STOP_REQUESTED, f"Stop asked for by {actor}.", actor)
            stored = tx.apply(Change(run, asked, (event,)), now)
        if stored is not None:
            parts.wake.set()
            return stored
    raise Unavailable(f"{run_id} kept changing; the stop was not recorded. Try again.", {"run_id": run_id})
