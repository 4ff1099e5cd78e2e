"""Stop: the wish is written to the row at once; the loop does the rest, the .stop marker included (RULES section 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from supervisor.domain.access.callers import Caller
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Run, StopRequest
from supervisor.domain.status import Status
from supervisor.services.parts import Parts
from supervisor.services.runs.changing import Judge, change
from supervisor.services.runs.keys import Once, Reply, change_once
from supervisor.services.views.run_view import Json, dumps

UNDONE = "the stop was not recorded"
View = Callable[[Run, Mapping[str, str]], Json]


def stop(parts: Parts, run_id: str, caller: Caller) -> Run:
    """The run with the stop on record. A terminal run, one that is being stopped already, and one whose verified work
    awaits its teardown are given back as they are. Raises NotFound, Unavailable, StoreDown."""
    return change(parts, run_id, _judge(caller), UNDONE)


def stop_once(parts: Parts, run_id: str, caller: Caller, asked: Once, view: View) -> Reply:
    """The same for a request with a key. 202; 200 where the run is over. Raises KeyReused, KeyInFlight too."""

    def shape(run: Run, labels: Mapping[str, str]) -> Reply:
        return Reply(200 if run.terminal else 202, dumps(view(run, labels)), "")

    return change_once(parts, run_id, _judge(caller), undone=UNDONE, asked=asked, shape=shape)


def _judge(caller: Caller) -> Judge:
    def judge(run: Run, now: float) -> tuple[Run, Event] | None:
        if run.terminal or run.stop is not None:
            return None
        if run.status == Status.AWAITING_TEARDOWN:
            text = f"Stop by {caller.actor} ignored: the work is finished and verified; approve the teardown instead."
            return run, caller.event(EventKind.STOP_IGNORED, text)
        asked = replace(run, stop=StopRequest(caller.actor, now))
        text = f"Stop asked for by {caller.actor}."
        return asked, caller.changed(
            EventKind.STOP_REQUESTED, text, {"stop": False}, {"stop": True}, {"status": run.status}
        )

    return judge
