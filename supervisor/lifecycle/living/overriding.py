"""What overrides every other rule: a stop marker, work that the baton calls done, and a baton that is torn.

A stop marker counts unless a resume has used it up. A torn baton is there and cannot be understood: only a person can
mend it, so a person is asked, once. Nothing overwrites it: the pointers to the checkpoints may still be read from it.
Nobody can claim or move anything on it either, so a stop does not wait for it. Once it can be read again the run goes
on by itself.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, Done
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.observation import Observation, Part, Seen, Unknown
from supervisor.domain.run import Run, StopRequest, needing, unneeded
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
    return Decision(after, (tell(EventKind.FINISHING, "The work is done; checking the results."),), again=True)


RETRY_S = 30.0
HOLD = "the baton cannot be understood"
GONE = "the baton of this run is gone from the store"


def is_torn(part: Part[Baton]) -> bool:
    return isinstance(part, Unknown) and part.torn


def ask_to_mend(run: Run, now: float) -> Decision:
    """Held until a person has mended it, with what there is to do; told once."""
    key = runfiles.baton(run.run_id)
    after = run if run.hold == HOLD else replace(run, hold=HOLD)
    if run.person.why:
        return Decision(after, check_after=now + RETRY_S)
    waiting = needing(after, _words(run), now)
    text = f"Needs a person: the baton cannot be understood. Put back an earlier version of {key}, or stop the run."
    return Decision(waiting, (tell(EventKind.NEEDS_PERSON, text),), check_after=now + RETRY_S)


def mended(run: Run, obs: Observation) -> Run:
    """The run without the request to a person, and without the hold, once the baton can be read again."""
    back = isinstance(obs.baton, Seen)
    was_torn = back and run.person.why in (_words(run), GONE)
    gone_on_purpose = not back and not isinstance(obs.baton, Unknown) and run.person.why == _words(run)
    if not (was_torn or gone_on_purpose):
        return run
    return replace(unneeded(run), hold="")


def _words(run: Run) -> str:
    return f"the baton is torn; put back an earlier version of {runfiles.baton(run.run_id)}, or stop the run"
