"""What overrides every other rule: a stop marker that no resume has used up, and work that the baton calls done."""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract.baton import Done
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.observation import Observation, Seen
from supervisor.domain.run import Run, StopRequest
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision, moved, tell


def heed_marker(run: Run, obs: Observation, now: float) -> Run:
    """A .stop marker is a stop, whoever wrote it."""
    return stopped_by(run, obs.stop.value, now) if isinstance(obs.stop, Seen) else run


def stopped_by(run: Run, marker: str, now: float) -> Run:
    """The run with the stop that this marker (its object generation) asks for, unless a resume has used it up."""
    if run.stop is not None or marker == run.stop_consumed:
        return run
    return replace(run, stop=StopRequest("a .stop marker", now, Cause.STOP_REQUESTED, "marker"))


def done_of(run: Run, obs: Observation) -> Done | None:
    """What the baton says is done in this generation; None also where it could not be read."""
    baton = obs.baton.value if isinstance(obs.baton, Seen) else None
    return baton.done if baton is not None and baton.generation == run.generation else None


def done_elsewhere(run: Run, now: float) -> Decision:
    """The baton says that an attempt of this generation finished the work: that is the truth, whatever else is seen."""
    after = moved(replace(run, next_at=None), Status.FINISHING, now)
    return Decision(
        after, (tell(EventKind.FINISHING, "The work is done; checking the results."),), again=True
    )
