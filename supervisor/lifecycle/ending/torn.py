"""A baton that is there and cannot be understood: only a person can mend it, so a person is asked, once.

Nothing overwrites it: the pointers to the checkpoints may still be read from it. Nobody can claim or move anything
on it either, so a stop does not wait for it. Once it can be read again the run goes on by itself.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract import runfiles
from supervisor.contract.baton import Baton
from supervisor.domain.events import EventKind
from supervisor.domain.observation import Observation, Part, Seen, Unknown
from supervisor.domain.run import Run
from supervisor.lifecycle.decision import Decision, tell

RETRY_S = 30.0
HOLD = "the baton cannot be understood"
GONE = "the baton of this run is gone from the store"


def is_torn(part: Part[Baton]) -> bool:
    return isinstance(part, Unknown) and part.torn


def ask_to_mend(run: Run, now: float) -> Decision:
    """Held until a person has mended it, with what there is to do; told once."""
    key = runfiles.baton(run.run_id)
    after = run if run.hold == HOLD else replace(run, hold=HOLD)
    if run.needs_person:
        return Decision(after, check_after=now + RETRY_S)
    asked = replace(after, needs_person=_words(run), needs_person_at=now)
    text = f"Needs a person: the baton cannot be understood. Put back an earlier version of {key}, or stop the run."
    return Decision(asked, (tell(EventKind.NEEDS_PERSON, text),), check_after=now + RETRY_S)


def mended(run: Run, obs: Observation) -> Run:
    """The run without the request to a person, and without the hold, once the baton can be read again."""
    back = isinstance(obs.baton, Seen)
    asked = back and run.needs_person in (_words(run), GONE)
    gone_on_purpose = not back and not isinstance(obs.baton, Unknown) and run.needs_person == _words(run)
    if not (asked or gone_on_purpose):
        return run
    return replace(run, needs_person="", needs_person_at=None, hold="")


def _words(run: Run) -> str:
    return f"the baton is torn; put back an earlier version of {runfiles.baton(run.run_id)}, or stop the run"
