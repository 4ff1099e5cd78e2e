"""What a decision is: the run as it should be, why, what to do, and when to look again. Data, never a deed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from supervisor.domain.actions import Action
from supervisor.domain.attempt import Attempt
from supervisor.domain.errors import SpotError
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import OfferKey, ZoneRecord
from supervisor.domain.run import Run
from supervisor.domain.status import Status, may_move


@dataclass(frozen=True, slots=True)
class Decision:
    """`pulse_only`: nothing but `run.pulse` differs, so no row has to be written now. `inferred`: the source on whose
    word an attempt ends without any authority; the breaker counts these. `again`: decide once more at once. `parted`:
    earlier attempts (not `run.attempt`) whose machines are now known gone."""

    run: Run
    events: tuple[Event, ...] = ()
    actions: tuple[Action, ...] = ()
    wants: frozenset[str] = frozenset()
    check_after: float | None = None
    pulse_only: bool = False
    inferred: str = ""
    again: bool = False
    lessons: tuple[tuple[OfferKey, ZoneRecord | None], ...] = ()
    parted: tuple[Attempt, ...] = ()


class IllegalMove(SpotError):
    """A rule tried a move that TRANSITIONS does not contain: a bug, never a state of the world."""

    code = "ILLEGAL_MOVE"


def moved(run: Run, status: Status, now: float) -> Run:
    """The run in `status`; IllegalMove when the table does not know the move."""
    if run.status == status:
        return run
    if not may_move(run.status, status):
        raise IllegalMove(f"{run.run_id}: {run.status} -> {status} is not in TRANSITIONS", {"run_id": run.run_id})
    return replace(run, status=status, status_since=now, hold="")


def tell(kind: EventKind, text: str, actor: str = "supervisor", **data: object) -> Event:
    return Event(kind, text, actor, data)


def held(run: Run, reason: str, now: float, retry_s: float) -> Decision:
    """Stay, say why, look again later."""
    after = run if run.hold == reason else replace(run, hold=reason)
    return Decision(after, check_after=now + retry_s)


def unchanged(run: Run, check_after: float | None = None, wants: frozenset[str] = frozenset()) -> Decision:
    return Decision(run, wants=wants, check_after=check_after)
