"""What Google itself recorded about machines: every operation, read for a user and never by the loop.

Operations exist longer than their machine and are matched by its numeric id. A try that obtained no machine has no id:
its create call is found by the address of the instance, which no other try has. No document says how long Google keeps
operations; older ones are missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from supervisor.domain.machines import MachineRef
from supervisor.ports.platform import PlatformEvent
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError
from supervisor.providers.gce.machines.machine import epoch_s
from supervisor.providers.gce.machines.records import (
    MEANINGS,
    PAGE,
    SYSTEM,
    UNKNOWN_USER,
    filtered,
    meaning_of,
    operations_page,
)

PAGES = 10  # of one question; the error says that there are more
NAMED = 20  # machines in one filter
TEXT_MAX = 400
# Operations on a machine that do not end it; those that end it have their texts in records.MEANINGS.
ACTIONS: Mapping[str, str] = {
    "insert": "created by {user}",
    "start": "started by {user}",
    "resume": "resumed by {user}",
    "reset": "reset by {user}",
    "setMetadata": "its metadata was changed by {user}",
    "setLabels": "its labels were changed by {user}",
    "simulateMaintenanceEvent": "a preemption was requested by {user}",
}


def history(compute: Compute, refs: Sequence[MachineRef], since: float) -> tuple[PlatformEvent, ...]:
    """Oldest first. ApiError."""
    events: dict[str, PlatformEvent] = {}
    for zone in dict.fromkeys(ref.zone for ref in refs):
        refs_here = [ref for ref in refs if ref.zone == zone]
        for start in range(0, len(refs_here), NAMED):
            for event in _events(compute, zone, refs_here[start : start + NAMED], since):
                events[event.event_id] = event
    return tuple(sorted(events.values(), key=lambda event: (event.at, event.event_id)))


def event_of(operation: Mapping[str, Any], zone: str, name: str) -> PlatformEvent | None:
    """None: it has no time, so it has no place in a timeline."""
    at = epoch_s(operation.get("insertTime")) or epoch_s(operation.get("startTime"))
    if at is None:
        return None
    kind, user = str(operation.get("operationType") or "unknown"), str(operation.get("user") or UNKNOWN_USER)
    event_id = str(operation.get("id"))
    return PlatformEvent(at, event_id, kind, _text(operation, kind, user), user, name, zone)


def _events(compute: Compute, zone: str, refs: Sequence[MachineRef], since: float) -> Iterator[PlatformEvent]:
    ids = {ref.machine_id: ref.name for ref in refs if ref.machine_id and ref.machine_id.isdigit()}
    names = {ref.name for ref in refs if ref.name not in ids.values()}
    conditions = [f"(targetId={machine_id})" for machine_id in ids]
    conditions += [f'(targetLink:"/instances/{name}")' for name in sorted(names)]
    for operation in filtered(lambda wanted: list(_operations(compute, zone, wanted, since)), " OR ".join(conditions)):
        name = _machine_name(operation, ids, names)
        event = event_of(operation, zone, name) if name else None
        if event is not None and event.at >= since:
            yield event


def _machine_name(operation: Mapping[str, Any], ids: Mapping[str, str], names: Collection[str]) -> str:
    """The machine that the operation is about; "" = none of the requested ones."""
    by_id = ids.get(str(operation.get("targetId")))
    link = str(operation.get("targetLink") or "")
    name = link.rpartition("/")[2]
    return by_id or (name if name in names and "/instances/" in link else "")


def _operations(compute: Compute, zone: str, wanted: str, since: float) -> Iterator[Mapping[str, Any]]:
    """Newest first, until they are older than `since`. ApiError, also where there are more than PAGES pages."""
    token = ""
    for _ in range(PAGES):
        operations, token = operations_page(compute, zone, wanted, token)
        yield from operations
        oldest = epoch_s(operations[-1].get("insertTime")) if operations else None
        if not token or (oldest is not None and oldest < since):
            return
    raise ApiError(f"zone {zone} has more than {PAGE * PAGES} operations since then: ask for a shorter time")


def _text(operation: Mapping[str, Any], kind: str, user: str) -> str:
    meaning = meaning_of(operation) if kind in MEANINGS else None
    action = ACTIONS.get(kind, f"{kind.removeprefix(SYSTEM)} by {{user}}") if meaning is None else meaning.text
    text = action.replace("{user}", user)
    status = str(operation.get("statusMessage") or "").rstrip(".")
    failures = (operation.get("error") or {}).get("errors") or ()
    failed = "; ".join(f"{failure.get('code')}: {failure.get('message') or ''}".rstrip(" :") for failure in failures)
    whole = text + (f" ({status})" if status else "") + (f"; it failed: {failed}" if failed else "")
    return " ".join(whole.split())[:TEXT_MAX]
