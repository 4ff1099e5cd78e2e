"""Images of disks: made of a machine's boot disk, read and deleted. `fake.custom` has those of this project by name.

What the disk holds is the business of `fake.on_image`, which is called when an image begins to be made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cloud.compute_errors import GOOGLE, ApiError, not_found, rfc3339
from tests.cloud.compute_operations import numeric_id
from tests.cloud.compute_routes import Answer, route
from tests.cloud.compute_rules import check_labels
from tests.cloud.web import Request

if TYPE_CHECKING:
    from tests.cloud.compute import ComputeFake


@route("POST", "global/images")
def insert_image(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    body, request_id = request.json(), request.one("requestId") or ""
    known = fake.image_operations.get(request_id)
    if known is not None:
        return known
    name, source = body["name"], str(body["sourceDisk"]).split("/")
    link = f"projects/{fake.project}/global/images/{name}"
    if name in fake.custom:
        raise ApiError(409, f"The resource '{link}' already exists", "alreadyExists")
    check_labels(body.get("labels", {}))
    zone, disk = source[source.index("zones") + 1], source[-1]
    vm = fake.instances.get((zone, disk))
    if vm is None:
        raise not_found(f"projects/{fake.project}/zones/{zone}/disks/{disk}")
    if vm.status == "RUNNING" and request.one("forceCreate") != "true":
        raise ApiError(
            400, f"The disk resource '{disk}' is already being used by '{vm.link}'", "resourceInUseByAnotherResource"
        )
    number = len(fake.custom) + len(fake.image_operations) + 1
    fake.custom[name] = {
        "kind": "compute#image",
        "id": str(numeric_id(number, 7)),
        "selfLink": f"{GOOGLE}/{link}",
        "creationTimestamp": rfc3339(now),
        "status": "PENDING",
        "sourceType": "RAW",
        "diskSizeGb": vm.body["disks"][0]["diskSizeGb"],
        "labelFingerprint": "abcd",
        **body,
    }
    fake.catalog.images[fake.project, f"custom {name}"] = name
    fake.later(fake.on_image, name, vm)
    fake.plan(now + fake.image_s, lambda moment: _ready(fake, name))
    fake.image_operations[request_id] = _operation(fake, "insert", link, number, now, request_id)
    return fake.image_operations[request_id]


@route("DELETE", "global/images/{image}")
def delete_image(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    link = f"projects/{fake.project}/global/images/{at['image']}"
    if fake.custom.pop(at["image"], None) is None:
        raise not_found(link)
    fake.catalog.images.pop((fake.project, f"custom {at['image']}"), None)
    number = len(fake.custom) + len(fake.image_operations) + 100
    return _operation(fake, "delete", link, number, now, request.one("requestId") or "")


def _ready(fake: ComputeFake, name: str) -> None:
    if name in fake.custom:
        fake.custom[name] = {**fake.custom[name], "status": "READY", "archiveSizeBytes": "4200000000"}


def _operation(fake: ComputeFake, kind: str, link: str, number: int, now: float, request_id: str) -> Answer:
    op_id, name = numeric_id(number, 8), f"operation-{int(now * 1000)}-{kind}-{number}"
    return {
        "kind": "compute#operation",
        "id": str(op_id),
        "name": name,
        "operationType": kind,
        "targetLink": f"{GOOGLE}/{link}",
        "status": "RUNNING",
        "user": fake.account,
        "progress": 0,
        "insertTime": rfc3339(now),
        "startTime": rfc3339(now),
        "selfLink": f"{GOOGLE}/projects/{fake.project}/global/operations/{name}",
        **({"clientOperationId": request_id} if request_id else {}),
    }
