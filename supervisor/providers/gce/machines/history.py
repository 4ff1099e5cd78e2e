"""What Google itself recorded of machines: every operation about them, asked for by a person and never by the loop.

Operations outlive their machine and are matched by its numeric id. A try that obtained no machine has no id that we
know: its create call is found by the address that it was sent to, which no other try shares. How long Google keeps
operations is documented nowhere; older ones are simply not there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineRef
from supervisor.ports.platform import PlatformEvent
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError
from supervisor.providers.gce.machines.machine import epoch_s
from supervisor.providers.gce.machines.records import GOOGLE, OURS, SYSTEM, TAKEN, TYPES, is_release_of_ours

FIELDS = (
    "nextPageToken,items(id,operationType,targetId,targetLink,user,clientOperationId,insertTime,startTime,"
    "statusMessage,httpErrorStatusCode,error/errors(code,message))"
)
PAGE = 100
PAGES = 10  # of one question; more are not read, and that is said
NAMED = 20  # machines in one filter
TEXT_MAX = 400
# What is asked of a machine and is no end of it; ends have their words in records.TYPES.
ASKED: Mapping[str, str] = {
    "insert": "created by {user}",
    "start": "started by {user}",
    "resume": "resumed by {user}",
    "reset": "reset by {user}",
    "setMetadata": "its metadata was changed by {user}",
    "setLabels": "its labels were changed by {user}",
    "simulateMaintenanceEvent": "a preemption was asked for by {user}",
}


def history(compute: Compute, refs: Sequence[MachineRef], since: float) -> tuple[PlatformEvent, ...]:
    """Oldest first. ApiError."""
    found: dict[str, PlatformEvent] = {}
    for zone in dict.fromkeys(ref.zone for ref in refs):
        here = [ref for ref in refs if ref.zone == zone]
        for at in range(0, len(here), NAMED):
            for event in _of_some(compute, zone, here[at : at + NAMED], since):
                found[event.event_id] = event
    return tuple(sorted(found.values(), key=lambda event: (event.at, event.event_id)))


def event_of(operation: Mapping[str, Any], zone: str, name: str) -> PlatformEvent | None:
    """None: it has no time, so that it has no place in a time line."""
    at = epoch_s(operation.get("insertTime")) or epoch_s(operation.get("startTime"))
    if at is None:
        return None
    kind, user = str(operation.get("operationType") or "unknown"), str(operation.get("user") or "somebody")
    event_id = str(operation.get("id"))
    return PlatformEvent(at, event_id, kind, _words(operation, kind, user), user, name, zone)


def _of_some(compute: Compute, zone: str, refs: Sequence[MachineRef], since: float) -> Iterator[PlatformEvent]:
    ids = {ref.machine_id: ref.name for ref in refs if ref.machine_id and ref.machine_id.isdigit()}
    names = {ref.name for ref in refs if ref.name not in ids.values()}
    wanted = [f"(targetId={one})" for one in ids]
    wanted += [f'(targetLink:"/instances/{name}")' for name in sorted(names)]
    try:
        found = list(_pages(compute, zone, " OR ".join(wanted), since))
    except ApiError as error:
        if error.status != 400:
            raise
        # No document has an example of these filters. Without them: the newest operations of the zone.
        found = list(_pages(compute, zone, "", since))
    for operation in found:
        name = _about(operation, ids, names)
        event = event_of(operation, zone, name) if name else None
        if event is not None and event.at >= since:
            yield event


def _about(operation: Mapping[str, Any], ids: Mapping[str, str], names: Collection[str]) -> str:
    """The name of the machine that it is about; "" = none of ours."""
    known = ids.get(str(operation.get("targetId")))
    link = str(operation.get("targetLink") or "")
    name = link.rpartition("/")[2]
    return known or (name if name in names and "/instances/" in link else "")


def _pages(compute: Compute, zone: str, wanted: str, since: float) -> Iterator[Mapping[str, Any]]:
    """Newest first, until what is older than asked for. ApiError, also where there are more than are read."""
    query: dict[str, str | int] = {"orderBy": "creationTimestamp desc", "maxResults": PAGE, "fields": FIELDS}
    if wanted:
        query["filter"] = wanted
    for _ in range(PAGES):
        answer = compute.read(f"zones/{zone}/operations", **query)
        operations = answer.get("items") or []
        yield from operations
        query["pageToken"] = str(answer.get("nextPageToken") or "")
        oldest = epoch_s(operations[-1].get("insertTime")) if operations else None
        if not query["pageToken"] or (oldest is not None and oldest < since):
            return
    raise ApiError(f"zone {zone} has more than {PAGE * PAGES} operations since then: ask for less time")


def _words(operation: Mapping[str, Any], kind: str, user: str) -> str:
    if is_release_of_ours(operation):
        text = OURS[2]
    elif kind in TYPES:
        taken = user == GOOGLE and TYPES[kind][1] is Cause.MACHINE_DELETED
        text = (TAKEN if taken else TYPES[kind])[2].replace("{user}", user)
    else:
        text = ASKED.get(kind, f"{kind.removeprefix(SYSTEM)} by {{user}}").replace("{user}", user)
    said = str(operation.get("statusMessage") or "").rstrip(".")
    errors = (operation.get("error") or {}).get("errors") or ()
    failed = "; ".join(f"{one.get('code')}: {one.get('message') or ''}".rstrip(" :") for one in errors)
    whole = text + (f" ({said})" if said else "") + (f"; it failed: {failed}" if failed else "")
    return " ".join(whole.split())[:TEXT_MAX]
