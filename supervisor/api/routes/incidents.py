"""Incidents: a list, and the way to close one."""

from __future__ import annotations

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from supervisor.api.shapes import bodies
from supervisor.api.shapes.parameters import IncidentParameters
from supervisor.api.wire.deps import caller_of, services_of
from supervisor.api.wire.route import Routes
from supervisor.domain.callers import Scope
from supervisor.domain.errors import IncidentNotFound
from supervisor.services.machines import incidents
from supervisor.services.machines.incidents import IncidentList, IncidentShown

routes = Routes("runs")
DIGITS = len(str(2**62))


@routes.on("GET /v1/incidents", Scope.READ)
async def list_incidents(request: Request, query: IncidentParameters) -> IncidentList:
    """List the open incidents, newest first: three runs or more that ended within an hour and have something in common.
    Without admin, those of your own runs, with these runs alone."""
    parts, caller = services_of(request).parts, caller_of(request)
    return await run_in_threadpool(incidents.list_incidents, parts, caller, query.all, query.limit)


@routes.on(
    "POST /v1/incidents/{incident_id}/close",
    Scope.WRITE,
    refuses="INCIDENT_NOT_FOUND INCIDENT_CLOSED FORBIDDEN",
    body_required=False,
)
async def close_incident(request: Request, incident_id: str, body: bodies.CloseIncidentBody) -> IncidentShown:
    """Close an incident: what it stopped may start again. One with runs of several owners is closed by an
    administrator."""
    if not incident_id.isascii() or not incident_id.isdigit() or len(incident_id) >= DIGITS:
        raise IncidentNotFound("There is no incident with this number. `spot incidents` lists the open ones.")
    parts, caller = services_of(request).parts, caller_of(request)
    reason = body.reason or ""
    return await run_in_threadpool(incidents.close_incident, parts, int(incident_id), reason, caller)
