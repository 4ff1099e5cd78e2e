"""The read-only half of the API: zones, regions, types, images, networks, disks, the project, and capacity advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cloud.compute_errors import GOOGLE
from tests.cloud.compute_pages import page
from tests.cloud.compute_routes import Answer, route
from tests.cloud.web import Request

if TYPE_CHECKING:
    from tests.cloud.compute import ComputeFake


class _Place:
    """A row of a list."""

    def __init__(self, body: Answer) -> None:
        self.body = body


def _places(fake: ComputeFake, request: Request, kind: str, bodies: list[Answer]) -> Answer:
    rows, token = page(sorted(((body["name"],), _Place(body)) for body in bodies), request)  # type: ignore[type-var]
    made: Answer = {
        "kind": "compute#%sList" % kind,
        "id": "projects/%s/%ss" % (fake.project, kind),
        "selfLink": "%s/projects/%s/%ss" % (GOOGLE, fake.project, kind),
        "items": [row.body for row in rows],
    }
    return made if token is None else made | {"nextPageToken": token}


@route("GET", "")
def get_project(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    return fake.catalog.whole_project()


@route("GET", "zones")
def list_zones(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    return _places(fake, request, "zone", [fake.catalog.zone(zone) for zone in fake.catalog.zones])


@route("GET", "zones/{zone}")
def get_zone(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    return fake.catalog.zone(at["zone"])


@route("GET", "regions/{region}")
def get_region(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    return fake.catalog.region(at["region"])


@route("GET", "zones/{zone}/machineTypes/{name}")
def get_machine_type(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    return fake.catalog.machine_type(at["zone"], at["name"])


@route("GET", "zones/{zone}/acceleratorTypes/{name}")
def get_accelerator_type(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    return fake.catalog.accelerator_type(at["zone"], at["name"])


@route("GET", "regions/{region}/subnetworks/{name}")
def get_subnetwork(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    return fake.catalog.subnetwork(at["region"], at["name"])


@route("GET", "zones/{zone}/disks/{name}")
def get_disk(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    return fake.catalog.disk(at["zone"], at["name"])


@route("GET", "global/images/family/{family}")
def get_image_from_family(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    return fake.catalog.image(at["project"], at["family"], family=True)


@route("GET", "global/images/{image}")
def get_image(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    if at["project"] == fake.project and at["image"] in fake.custom:
        return fake.custom[at["image"]]
    return fake.catalog.image(at["project"], at["image"], family=False)


@route("POST", "regions/{region}/advice/capacity")
def advise(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    return fake.advice.capacity(at["region"], request.json() or {})


@route("POST", "regions/{region}/advice/capacityHistory")
def tell_history(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    return fake.advice.history(at["region"], request.json() or {}, now)
