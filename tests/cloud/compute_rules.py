"""What Compute Engine refuses in an insert before it begins anything. The discovery document says none of this.

Sources: the API reference of Instance, the pages on labels, metadata, Spot VMs, GPUs and limited run times.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from tests.cloud.compute_catalog import Catalog, known_zone, region_of
from tests.cloud.compute_errors import ApiError, OperationFailure, invalid, not_found

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_METADATA_KEY = re.compile(r"[a-zA-Z0-9_-]{1,127}")
VALUE_BYTES, METADATA_BYTES = 262_144, 512 * 1024


def check_request_id(text: str | None) -> None:
    """None = none was given, which is allowed."""
    if text is None:
        return
    try:
        wrong = UUID(text).int == 0
    except ValueError:
        wrong = True
    if wrong:
        raise invalid("requestId", text, "The provided request ID must be a valid, non-zero UUID.")


def check_insert(catalog: Catalog, zone: str, resource: Any) -> None:
    """Raises ApiError."""
    known_zone(catalog, zone)
    if not isinstance(resource, dict):
        raise ApiError(400, "Required field 'resource' not specified", "required")
    for field in ("name", "machineType", "networkInterfaces", "disks"):
        if not resource.get(field):
            raise ApiError(400, "Invalid value for field 'resource.%s': ''." % field)
    if not _NAME.fullmatch(resource["name"]):
        raise invalid(
            "resource.name", resource["name"], "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'"
        )
    check_labels(resource.get("labels", {}))
    check_metadata(resource.get("metadata", {}))
    _shape(catalog, zone, resource)
    _scheduling(resource)
    for at, disk in enumerate(resource["disks"]):
        _disk(catalog, zone, at, disk)
    _network(catalog, zone, resource["networkInterfaces"])
    if len(resource.get("serviceAccounts", [])) > 1:
        raise invalid("resource.serviceAccounts", "", "At most one service account can be specified.")


def check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > 64:
        raise invalid("resource.labels", "", "The number of labels must be at most 64.")
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise invalid("resource.labels", "%s: %s" % (key, value), "Label key or value violates format constraints.")


def check_metadata(metadata: Mapping[str, Any]) -> None:
    items = metadata.get("items", [])
    total = 0
    for item in items:
        size = len(item.get("value", "").encode())
        total += size + len(item["key"])
        if not _METADATA_KEY.fullmatch(item["key"]):
            raise invalid("resource.metadata.items", item["key"], "Metadata key is not valid.")
        if size > VALUE_BYTES:
            raise invalid("resource.metadata", item["key"], "Value is longer than 262144 bytes.")
    if total >= METADATA_BYTES:
        raise invalid("resource.metadata", "", "The total size of all keys and values must be less than 512 KB.")
    if len({item["key"] for item in items}) < len(items):
        raise invalid("resource.metadata", "", "Metadata has duplicate keys.")


def _shape(catalog: Catalog, zone: str, resource: Mapping[str, Any]) -> None:
    given = resource["machineType"]
    machine_type = given.rsplit("/", 1)[-1]
    if "/" not in given or (zone not in given.split("/") and "zones" in given.split("/")):
        raise invalid("resource.machineType", given, "The URL is malformed.")
    if machine_type not in catalog.machine_types or (zone, machine_type) in catalog.absent:
        why = "Machine type with name '%s' does not exist in zone '%s'." % (machine_type, zone)
        raise invalid("resource.machineType", given, why)
    for card in resource.get("guestAccelerators", []):
        kind, count = card["acceleratorType"].rsplit("/", 1)[-1], card["acceleratorCount"]
        if kind not in catalog.accelerators or (zone, kind) in catalog.absent:
            raise not_found("projects/%s/zones/%s/acceleratorTypes/%s" % (catalog.project, zone, kind))
        if not machine_type.startswith("n1-") or not 1 <= count <= catalog.accelerators[kind]:
            why = "[%s, %s] features are not compatible for creating instance." % (machine_type, kind)
            raise ApiError(400, why, "badRequest")


def _scheduling(resource: Mapping[str, Any]) -> None:
    given = resource.get("scheduling", {})
    spot = given.get("provisioningModel") == "SPOT"
    machine_type = resource["machineType"].rsplit("/", 1)[-1]
    gpu = bool(resource.get("guestAccelerators")) or machine_type.startswith(("g2-", "a2-", "a3-"))
    maintenance = given.get("onHostMaintenance")
    if maintenance != "TERMINATE" and (gpu or (spot and maintenance)):
        why = "Instances with guest accelerators or of the Spot model do not support live migration."
        raise ApiError(400, why, "badRequest")
    if spot and given.get("automaticRestart", False):
        raise ApiError(400, "Scheduling preemptible instances with automatic restart is not supported.", "badRequest")
    _flex_start(resource, given)
    notice = given.get("preemptionNoticeDuration")
    if notice is not None and (not spot or float(notice["seconds"]) not in (0.0, 120.0)):
        why = "Only 0 or 120 seconds, and only for Spot VMs."
        raise invalid("resource.scheduling.preemptionNoticeDuration", notice["seconds"], why)
    limit = given.get("maxRunDuration")
    if limit is not None and not 30 <= float(limit["seconds"]) <= 120 * 86400:
        why = "Must be between 30 seconds and 120 days."
        raise invalid("resource.scheduling.maxRunDuration.seconds", limit["seconds"], why)
    if given.get("instanceTerminationAction") and not (spot or limit):
        why = "instanceTerminationAction is only for Spot VMs and VMs with a limited run time."
        raise invalid("resource.scheduling.instanceTerminationAction", given["instanceTerminationAction"], why)
    if limit is not None and not given.get("instanceTerminationAction"):
        raise invalid("resource.scheduling.instanceTerminationAction", "", "Must be set with maxRunDuration.")


def _flex_start(resource: Mapping[str, Any], scheduling: Mapping[str, Any]) -> None:
    """The pages about-flex-start-vms (series) and ai-hypercomputer/docs/create/create-vm (times, reservation)."""
    waits = resource.get("params", {}).get("requestValidForDuration")
    if scheduling.get("provisioningModel") != "FLEX_START":
        if waits is not None:
            raise invalid("resource.params.requestValidForDuration", waits["seconds"], "Only for flex-start.")
        return
    series = resource["machineType"].rsplit("/", 1)[-1].partition("-")[0]
    if series not in ("a2", "a3", "a4", "g2", "h4d"):
        raise invalid("resource.scheduling.provisioningModel", "FLEX_START", "Not for this machine type.")
    if waits is not None and float(waits["seconds"]) != 0 and not 90 <= float(waits["seconds"]) <= 7200:
        raise invalid("resource.params.requestValidForDuration", waits["seconds"], "90 seconds to 2 hours, or 0.")
    limit = scheduling.get("maxRunDuration")
    if limit is None or not 600 <= float(limit["seconds"]) <= 7 * 86400:
        raise invalid("resource.scheduling.maxRunDuration", str(limit), "Ten minutes to seven days, and required.")
    if resource.get("reservationAffinity", {}).get("consumeReservationType") != "NO_RESERVATION":
        raise invalid("resource.reservationAffinity", "", "Must be NO_RESERVATION for flex-start.")


def _disk(catalog: Catalog, zone: str, at: int, disk: Mapping[str, Any]) -> None:
    field = "resource.disks[%d]" % at
    if "source" in disk:
        name = disk["source"].rsplit("/", 1)[-1]
        known = catalog.disks.get((zone, name))
        if known is None or ("zones" in disk["source"].split("/") and zone not in disk["source"].split("/")):
            why = "The referenced disk resource cannot be found."
            raise invalid(field + ".source", disk["source"], why)
        if known["users"] and disk.get("mode", "READ_WRITE") == "READ_WRITE":
            why = "The disk resource '%s' is already being used by '%s'" % (name, known["users"][0])
            raise ApiError(400, why, "resourceInUseByAnotherResource")
        return
    image = disk.get("initializeParams", {}).get("sourceImage")
    if at == 0 and not image:
        raise invalid(field, "", "Boot disk must have a source specified")
    if image and not catalog.has_image(image):
        why = "The referenced image resource cannot be found."
        raise invalid(field + ".initializeParams.sourceImage", image, why)


def incompatible(resource: Mapping[str, Any]) -> OperationFailure | None:
    """A disk that machines of that series do not take: accepted at first, and refused by the operation."""
    machine_type = resource["machineType"].rsplit("/", 1)[-1]
    for disk in resource["disks"]:
        kind = str(disk.get("initializeParams", {}).get("diskType", "pd-standard")).rsplit("/", 1)[-1]
        wanted = "hyperdisk-" if machine_type.startswith(("a3-ultragpu-", "a4-", "g4-", "c4-")) else "pd-"
        if "source" not in disk and not kind.startswith(wanted) and not machine_type.startswith("a3-"):
            message = "[%s, %s] features are not compatible for creating instance." % (kind, machine_type)
            return OperationFailure("UNSUPPORTED_OPERATION", message)
    return None


def _network(catalog: Catalog, zone: str, cards: list[Mapping[str, Any]]) -> None:
    for card in cards:
        subnet = card.get("subnetwork", "default").split("/")
        if subnet[-1] not in catalog.subnetworks or ("regions" in subnet and region_of(zone) not in subnet):
            why = "The referenced subnetwork resource cannot be found."
            raise invalid("resource.networkInterfaces[0].subnetwork", card.get("subnetwork", ""), why)
