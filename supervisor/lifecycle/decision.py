"""A decision: the run as it should be, the events that explain the change, and the actions to take. Data, no effects.

The rules in `phases/` return decisions, `decide` completes them, and the reconciler commits and carries them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from types import MappingProxyType

from supervisor.domain.actions import Action
from supervisor.domain.attempt import Attempt
from supervisor.domain.causes import Cause
from supervisor.domain.errors import SpotError
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import OfferKey, ZoneRecord
from supervisor.domain.observation import NOT_READ, Observation
from supervisor.domain.run import Run, unneeded
from supervisor.domain.status import Status, may_move

NO_FACTS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Decision:
    """`wants`: parts of the observation that must be read first; then nothing else of this decision counts.
    `check_after`: epoch seconds of the next tick that this run needs; None = the poll interval is soon enough.
    `inferred`: the source on whose readings alone an attempt ends, without any authority; the breaker counts these.
    `again`: decide once more in this tick. `lessons`: new records of offers; None = nothing to remember.
    `parted`: earlier attempts (not `run.attempt`) whose machines are now known gone."""

    run: Run
    events: tuple[Event, ...] = ()
    actions: tuple[Action, ...] = ()
    wants: frozenset[str] = frozenset()
    check_after: float | None = None
    inferred: str = ""
    again: bool = False
    lessons: tuple[tuple[OfferKey, ZoneRecord | None], ...] = ()
    parted: tuple[Attempt, ...] = ()


class IllegalMove(SpotError):
    """A rule tried a move that TRANSITIONS does not contain: a bug, never a state of the world."""

    code = "ILLEGAL_MOVE"


def moved(run: Run, status: Status, now: float) -> Run:
    """The run in `status`. Raises IllegalMove when the table does not contain the move."""
    if run.status == status:
        return run
    if not may_move(run.status, status):
        raise IllegalMove(f"{run.run_id}: {run.status} -> {status} is not in TRANSITIONS", {"run_id": run.run_id})
    return replace(run, status=status, status_since=now, hold="")


def new_event(kind: EventKind, text: str, actor: str = "supervisor", **data: object) -> Event:
    return Event(kind, text, actor, data)


def unchanged(run: Run, check_after: float | None = None, wants: frozenset[str] = frozenset()) -> Decision:
    return Decision(run, wants=wants, check_after=check_after)


def held(run: Run, reason: str, now: float, retry_s: float) -> Decision:
    """The run stays as it is, shows the reason, and is decided again after `retry_s` seconds."""
    return unchanged(run if run.hold == reason else replace(run, hold=reason), check_after=now + retry_s)


def failed(
    run: Run, cause: Cause, detail: str, now: float, text: str = "", *, facts: Mapping[str, str] = NO_FACTS
) -> Decision:
    """The run ends as failed. `text`: the event's text; "" = the cause and its detail. `facts`: more of its data."""
    over = replace(unneeded(run), cause=cause, detail=detail, next_at=None)
    event = new_event(EventKind.FAILED, text or f"Failed: {cause}. {detail}", cause=cause, **facts)
    return Decision(moved(over, Status.FAILED, now), (event,), again=True)


def after_events(events: tuple[Event, ...], decision: Decision) -> Decision:
    """The decision with these events before its own."""
    return replace(decision, events=(*events, *decision.events)) if events else decision


def unread(obs: Observation, *names: str) -> frozenset[str]:
    """Those of the named parts that have not been read yet: what a decision `wants`."""
    return frozenset(name for name in names if getattr(obs, name) is NOT_READ)


def soonest(*times: float | None) -> float | None:
    return min((at for at in times if at is not None), default=None)


_durable = attrgetter(*(field.name for field in fields(Run) if field.name != "pulse"))


def only_pulse_moved(before: Run, after: Run) -> bool:
    """Nothing but the pulse differs, so no row has to be written now: pulses are sampled about once a minute."""
    return bool(_durable(before) == _durable(after))
