"""The doctor's checks of the resources that the settings name: zones, shapes, quotas, boot image, network, disks.

Each function makes one line for all zones or regions together, with the worst of them first. `read` is Compute.read; it
raises ApiError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.providers.gce.calls.errors import ApiError
from supervisor.providers.gce.config import DataDisk, GceConfig, Shape
from supervisor.providers.gce.prices.machine_facts import boot_disk_type, card_type, is_arm
from supervisor.providers.gce.settings import BOOT_IMAGE
from supervisor.providers.gce.traits import google_finding

Read = Callable[..., Mapping[str, Any]]
# The branch that `cos-extensions install gpu -- -version=default` installs; release notes of Container-Optimized OS.
# It was R535 until early 2026. https://cloud.google.com/container-optimized-os/docs/release-notes
DEFAULT_DRIVER = ("R580", "2026-08")


def zones(config: GceConfig, read: Read) -> Finding:
    facts = {zone: _read_if_exists(read, f"zones/{zone}", fields="status") for zone in config.zones}
    missing = [zone for zone, zone_facts in facts.items() if zone_facts is None]
    down = [zone for zone, zone_facts in facts.items() if zone_facts and zone_facts.get("status", "UP") != "UP"]
    if missing:
        cause = "no such zone in this project"
        return google_finding("zones", FAIL, f"{', '.join(missing)}: not there", cause, _list("zones", config))
    if down:
        fix = "wait; the other zones are tried"
        return google_finding("zones", WARN, f"{', '.join(down)}: down", "Google reports this status", fix)
    return google_finding("zones", OK, f"{', '.join(config.zones)}: up, tried in this order")


def shapes(config: GceConfig, read: Read) -> Finding:
    """In a zone without a shape each try is wasted; a shape that no zone has is a mistake."""
    nowhere, partly, wrong = [], [], []
    for name, shape in config.shapes.items():
        machine_types = {zone: _machine_type(shape, zone, read) for zone in config.offered_zones}
        missing = [zone for zone, machine_type in machine_types.items() if machine_type is None]
        if len(missing) == len(machine_types):
            nowhere.append(name)
        elif missing:
            partly.append(f"{name} not in {', '.join(missing)}")
        counts = {
            _card_count(shape, machine_type) for machine_type in machine_types.values() if machine_type is not None
        }
        wrong += [f"{name} has {count} cards instead of {shape.gpus}" for count in counts if count != shape.gpus]
    fix = _list("machine-types", config) + f" --zones={','.join(config.offered_zones)}"
    if nowhere:
        return google_finding("shapes", FAIL, f"{', '.join(nowhere)}: in none of the zones", "not offered there", fix)
    if wrong:
        return google_finding("shapes", WARN, "; ".join(wrong), "the settings read this number from the name", fix)
    if partly:
        return google_finding("shapes", WARN, "; ".join(partly), "each try there is wasted", fix)
    return google_finding("shapes", OK, f"{', '.join(config.shapes)}: in every zone")


def quotas(config: GceConfig, read: Read, project: Mapping[str, Any]) -> Finding:
    """Spot machines count against the preemptible quota if the project has one, otherwise against the ordinary one."""
    enough: list[str] = []
    short: list[str] = []
    for region in config.regions:
        limits = _limits(read(f"regions/{region}", fields="quotas"))
        for shape in config.shapes.values():
            metric = _metric(card_type(shape))
            if not shape.gpus or metric not in limits:
                continue
            name = f"PREEMPTIBLE_{metric}" if limits.get(f"PREEMPTIBLE_{metric}", (0, 0))[0] else metric
            limit, used = limits[name]
            line = f"{region} {name} {used:g} of {limit:g} used"
            (enough if limit - used >= shape.gpus else short).append(line)
    no_region_is_enough, project_is_short = not enough, False
    whole_project, least_gpus = _limits(project), min((s.gpus for s in config.shapes.values() if s.gpus), default=0)
    if "GPUS_ALL_REGIONS" in whole_project and least_gpus:
        limit, used = whole_project["GPUS_ALL_REGIONS"]
        project_is_short = limit - used < least_gpus
        (short if project_is_short else enough).append(f"GPUS_ALL_REGIONS {used:g} of {limit:g} used")
    if not short:
        return google_finding("quotas", OK, "; ".join(enough) or "no quota of cards applies")
    cause = (
        "a quota of 0 means that this project never requested one from Google; waiting does not help"
        if any(line.endswith("0 of 0 used") for line in short)
        else "the quota does not allow one more machine; waiting helps only if other machines of yours end"
    )
    # Cards of any kind, in any region, count against the quota of the whole project.
    result = FAIL if no_region_is_enough or project_is_short else WARN
    return google_finding("quotas", result, "; ".join([*short, *enough]), cause, _request_quota(config, short))


def _request_quota(config: GceConfig, short: Sequence[str]) -> str:
    """Quotas are raised in the Console: Google checks each request."""
    metrics = ", ".join(dict.fromkeys(next(w for w in line.split() if w.isupper()) for line in short))
    url = f"https://console.cloud.google.com/iam-admin/quotas?project={config.project}"
    return f"request more of {metrics}, or add another region to gce_zones: {url}"


def boot_image(config: GceConfig, read: Read) -> Finding:
    path = config.boot_image.strip("/")
    image = _read_if_exists(read, f"/{path}" if path.startswith("projects/") else path, fields="name,deprecated")
    if image is None:
        owner = path.split("/")[1] if path.startswith("projects/") else config.project
        fix = f"gcloud compute images list --project={owner} --no-standard-images"
        return google_finding("boot image", FAIL, f"{path}: not there", "gce_boot_image names no image", fix)
    if (image.get("deprecated") or {}).get("state"):
        fix = f"set gce_boot_image to a family, such as {BOOT_IMAGE}"
        return google_finding("boot image", WARN, f"{image['name']}: deprecated", "Google will remove it", fix)
    return google_finding("boot image", OK, f"{path.rpartition('/')[2]} is {image['name']}{_driver(config, path)}")


def boot_disk(config: GceConfig) -> Finding:
    """The disk type of each shape, and a warning for shapes that need an ARM image."""
    setting, name = config.boot_disk_type, "boot disk"
    types = {shape: boot_disk_type(setting, config.shapes[shape]) for shape in config.shapes}
    others = [f"{disk_type} for {shape}" for shape, disk_type in types.items() if disk_type != setting]
    fact = ", ".join([f"{config.boot_disk_gb} GB of {setting}", *others])
    arm = [shape for shape in config.shapes if is_arm(config.shapes[shape])]
    if arm and "arm64" not in config.boot_image:
        cause = f"{', '.join(arm)} has ARM processors, and gce_boot_image is not an image for them"
        return google_finding(name, WARN, fact, cause, "set gce_boot_image to an arm64 image family of cos-cloud")
    return google_finding(name, OK, fact)


def _driver(config: GceConfig, path: str) -> str:
    """The GPU driver that cos-extensions will install; "" where no shape has cards or the image is not of COS."""
    if not path.startswith("projects/cos-cloud/") or not any(shape.gpus for shape in config.shapes.values()):
        return ""
    if config.gpu_driver_version != "default":
        return f"; GPU driver {config.gpu_driver_version}, from gce_gpu_driver_version"
    branch, day = DEFAULT_DRIVER
    return f"; its default GPU driver is {branch} (as of {day}), and the console of each boot shows the version"


def network(config: GceConfig, read: Read) -> Finding:
    """For a subnet that the settings name. Without one Google chooses it by the zone, and it cannot be checked."""
    fix = f"gcloud compute networks subnets list --project={config.project}"
    if not config.subnet:
        cause = "without an external address a machine needs Private Google Access in its subnet"
        fact = "gce_subnet is not set, so the access of the subnet was not checked"
        return google_finding("network", WARN, fact, cause, fix)
    closed = []
    for region in config.regions:
        own_path = f"regions/{region}/subnetworks/{config.subnet}"
        path = "/" + config.subnet.strip("/") if "/" in config.subnet else own_path
        subnet = _read_if_exists(read, path, fields="privateIpGoogleAccess")
        if subnet is None:
            cause = "gce_subnet names no subnet there"
            return google_finding("network", FAIL, f"{config.subnet}: not in {region}", cause, fix)
        if not subnet.get("privateIpGoogleAccess"):
            closed.append(region)
    if closed and not config.external_ip:
        fact = f"{config.subnet} has no Private Google Access in {', '.join(closed)}"
        fix = (
            f"gcloud compute networks subnets update {config.subnet} --region={closed[0]} "
            f"--enable-private-ip-google-access --project={config.project}"
        )
        return google_finding("network", FAIL, fact, "machines without an external address cannot reach a bucket", fix)
    return google_finding("network", OK, f"subnet {config.subnet} in {', '.join(config.regions)}")


def data_disk(config: GceConfig, disk: DataDisk, read: Read) -> Finding:
    facts = _read_if_exists(read, f"zones/{disk.zone}/disks/{disk.name}", fields="sizeGb,users")
    if facts is None:
        fact = f"{disk.name} in {disk.zone}: not there"
        fix = f"gcloud compute disks create {disk.name} --zone={disk.zone} --size=500GB --project={config.project}"
        return google_finding("data disk", FAIL, fact, "gce_data_disk names no disk", fix)
    users = ", ".join(str(user).rpartition("/")[2] for user in facts.get("users") or ())
    fact = f"{disk.name} in {disk.zone}, {facts.get('sizeGb')} GB" + (f", attached to {users}" if users else "")
    return google_finding("data disk", OK, fact)


def _machine_type(shape: Shape, zone: str, read: Read) -> Mapping[str, Any] | None:
    """None: the zone does not have the machine type, or not its cards."""
    path = f"zones/{zone}/machineTypes/{shape.machine_type}"
    machine_type = _read_if_exists(read, path, fields="name,accelerators")
    if machine_type is None or not shape.gpu_type:
        return machine_type
    card = _read_if_exists(read, f"zones/{zone}/acceleratorTypes/{shape.gpu_type}", fields="name")
    return None if card is None else machine_type


def _card_count(shape: Shape, machine_type: Mapping[str, Any]) -> int:
    included = sum(int(card.get("guestAcceleratorCount", 0)) for card in machine_type.get("accelerators") or ())
    return shape.gpus if shape.gpu_type else included


def _metric(card: str) -> str:
    """nvidia-tesla-t4 -> NVIDIA_T4_GPUS, the name of its quota."""
    return card.replace("-tesla-", "-").upper().replace("-", "_") + "_GPUS"


def _limits(facts: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """metric -> (limit, usage)."""
    return {
        quota["metric"]: (float(quota.get("limit", 0)), float(quota.get("usage", 0)))
        for quota in facts.get("quotas") or ()
        if "metric" in quota
    }


def _read_if_exists(read: Read, path: str, **query: str) -> Mapping[str, Any] | None:
    """None: there is no such resource."""
    try:
        return read(path, **query)
    except ApiError as error:
        if error.missing:
            return None
        raise


def _list(what: str, config: GceConfig) -> str:
    return f"gcloud compute {what} list --project={config.project}"
