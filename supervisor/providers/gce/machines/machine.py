"""What Google tells of one VM, as a Machine. The same for the bulk listing and for a single get: both are the API's
own JSON, with the same few fields.

Every machine of the project in one bulk read: aggregatedList, 500 a page, a mask of fields.

A list can be partial without an error: `unreachables` names places that did not answer, and each scope may carry a
warning of its own. What was not read is named as unreachable, a region with all its zones; a word that we do not know
makes every zone unknown. Only NO_RESULTS_ON_PAGE means "there is nothing here".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from supervisor.domain.machines import LAUNCH_LABEL, RUN_LABEL, SUPERVISOR_LABEL, Machine, MachineRecord, MachineState
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.config import Shape, own_cards, region_of

FIELDS = (
    "id,name,status,statusMessage,labels,creationTimestamp,machineType,scheduling/provisioningModel,"
    "guestAccelerators(acceleratorType,acceleratorCount)"
)
# All of Instance.status, in the discovery document of compute v1. REPAIRING: the host failed, and the VM is moved.
STATES: Mapping[str, MachineState] = {
    "PENDING": MachineState.ASKED,
    "PROVISIONING": MachineState.ASKED,
    "STAGING": MachineState.STARTING,
    "RUNNING": MachineState.UP,
    "REPAIRING": MachineState.UP,
    "PENDING_STOP": MachineState.ENDING,
    "STOPPING": MachineState.ENDING,
    "DEPROVISIONING": MachineState.ENDING,
    "SUSPENDING": MachineState.ENDING,
    "SUSPENDED": MachineState.ENDED,
    "STOPPED": MachineState.ENDED,
    "TERMINATED": MachineState.ENDED,
}
GOING = frozenset({"STOPPING", "DEPROVISIONING", "SUSPENDING"})  # a delete would be refused, or is under way


def machine_of(
    item: Mapping[str, Any],
    zone: str,
    record: MachineRecord | None = None,
    word: str = "",
    named: Mapping[str, str] = MappingProxyType({}),
) -> Machine:
    """`word`: what an operation tells of its end where that is no record, such as that it switched itself off. `named`:
    of `shape_names`; a shape that is not there keeps Google's words."""
    shown: Mapping[str, str] = item.get("labels") or {}
    launch_id = shown.get(LAUNCH_LABEL, "").replace("-", ".")
    if launch_id:
        shown = {**shown, LAUNCH_LABEL: launch_id}
    status = str(item.get("status", ""))
    state = STATES.get(status, MachineState.UP)  # a word of tomorrow: the machine is there, and nothing follows
    ends = state in (MachineState.ENDING, MachineState.ENDED)
    told = [status, word if ends else "", str(item.get("statusMessage") or "")]
    shape = shape_words(item)
    return Machine(
        machine_id=str(item["id"]),
        name=str(item["name"]),
        zone=zone,
        state=state,
        supervisor_id=shown.get(SUPERVISOR_LABEL, ""),
        run_id=shown.get(RUN_LABEL, ""),
        launch_id=launch_id,
        created_at=epoch_s(item.get("creationTimestamp")),
        record=record,
        detail=": ".join(part for part in told if part),
        labels=shown,
        shape=named.get(shape, shape),
        spot=_is_spot(item),
    )


def shape_words(item: Mapping[str, Any]) -> str:
    """`n1-standard-8+1xnvidia-tesla-t4`, as the settings write it; cards that a machine type brings itself are not
    repeated. "" = not told."""
    machine_type = _last(item.get("machineType"))
    cards = [(_last(one.get("acceleratorType")), one.get("acceleratorCount") or 0)
             for one in item.get("guestAccelerators") or ()]  # fmt: skip
    if not machine_type or not cards or _brings_cards(machine_type):
        return machine_type
    return machine_type + "".join(f"+{count}x{kind}" for kind, count in cards)


def shape_names(shapes: Mapping[str, Shape]) -> dict[str, str]:
    """Such words -> the settings' name of that shape; the first one where two are alike."""
    found: dict[str, str] = {}
    for name, shape in shapes.items():
        added = f"+{shape.gpus}x{shape.gpu_type}" if shape.gpu_type else ""
        found.setdefault(shape.machine_type + added, name)
    return found


@lru_cache(maxsize=1024)  # asked for every machine of every listing
def _brings_cards(machine_type: str) -> bool:
    try:
        return own_cards(machine_type) > 0
    except ValueError:
        return True  # of a series with cards; how many is not known


def _is_spot(item: Mapping[str, Any]) -> bool | None:
    model = (item.get("scheduling") or {}).get("provisioningModel")
    return None if model is None else model == "SPOT"


def _last(address: str | None) -> str:
    return (address or "").rpartition("/")[2]


def epoch_s(text: str | None) -> float | None:
    """RFC 3339, as Google writes it; None for nothing, or for what is no time."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None


MASK = f"nextPageToken,unreachables,warning/code,items/*/warning/code,items/*/instances({FIELDS})"
PAGE = 500
EMPTY = "NO_RESULTS_ON_PAGE"
_ZONE, _REGION = re.compile(r"zones/([^/]+)"), re.compile(r"regions/([^/]+)")

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """`machines`: (zone, the API's own words) of each."""

    machines: tuple[tuple[str, Item], ...]
    unreachable: frozenset[str]


class Listing:
    """Remembers which zones it has ever seen, so that a region that is away takes all of them along."""

    def __init__(self, compute: Compute, zones: Collection[str]) -> None:
        self._compute = compute
        self._own = frozenset(zones)
        self._known = self._own

    def read(self) -> Found:
        """ApiError: a page could not be read, and so nothing was."""
        machines: list[tuple[str, Item]] = []
        away: set[str] = set()
        for page in self._pages():
            for scope, content in (page.get("items") or {}).items():
                zone = scope.rpartition("/")[2]
                if _warns(content):
                    away |= self._zones_of(scope)
                machines += [(zone, item) for item in content.get("instances") or ()]
            away |= self._away(page)
        self._known |= {zone for zone, _ in machines}
        return Found(tuple(machines), frozenset(away))

    def _pages(self) -> Iterator[Mapping[str, Any]]:
        token = ""
        while True:
            query: dict[str, str | int] = {"maxResults": PAGE, "fields": MASK}
            if token:
                query["pageToken"] = token
            page = self._compute.read("aggregated/instances", **query)
            yield page
            token = page.get("nextPageToken") or ""
            if not token:
                return

    def _away(self, page: Mapping[str, Any]) -> frozenset[str]:
        named = page.get("unreachables") or ()
        if _warns(page) and not named:
            return self._known
        return frozenset().union(*(self._zones_of(name) for name in named))

    def _zones_of(self, place: str) -> frozenset[str]:
        """The zones of a scope or an address: a zone, a region, or everything."""
        zone, region = _ZONE.search(place), _REGION.search(place)
        if zone is not None:
            return frozenset({zone.group(1)})
        if region is not None:
            return frozenset(one for one in self._known if region_of(one) == region.group(1))
        return self._known


def _warns(content: Mapping[str, Any]) -> bool:
    return ((content.get("warning") or {}).get("code") or EMPTY) != EMPTY
