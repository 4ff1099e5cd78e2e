"""One VM in Compute Engine's form, and its serial console: a ring of 1 MB whose offsets keep counting.

The body is never changed in place but replaced, so a response that is being sent does not change.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from tests.cloud.compute_errors import GOOGLE, rfc3339
from tests.cloud.compute_operations import Operation

SERIAL_BYTES = 1024 * 1024
# The machine exists for the caller, and may yet turn out never to have been obtained.
ASKED = ("PENDING", "PROVISIONING", "STAGING")


class SerialPort:
    """`dropped`: how many bytes at the front are gone for good."""

    def __init__(self) -> None:
        self._bytes, self.dropped = bytearray(), 0

    @property
    def end(self) -> int:
        return self.dropped + len(self._bytes)

    def append(self, data: bytes) -> None:
        self._bytes += data
        if (over := len(self._bytes) - SERIAL_BYTES) > 0:
            del self._bytes[:over]
            self.dropped += over

    def read(self, start: int) -> tuple[int, bytes]:
        """-> (the actual start of the response, everything from there). Negative: that many of the last bytes."""
        if start < 0:
            start = self.end + start
        start = min(max(start, self.dropped), self.end)
        return start, bytes(self._bytes[start - self.dropped :])


class Instance:
    """`body`: the resource, as in `instances.get`. `zombie`: it will be RUNNING and boot nothing."""

    def __init__(self, project: str, zone: str, vm_id: int, resource: Mapping[str, Any], at: float) -> None:
        self.project, self.zone, self.vm_id, self.created_at = project, zone, vm_id, at
        self.name: str = resource["name"]
        self.serial = SerialPort()
        self.body = _whole(self, resource)
        given = [disk.get("initializeParams", {}) for disk in resource.get("disks", [])]
        self.sources = [str(params["sourceImage"]) for params in given if "sourceImage" in params]  # of its disks
        self.zombie = False
        self.powered = False  # a program on it must get the signal of its end
        self.life = 0  # counts its changes of course: what was planned before one is not carried out
        self.insert_operation: Operation | None = None
        self.delete_operation: Operation | None = None
        self.open_operations: list[Operation] = []  # done when its present course is
        self.finish: Callable[[float], None] | None = None  # set while STOPPING: what comes after

    @property
    def link(self) -> str:
        return "projects/%s/zones/%s/instances/%s" % (self.project, self.zone, self.name)

    @property
    def id(self) -> str:
        """The numeric id as text: the machine id."""
        return str(self.vm_id)

    @property
    def status(self) -> str:
        return str(self.body["status"])

    @property
    def metadata(self) -> dict[str, str]:
        return {item["key"]: item["value"] for item in self.body["metadata"].get("items", [])}

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.body.get("labels", {}))

    @property
    def scheduling(self) -> dict[str, Any]:
        return dict(self.body["scheduling"])

    @property
    def machine_type(self) -> str:
        return str(self.body["machineType"]).rsplit("/", 1)[-1]

    @property
    def accelerators(self) -> dict[str, int]:
        """Of the request, not those that a machine type brings along."""
        given = self.body.get("guestAccelerators", [])
        return {one["acceleratorType"].rsplit("/", 1)[-1]: one["acceleratorCount"] for one in given}

    @property
    def spot(self) -> bool:
        return self.scheduling["provisioningModel"] == "SPOT"

    @property
    def deleted_at_end(self) -> bool:
        return self.scheduling.get("instanceTerminationAction") == "DELETE"

    def seconds(self, field: str) -> float | None:
        """A duration of its scheduling (maxRunDuration, preemptionNoticeDuration)."""
        given = self.scheduling.get(field)
        return None if given is None else float(given["seconds"])

    def change(self, **to: Any) -> None:
        """None takes a field away."""
        self.body = {key: value for key, value in {**self.body, **to}.items() if value is not None}


def fingerprint(value: object) -> str:
    return b64encode(sha256(json.dumps(value, sort_keys=True).encode()).digest()[:8]).decode()


def _whole(vm: Instance, resource: Mapping[str, Any]) -> dict[str, Any]:
    """The resource as sent, with what the service adds."""
    scope = "%s/projects/%s/zones/%s" % (GOOGLE, vm.project, vm.zone)
    metadata = {key: value for key, value in resource.get("metadata", {}).items() if key == "items"}
    spot = resource.get("scheduling", {}).get("provisioningModel") == "SPOT"
    scheduling = {
        "provisioningModel": "STANDARD",
        "onHostMaintenance": "TERMINATE" if spot else "MIGRATE",
        "automaticRestart": not spot,
        "preemptible": spot,
        **resource.get("scheduling", {}),
    }
    whole = {
        **{key: value for key, value in resource.items() if key != "params"},
        "kind": "compute#instance",
        "id": str(vm.vm_id),
        "creationTimestamp": rfc3339(vm.created_at),
        "zone": scope,
        "selfLink": "%s/instances/%s" % (scope, vm.name),
        "status": "PROVISIONING",
        "machineType": "%s/machineTypes/%s" % (scope, resource["machineType"].rsplit("/", 1)[-1]),
        "scheduling": scheduling,
        "metadata": {"kind": "compute#metadata", "fingerprint": fingerprint(metadata), **metadata},
        "labelFingerprint": fingerprint(resource.get("labels", {})),
        "disks": [_disk(vm, at, disk, scope) for at, disk in enumerate(resource.get("disks", []))],
        "networkInterfaces": [_network(vm, at, card) for at, card in enumerate(resource.get("networkInterfaces", []))],
        "fingerprint": fingerprint(vm.name),
    }
    if "guestAccelerators" in resource:
        whole["guestAccelerators"] = [
            {**one, "acceleratorType": "%s/acceleratorTypes/%s" % (scope, one["acceleratorType"].rsplit("/", 1)[-1])}
            for one in resource["guestAccelerators"]
        ]
    return whole


def _disk(vm: Instance, at: int, disk: Mapping[str, Any], scope: str) -> dict[str, Any]:
    made = {key: value for key, value in disk.items() if key != "initializeParams"}
    params = disk.get("initializeParams", {})
    name = params.get("diskName") or (vm.name if at == 0 else "%s-%d" % (vm.name, at))
    source = str(disk.get("source", name)).rsplit("/", 1)[-1]
    size = disk.get("diskSizeGb") or params.get("diskSizeGb") or "10"
    return {
        "kind": "compute#attachedDisk",
        "type": "PERSISTENT",
        "mode": "READ_WRITE",
        "deviceName": "persistent-disk-%d" % at,
        **made,
        "index": at,
        "diskSizeGb": size,
        "source": "%s/disks/%s" % (scope, source),
    }


def _network(vm: Instance, at: int, card: Mapping[str, Any]) -> dict[str, Any]:
    number = vm.vm_id
    made: dict[str, Any] = {
        "kind": "compute#networkInterface",
        "networkIP": "10.%d.%d.%d" % (number % 250, number // 250 % 250, number // 62500 % 250 + 2),
        **card,
        "name": "nic%d" % at,
    }
    if "accessConfigs" in card:
        made["accessConfigs"] = [
            {
                "kind": "compute#accessConfig",
                "name": "External NAT",
                "type": "ONE_TO_ONE_NAT",
                **one,
                "natIP": _outside(number),
            }
            for one in card["accessConfigs"]
        ]
    return made


def _outside(number: int) -> str:
    return "203.0.113.%d" % (number % 250 + 2)
