"""Stop: the wish is written to the row at once; the loop does the rest, the .stop marker included (RULES section 5)."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.callers import Caller
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Run, StopRequest
from supervisor.domain.status import Status
from supervisor.services.changing import change
from supervisor.services.parts import Parts


def stop(parts: Parts, run_id: str, caller: Caller) -> Run:
    """The run with the stop on record. A terminal run, one that is being stopped already, and one whose verified work
    awaits its teardown are given back as they are. Raises NotFound, Unavailable, StoreDown."""

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

    return change(parts, run_id, judge, "the stop was not recorded")
