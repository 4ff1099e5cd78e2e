"""What overrides every other rule: a stop marker, work that the baton calls done, and a torn baton.

A stop marker counts unless a resume has consumed it. A torn baton exists but cannot be decoded, and only a person can
fix it: the run asks for one, once. Nothing overwrites it, because its pointers to checkpoints may still be read.
No agent can claim or move anything on it, so a stop does not wait for it. Once it is readable, the run continues by
itself.
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
from supervisor.lifecycle.decision import Decision, moved, new_event

RETRY_S = 30.0
# Rows hold these texts: a later version recognizes them there.
HOLD = "the baton cannot be understood"
GONE = "the baton of this run is gone from the store"


def with_marker(run: Run, obs: Observation, now: float) -> Run:
    """The run with the stop that its .stop marker requests, if the marker has been read and is there."""
    return stopped_by(run, obs.stop.value, now) if isinstance(obs.stop, Seen) else run


def stopped_by(run: Run, marker: str, now: float) -> Run:
    """The run with the stop that this marker (its object generation) requests, unless a resume has consumed it."""
    if run.stop is not None or marker == run.stop_consumed:
        return run
    return replace(run, stop=StopRequest("a .stop marker", now, Cause.STOP_REQUESTED, "marker"))


def done_of(run: Run, obs: Observation) -> Done | None:
    """What the baton says is done in this generation; None also where it could not be read."""
    baton = obs.baton.value if isinstance(obs.baton, Seen) else None
    return baton.done if baton is not None and baton.generation == run.generation else None


def finish_done_work(run: Run, now: float) -> Decision:
    """The baton says that an attempt of this generation finished the work. That is true whatever else was observed."""
    after = moved(replace(run, next_at=None), Status.FINISHING, now)
    event = new_event(EventKind.FINISHING, "The work is done; checking the results.")
    return Decision(after, (event,), again=True)


def is_torn(part: Part[Baton]) -> bool:
    return isinstance(part, Unknown) and part.torn


def ask_for_baton_fix(run: Run, now: float) -> Decision:
    """The run is held until a person has fixed its baton; the event is written once."""
    key = runfiles.baton(run.run_id)
    after = run if run.hold == HOLD else replace(run, hold=HOLD)
    if run.person.why:
        return Decision(after, check_after=now + RETRY_S)
    waiting = needing(after, _torn_text(run), now)
    text = f"Needs a person: the baton cannot be understood. Put back an earlier version of {key}, or stop the run."
    return Decision(waiting, (new_event(EventKind.NEEDS_PERSON, text),), check_after=now + RETRY_S)


def after_baton_fix(run: Run, obs: Observation) -> Run:
    """The run without its request for a person, and without its hold, once the baton can be read again."""
    readable = isinstance(obs.baton, Seen)
    fixed = readable and asks_about_baton(run)
    removed = not readable and not isinstance(obs.baton, Unknown) and run.person.why == _torn_text(run)
    return replace(unneeded(run), hold="") if fixed or removed else run


def asks_about_baton(run: Run) -> bool:
    return run.person.why in (_torn_text(run), GONE)


def _torn_text(run: Run) -> str:
    return f"the baton is torn; put back an earlier version of {runfiles.baton(run.run_id)}, or stop the run"
