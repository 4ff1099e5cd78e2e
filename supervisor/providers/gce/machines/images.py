"""Images of disks: what `spot base` makes of a prepared machine. Not snapshots: a machine starts from an image sooner.

An image has a deterministic name and a request id, so a repeated request makes no second one, and whatever an earlier
one made is found. It carries our labels: an image of that name without them is somebody else's and is never touched.
Only a 404 says that there is none. The machine still runs while its disk is read (`forceCreate`): the start-up script
has stopped docker and written everything to the disk before.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from importlib import resources
from typing import Any

from supervisor.contract.identifiers import label_value
from supervisor.domain.bases import BASE_LABEL, ImageSeen
from supervisor.domain.machines import SUPERVISOR_LABEL
from supervisor.ports.provider import ImageRefused, ImageRequest
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError, as_unavailable
from supervisor.providers.gce.config import GceConfig

# Per GB and month of an image, whose size is the compressed one: cloud.google.com/compute/disks-image-pricing, 2026-09.
USD_PER_GB_MONTH = 0.05
FIELDS = "id,name,labels,status,archiveSizeBytes,diskSizeGb"
_STATES: Mapping[str, str] = {"READY": "ready", "FAILED": "failed"}  # all others: it is being made, or deleted


class GceImages:
    """DiskImages of ports/provider.py."""

    usd_per_gb_month: float | None = USD_PER_GB_MONTH
    clean_up = resources.files(__package__).joinpath("clean_up.sh").read_text("utf-8")

    def __init__(self, config: GceConfig, compute: Compute) -> None:
        self._config, self._compute = config, compute

    def request(self, request: ImageRequest) -> None:
        body = {
            "name": request.name,
            "family": request.family,
            "description": f"base {request.base} of Spot Supervisor",
            "sourceDisk": f"projects/{self._config.project}/zones/{request.zone}/disks/{request.disk}",
            "labels": labels(request.supervisor_id, request.base),
            "storageLocations": [request.zone.rpartition("-")[0]],
        }
        with as_unavailable(f"image {request.name}"):
            try:
                operation = self._compute.make_image(body, request.request_id)
            except ApiError as error:
                if error.name_taken:
                    return  # `find` shows whose it is
                if error.transient or error.status is None or not 400 <= error.status < 500:
                    raise
                raise ImageRefused(str(error)) from error
        failures = (operation.get("error") or {}).get("errors") or []
        if failures:
            raise ImageRefused("; ".join(f"{each.get('code')}: {each.get('message')}" for each in failures))

    def find(self, name: str, supervisor_id: str, base: str) -> ImageSeen | None:
        with as_unavailable(f"image {name}"):
            try:
                item = self._compute.read(f"global/images/{name}", fields=FIELDS)
            except ApiError as error:
                if error.missing:
                    return None
                raise
        return image_of(item, supervisor_id, base)

    def delete(self, name: str, request_id: str) -> None:
        with as_unavailable(f"deletion of image {name}"):
            try:
                self._compute.delete_image(name, delete_request_id(request_id))
            except ApiError as error:
                if not error.missing:
                    raise


def labels(supervisor_id: str, base: str) -> dict[str, str]:
    return {SUPERVISOR_LABEL: label_value(supervisor_id), BASE_LABEL: label_value(base)}


def delete_request_id(request_id: str) -> str:
    """Another one than that of the image's creation, and the same at each repeat."""
    return str(uuid.uuid5(uuid.UUID(request_id), "delete"))


def image_of(item: Mapping[str, Any], supervisor_id: str, base: str) -> ImageSeen:
    own = labels(supervisor_id, base)
    size, disk_gb = item.get("archiveSizeBytes"), item.get("diskSizeGb")
    return ImageSeen(
        state=_STATES.get(str(item.get("status")), "pending"),
        ours=own.items() <= (item.get("labels") or {}).items(),
        size_bytes=int(size) if size is not None else None,
        disk_gb=int(disk_gb) if disk_gb is not None else None,
    )
