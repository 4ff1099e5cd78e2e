"""What Kaggle's words mean for a machine: the seven states of a session, with and without the claim of its job. Pure.

Source: KernelWorkerStatus of kagglesdk 0.1.38. A session is obtained when its notebook has claimed the job: only then
is it known that it reaches us. Our cell never fails, so an error is the platform's, or of something that ended the
whole notebook. A word that is not in the table says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from supervisor.domain.causes import Cause
from supervisor.domain.machines import LAUNCH_LABEL, RUN_LABEL, SUPERVISOR_LABEL, Machine, MachineRecord, MachineState
from supervisor.ports.claims import Claim
from supervisor.providers.kaggle.kernels import Label, slug_of
from supervisor.wording.figures import age_text

ASKED, UP, ENDING, ENDED = MachineState.ASKED, MachineState.UP, MachineState.ENDING, MachineState.ENDED
CAP_SHARE = 0.9  # of the age that a session may have: an end after it is the cap's
TIMED_OUT = re.compile(r"time ?out|timed out|(exceed|longer)\w* .*\btime|time\b.* exceed", re.IGNORECASE)
QUEUED, RUNNING = "QUEUED", "RUNNING"
COMPLETE, ERROR, CANCELED = "COMPLETE", "ERROR", "CANCEL_ACKNOWLEDGED"

STATES: Mapping[str, tuple[MachineState, str]] = {
    QUEUED: (ASKED, "Kaggle does not say its place"),
    RUNNING: (UP, ""),
    COMPLETE: (ENDED, "Kaggle says that the session is complete"),
    ERROR: (ENDED, "Kaggle says that the session ended with an error"),
    "CANCEL_REQUESTED": (ENDING, "its cancellation was requested"),
    CANCELED: (ENDED, "the session was cancelled"),
    "NEW_SCRIPT": (ENDED, "the version was saved and never ran"),
}
SILENT = "its session has started, and its notebook has not claimed the job yet"


APART = (
    "its session runs without the internet: nothing is heard of it, no stop reaches it, and its work is fetched when "
    "it has ended"
)


class Stands(StrEnum):
    """How the output of a session without the internet stands. KEPT: its machine is not needed any more, and its
    notebook is. PAST: the run does not wait for it, and needs nothing of it."""

    WAITS = "waits"
    HERE = "here"
    LOST = "lost"
    KEPT = "kept"
    PAST = "past"


class Standing(NamedTuple):
    word: Stands
    text: str = ""


class UnknownState(Exception):
    """A word that this version does not know. The text has it."""


@dataclass(frozen=True, slots=True)
class Session:
    """Our version of a notebook, as it was read. `message`: of its failure, "" = none. `ended_at`: when the end was
    seen, where the reading before showed it alive; None = it was over at the first reading. `claim` None: its notebook
    has not reported. `standing`: of its output, where it is over and had no internet."""

    label: Label
    kernel_id: int
    word: str
    message: str = ""
    ended_at: float | None = None
    claim: Claim | None = None
    standing: Standing | None = None

    @property
    def machine_id(self) -> str:
        """That of a session without the internet is in its source, which was written before Kaggle gave a number."""
        return slug_of(self.label.name) if self.label.apart else str(self.kernel_id)

    @property
    def state(self) -> MachineState:
        """Raises UnknownState."""
        if self.word not in STATES:
            raise UnknownState(f"Kaggle says {self.word or 'nothing'!r} about its state")
        return STATES[self.word][0]

    @property
    def is_over(self) -> bool:
        """An unknown word does not say so."""
        return STATES.get(self.word, (UP, ""))[0] is ENDED

    @property
    def never_came(self) -> bool:
        """It ended, and its notebook has not claimed the job."""
        return self.is_over and self.claim is None and self.word != CANCELED and not self.label.apart


def machine_of(session: Session, cap_s: float) -> Machine:
    """A session that ended without a claim stays ASKED: the launch, which is repeated, says why it failed. Raises
    UnknownState."""
    state, label = session.state, session.label
    text = STATES[session.word][1] + (f": {session.message}" if session.message else "")
    machine = Machine(
        machine_id=session.machine_id,
        name=label.name,
        zone=label.zone,
        state=state,
        supervisor_id=label.supervisor_id,
        run_id=label.run_id,
        launch_id=label.launch_id,
        created_at=label.pushed_at,
        detail=text,
        labels={SUPERVISOR_LABEL: label.supervisor_id, RUN_LABEL: label.run_id, LAUNCH_LABEL: label.launch_id},
        shape=label.shape,
    )
    if label.apart:
        return _apart(machine, session, cap_s, text)
    if state is ASKED or (session.word == RUNNING and session.claim is None) or session.never_came:
        return replace(machine, state=ASKED, queued=True, detail=text or SILENT)
    record = _record(session, cap_s, text) if state is ENDED else None
    return machine if record is None else replace(machine, record=record, detail=record.detail)


def _apart(machine: Machine, session: Session, cap_s: float, text: str) -> Machine:
    """It is asked for until its output is here: the beats that the core waits for are in it."""
    standing = session.standing
    if standing is None or standing.word is Stands.WAITS:
        waits = APART if session.word == RUNNING else text
        detail = waits if standing is None else standing.text
        return replace(machine, state=ASKED, queued=True, detail=detail)
    if standing.word is not Stands.LOST:
        return machine
    words = f"{text}; {standing.text}"
    record = _record(session, cap_s, words) or MachineRecord(Cause.HOST_ERROR, words, session.ended_at)
    return replace(machine, record=record, detail=words)


def _record(session: Session, cap_s: float, text: str) -> MachineRecord | None:
    """None: it ended by itself, and the baton and the last beat say how. Kaggle's own cap may be below ours, and then
    only its words tell it; it has no code for them."""
    if session.word == CANCELED:
        return MachineRecord(Cause.MACHINE_DELETED, text, session.ended_at)
    claim = session.claim
    ended_at = session.ended_at if session.ended_at is not None or claim is None else claim.seen_at
    age_s = 0.0 if ended_at is None or claim is None else ended_at - claim.at
    if session.word == ERROR and TIMED_OUT.search(session.message):
        return MachineRecord(Cause.TIME_LIMIT, text, ended_at)
    if age_s < CAP_SHARE * cap_s:
        return None
    words = f"the session ended after {age_text(age_s)}, and its limit is {age_text(cap_s)}. {text}"
    return MachineRecord(Cause.TIME_LIMIT, words, ended_at)


def deleted(machine: Machine, now: float) -> Machine:
    """A notebook that was alive in the reading before, and that Kaggle does not have any more."""
    text = "its notebook was deleted on Kaggle, while its session was alive"
    return replace(
        machine, state=ENDED, record=MachineRecord(Cause.MACHINE_DELETED, text, now), detail=text, queued=False
    )
