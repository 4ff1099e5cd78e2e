"""Incidents as readers see them, and the request of a person to close one.

An incident may have runs of several owners. A caller sees only the caller's runs, and an incident without one of them
does not exist for that caller. An owner closes it for these runs, an administrator for all. A machine that is set aside
is kept from everybody: where runs of others are part of that incident, only an administrator closes it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.domain.callers import Caller
from supervisor.domain.errors import Forbidden, IncidentClosed, IncidentNotFound
from supervisor.domain.events import EventKind
from supervisor.domain.incidents import Blocked, Incident
from supervisor.lifecycle.incidents import blocked_by
from supervisor.services.parts import Parts
from supervisor.services.views import formats
from supervisor.wording.incidents import closed_text, headline, what_to_do

READ_MAX = 1000  # incidents that one list looks through


class CommonShown(TypedDict):
    """`value`: of an error the text without its numbers and paths, of a machine or zone with its provider."""

    kind: Annotated[str, Field(description="error, code, image, machine or zone")]
    value: str


class IncidentEnd(TypedDict):
    run_id: str
    attempt: int
    cause: str
    at: formats.Time


class IncidentShown(TypedDict):
    """`text`: the incident in one sentence. `fix`: what a person does about it. `cause`: the most frequent one.
    `runs`: each once, those that the caller may see. `ends`: their attempts, 200 at most."""

    id: int
    open: bool
    text: str
    fix: str
    cause: str
    common: list[CommonShown]
    blocks: Annotated[bool, Field(description="runs with its code or image, or on its machine, are not started")]
    runs: list[str]
    ends: list[IncidentEnd]
    opened_at: formats.Time
    last_at: formats.Time
    closed_at: Annotated[formats.Time | None, Field(description="null: it is open")]
    closed_by: Annotated[str | None, Field(description="null: it is open, or was closed after a quiet day")]
    reason: str


class IncidentList(TypedDict):
    """The newest first."""

    incidents: list[IncidentShown]


def list_incidents(parts: Parts, caller: Caller, everything: bool, limit: int) -> IncidentList:
    """`everything`: the closed ones too. Raises StoreDown."""
    visible = [_seen(incident, caller) for incident in parts.store.incidents.newest(READ_MAX, not everything)]
    wanted = [each for each in visible if each is not None and (everything or each.closed_at is None)]
    return {"incidents": [_shown(incident) for incident in wanted[:limit]]}


def close_incident(parts: Parts, incident_id: int, reason: str, caller: Caller) -> IncidentShown:
    """What it stopped may start again. Raises IncidentNotFound, IncidentClosed, Forbidden, StoreDown."""
    incident = parts.store.incidents.find(incident_id)
    seen = None if incident is None else _seen(incident, caller)
    if incident is None or seen is None:
        raise IncidentNotFound("There is no incident with this number. `spot incidents` lists the open ones.")
    is_part = not all(caller.owns(owner) for owner in incident.owners)
    if is_part and incident.has_faulty_machine():
        text = "The machine of this incident is set aside for other owners too. Nothing was changed: an administrator"
        raise Forbidden(f"{text} closes it.")
    now = parts.clock.now()
    closed = replace(seen, closed_at=now, closed_by=caller.actor, reason=reason)
    data = {"incident": seen.id, "run_ids": list(seen.runs), "reason": reason, "blocks": seen.blocks}
    event = caller.event(EventKind.INCIDENT_CLOSED, closed_text(closed), data)
    stored = None
    if seen.closed_at is None:
        owner = caller.owner if is_part else None
        stored = parts.store.incidents.close(incident_id, caller.actor, reason, event, now, owner=owner)
    if stored is None:
        raise IncidentClosed("This incident is closed already. Nothing was changed.", {"incident": incident_id})
    parts.wake.set()
    return _shown(_seen(stored, caller) or stored)


def blocked_now(parts: Parts, cell: str) -> Blocked:
    """What incidents of this cell stop. Raises StoreDown."""
    return blocked_by(parts.store.incidents.current(cell, parts.clock.now()))


def _seen(incident: Incident, caller: Caller) -> Incident | None:
    """None: the caller has no run in it."""
    seen = incident if caller.admin else incident.seen_by(caller.owner)
    return seen if seen.members else None


def _shown(incident: Incident) -> IncidentShown:
    return {
        "id": incident.id,
        "open": incident.closed_at is None,
        "text": headline(incident),
        "fix": what_to_do(incident),
        "cause": incident.cause,
        "common": [{"kind": each.kind, "value": each.value} for each in incident.common],
        "blocks": incident.blocks,
        "runs": list(incident.runs),
        "ends": [
            {
                "run_id": member.run_id,
                "attempt": member.attempt,
                "cause": member.cause,
                "at": formats.time_text(member.at),
            }
            for member in incident.members
        ],
        "opened_at": formats.time_text(incident.opened_at),
        "last_at": formats.time_text(incident.last_at),
        "closed_at": formats.maybe_time(incident.closed_at),
        "closed_by": incident.closed_by or None,
        "reason": incident.reason,
    }
