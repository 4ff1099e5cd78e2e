"""What Google tells of one VM, as a Machine. The same for the bulk listing and for a single get: both are the API's
own JSON, with the same few fields."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from supervisor.domain.machines.machine import (
    LAUNCH_LABEL,
    RUN_LABEL,
    SUPERVISOR_LABEL,
    Machine,
    MachineRecord,
    MachineState,
)
from supervisor.providers.gce.config import Shape, own_cards

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
    state = STATES.get(
        status, MachineState.UP
    )  # a word of tomorrow: the machine is there, and nothing follows
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
