"""VMs as Google lists them, and as a Machine.

Every VM of the project comes in one bulk read: aggregatedList, 500 a page, with a mask of fields. A single get has the
same JSON with the same fields.

A list can be partial without an error: `unreachables` names places that did not answer, and each scope can have a
warning of its own. A place that was not read is reported as unreachable, a region with all its zones; a form of place
that we do not know makes every zone unreachable. Only NO_RESULTS_ON_PAGE means "there is nothing here".
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
from supervisor.providers.gce.calls.clients import LISTED_FIELDS, Compute
from supervisor.providers.gce.config import Shape, own_cards, region_of

# All values of Instance.status, in the discovery document of compute v1. REPAIRING: the host failed, and Google moves
# the VM.
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
ENDS = (MachineState.ENDING, MachineState.ENDED)
GOING = frozenset({"STOPPING", "DEPROVISIONING", "SUSPENDING"})  # Google refuses a delete, or it is in progress
PAGE = 500
STARTED_LABEL = "spot-last-start"  # of a kept machine: its last start when its labels got the present launch
EMPTY = "NO_RESULTS_ON_PAGE"
MASK = f"nextPageToken,unreachables,warning/code,items/*/warning/code,items/*/instances({LISTED_FIELDS})"
_ZONE, _REGION = re.compile(r"zones/([^/]+)"), re.compile(r"regions/([^/]+)")

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Instances:
    """One listing. `items`: (zone, the API's JSON) of each VM. `unreachable`: zones that were not read."""

    items: tuple[tuple[str, Item], ...]
    unreachable: frozenset[str]


class Listing:
    """Remembers all zones that it has seen: an unreachable region makes all of its zones unreachable."""

    def __init__(self, compute: Compute, zones: Collection[str]) -> None:
        self._compute = compute
        self._zones = frozenset(zones)

    def read(self) -> Instances:
        """ApiError: one page could not be read, so nothing was read."""
        items: list[tuple[str, Item]] = []
        unreachable: set[str] = set()
        for page in self._pages():
            for scope, content in (page.get("items") or {}).items():
                zone = scope.rpartition("/")[2]
                if _warns(content):
                    unreachable |= self._zones_of(scope)
                items += [(zone, item) for item in content.get("instances") or ()]
            unreachable |= self._unreachable(page)
        self._zones |= {zone for zone, _ in items}
        return Instances(tuple(items), frozenset(unreachable))

    def _pages(self) -> Iterator[Mapping[str, Any]]:
        query: dict[str, str | int] = {"maxResults": PAGE, "fields": MASK}
        while True:
            page = self._compute.read("aggregated/instances", **query)
            yield page
            if not page.get("nextPageToken"):
                return
            query["pageToken"] = page["nextPageToken"]

    def _unreachable(self, page: Mapping[str, Any]) -> frozenset[str]:
        places = page.get("unreachables") or ()
        if _warns(page) and not places:
            return self._zones
        return frozenset().union(*(self._zones_of(place) for place in places))

    def _zones_of(self, place: str) -> frozenset[str]:
        """The zones of a scope or an address: a zone, a region, or everything."""
        zone, region = _ZONE.search(place), _REGION.search(place)
        if zone is not None:
            return frozenset({zone.group(1)})
        if region is not None:
            return frozenset(zone_name for zone_name in self._zones if region_of(zone_name) == region.group(1))
        return self._zones


def machine_of(
    item: Item,
    zone: str,
    record: MachineRecord | None = None,
    word: str = "",
    shape_names: Mapping[str, str] = MappingProxyType({}),
) -> Machine:
    """`word`: what an operation says about its end where that is not a record, such as that it switched itself off.
    `shape_names`: see `shape_names_of`; a shape that is not in it keeps Google's words."""
    labels: Mapping[str, str] = item.get("labels") or {}
    launch_id = labels.get(LAUNCH_LABEL, "").replace("-", ".")
    if launch_id:
        labels = {**labels, LAUNCH_LABEL: launch_id}
    status = str(item.get("status", ""))
    state = STATES.get(status, MachineState.UP)  # a status of a later API: the machine exists, and nothing follows
    if state is MachineState.ENDED and is_prepared(item):
        state = MachineState.ASKED
    details = [status, word if state in ENDS else "", str(item.get("statusMessage") or "")]
    shape = shape_words(item)
    return Machine(
        machine_id=str(item["id"]),
        name=str(item["name"]),
        zone=zone,
        state=state,
        supervisor_id=labels.get(SUPERVISOR_LABEL, ""),
        run_id=labels.get(RUN_LABEL, ""),
        launch_id=launch_id,
        created_at=epoch_s(item.get("creationTimestamp")),
        record=record,
        detail=": ".join(part for part in details if part),
        labels=labels,
        shape=shape_names.get(shape, shape),
        spot=_is_spot(item),
    )


def started_digits(item: Item) -> str:
    """When it was started last, in the letters of a label."""
    return re.sub(r"\D", "", str(item.get("lastStartTimestamp") or "")) or "never"


def is_prepared(item: Item) -> bool:
    """It is to be started again for the launch in its labels, and has not been started since."""
    return (item.get("labels") or {}).get(STARTED_LABEL) == started_digits(item)


def shape_words(item: Item) -> str:
    """`n1-standard-8+1xnvidia-tesla-t4`, as the settings write it; without the cards that the machine type includes.
    "" = unknown."""
    machine_type = _last(item.get("machineType"))
    if not machine_type or _includes_cards(machine_type):
        return machine_type
    return machine_type + "".join(
        f"+{card.get('acceleratorCount') or 0}x{_last(card.get('acceleratorType'))}"
        for card in item.get("guestAccelerators") or ()
    )


def shape_names_of(shapes: Mapping[str, Shape]) -> dict[str, str]:
    """The result of `shape_words` -> the settings' name of that shape; the first name where two shapes are equal."""
    names: dict[str, str] = {}
    for name, shape in shapes.items():
        added = f"+{shape.gpus}x{shape.gpu_type}" if shape.gpu_type else ""
        names.setdefault(shape.machine_type + added, name)
    return names


def epoch_s(text: str | None) -> float | None:
    """From RFC 3339, as Google writes it; None for no text, or for a text that is not a time."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None


@lru_cache(maxsize=1024)  # called for every machine of every listing
def _includes_cards(machine_type: str) -> bool:
    try:
        return own_cards(machine_type) > 0
    except ValueError:
        return True  # a series with cards, in an unknown number


def _is_spot(item: Item) -> bool | None:
    model = (item.get("scheduling") or {}).get("provisioningModel")
    return None if model is None else model == "SPOT"


def _last(address: str | None) -> str:
    return (address or "").rpartition("/")[2]


def _warns(content: Mapping[str, Any]) -> bool:
    return ((content.get("warning") or {}).get("code") or EMPTY) != EMPTY
