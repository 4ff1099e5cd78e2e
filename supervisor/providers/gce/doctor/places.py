"""The doctor's look at what the settings name: zones, shapes, quotas, the boot image, the network, disks.

Each function gives one line for all zones or regions together, with the worst of them first. `read` is Compute.read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.providers.gce.calls.errors import ApiError
from supervisor.providers.gce.config import BOOT_IMAGE, GceConfig, Shape
from supervisor.providers.gce.prices.machine_facts import boot_disk_type, card_type, is_arm

Read = Callable[..., Mapping[str, Any]]
# The branch that `cos-extensions install gpu -- -version=default` installs; release notes of Container-Optimized OS.
# It was R535 until early 2026. https://cloud.google.com/container-optimized-os/docs/release-notes
DEFAULT_DRIVER = ("R580", "2026-08")


def zones(config: GceConfig, read: Read) -> Finding:
    gone, down = [], []
    try:
        for zone in config.zones:
            state = _maybe(read, f"zones/{zone}", fields="status")
            if state is None:
                gone.append(zone)
            elif state.get("status", "UP") != "UP":
                down.append(zone)
    except ApiError as error:
        return _unread("zones", error)
    if gone:
        cause = "no such zone in this project"
        return _told("zones", FAIL, f"{', '.join(gone)}: not there", cause, _list("zones", config))
    if down:
        return _told("zones", WARN, f"{', '.join(down)}: down", "Google says so", "wait; the other zones are tried")
    return _told("zones", OK, f"{', '.join(config.zones)}: up, tried in this order")


def shapes(config: GceConfig, read: Read) -> Finding:
    """Where a zone does not have a shape, each try there is wasted; a shape that no zone has is a mistake."""
    nowhere, partly, wrong = [], [], []
    try:
        for name, shape in config.shapes.items():
            found = {zone: _machine(shape, zone, read) for zone in _zones(config)}
            missing = [zone for zone, machine in found.items() if machine is None]
            if len(missing) == len(found):
                nowhere.append(name)
            elif missing:
                partly.append(f"{name} not in {', '.join(missing)}")
            cards = {_cards(shape, machine) for machine in found.values() if machine is not None}
            wrong += [f"{name} has {count} and not {shape.gpus}" for count in cards if count != shape.gpus]
    except ApiError as error:
        return _unread("shapes", error)
    fix = _list("machine-types", config) + f" --zones={','.join(_zones(config))}"
    if nowhere:
        return _told("shapes", FAIL, f"{', '.join(nowhere)}: in none of the zones", "not offered there", fix)
    if wrong:
        return _told("shapes", WARN, "; ".join(wrong), "the number of cards is read from the type's name", fix)
    if partly:
        return _told("shapes", WARN, "; ".join(partly), "each try there is wasted", fix)
    return _told("shapes", OK, f"{', '.join(config.shapes)}: in every zone")


def quotas(config: GceConfig, read: Read, project: Mapping[str, Any]) -> Finding:
    """Spot machines count against the preemptible quota where the project has one, else against the ordinary one."""
    whole = _limits(project)
    told: list[str] = []
    short: list[str] = []
    try:
        for region in config.regions:
            limits = _limits(read(f"regions/{region}", fields="quotas"))
            for shape in config.shapes.values():
                card = card_type(shape)
                metric = _metric(card)
                if not shape.gpus or metric is None or metric not in limits:
                    continue
                name = f"PREEMPTIBLE_{metric}" if limits.get(f"PREEMPTIBLE_{metric}", (0, 0))[0] else metric
                limit, used = limits[name]
                line = f"{region} {name} {used:g} of {limit:g} used"
                (told if limit - used >= shape.gpus else short).append(line)
    except ApiError as error:
        return _unread("quotas", error)
    nowhere, whole_is_short = not told, False
    if "GPUS_ALL_REGIONS" in whole and any(shape.gpus for shape in config.shapes.values()):
        limit, used = whole["GPUS_ALL_REGIONS"]
        line = f"GPUS_ALL_REGIONS {used:g} of {limit:g} used"
        whole_is_short = limit - used < min(shape.gpus for shape in config.shapes.values() if shape.gpus)
        (short if whole_is_short else told).append(line)
    if short:
        zero = any(line.endswith("0 of 0 used") for line in short)
        cause = (
            "a quota of 0 means that nobody has asked Google for any yet; waiting does not help"
            if zero
            else "there is no room for one more machine; waiting helps only where others of yours end"
        )
        # Cards of any kind, in any region, count against the quota of the whole project.
        result = FAIL if nowhere or whole_is_short else WARN
        return _told("quotas", result, "; ".join([*short, *told]), cause, _ask_for(config, short))
    return _told("quotas", OK, "; ".join(told) or "no quota of cards is needed or told")


def _ask_for(config: GceConfig, short: Sequence[str]) -> str:
    """Quotas are raised in the Console: Google looks at each request."""
    metrics = ", ".join(dict.fromkeys(next(w for w in line.split() if w.isupper()) for line in short))
    where = f"https://console.cloud.google.com/iam-admin/quotas?project={config.project}"
    return f"ask for more of {metrics}, or name another region in gce_zones: {where}"


def boot_image(config: GceConfig, read: Read) -> Finding:
    path = config.boot_image.strip("/")
    below = f"/{path}" if path.startswith("projects/") else path
    try:
        image = _maybe(read, below, fields="name,deprecated")
    except ApiError as error:
        return _unread("boot image", error)
    if image is None:
        owner = path.split("/")[1] if path.startswith("projects/") else config.project
        fix = f"gcloud compute images list --project={owner} --no-standard-images"
        return _told("boot image", FAIL, f"{path}: not there", "gce_boot_image names nothing", fix)
    if (image.get("deprecated") or {}).get("state"):
        fix = f"set gce_boot_image to a family, such as {BOOT_IMAGE}"
        return _told("boot image", WARN, f"{image['name']}: deprecated", "Google will take it away", fix)
    fact = f"{path.rpartition('/')[2]} is {image['name']}{_driver(config, path)}"
    return _told("boot image", OK, fact)


def boot_disk(config: GceConfig) -> Finding:
    """Which kind each shape gets; a series that needs an ARM image is a line of its own worth."""
    wanted, name = config.boot_disk_type, "boot disk"
    kinds = {shape: boot_disk_type(wanted, config.shapes[shape]) for shape in config.shapes}
    instead = [f"{kind} for {shape}" for shape, kind in kinds.items() if kind != wanted]
    fact = ", ".join([f"{config.boot_disk_gb} GB of {wanted}", *instead])
    arm = [shape for shape in config.shapes if is_arm(config.shapes[shape])]
    if arm and "arm64" not in config.boot_image:
        cause = f"{', '.join(arm)} has ARM processors, and gce_boot_image names no image for them"
        return _told(name, WARN, fact, cause, "set gce_boot_image to an arm64 image family of cos-cloud")
    return _told(name, OK, fact)


def _driver(config: GceConfig, path: str) -> str:
    """The GPU driver that cos-extensions will install; "" where no shape has cards or the image is not of COS."""
    if not path.startswith("projects/cos-cloud/") or not any(shape.gpus for shape in config.shapes.values()):
        return ""
    if config.gpu_driver_version != "default":
        return f"; GPU driver {config.gpu_driver_version}, of gce_gpu_driver_version"
    branch, day = DEFAULT_DRIVER
    return f"; its default GPU driver is {branch} (as of {day}), and the console of each boot names the version"


def network(config: GceConfig, read: Read) -> list[Finding]:
    """Looked at where a subnet is named; without one Google chooses it by the zone."""
    fix = f"gcloud compute networks subnets list --project={config.project}"
    if not config.subnet:
        if config.external_ip:
            return []
        cause = "without an external address a machine needs Private Google Access in its subnet"
        return [
            _told("network", WARN, "gce_subnet is not set, so the access of its subnet was not checked", cause, fix)
        ]
    closed = []
    for region in config.regions:
        path = f"regions/{region}/subnetworks/{config.subnet}"
        if "/" in config.subnet:
            path = "/" + config.subnet.strip("/")
        try:
            subnet = _maybe(read, path, fields="privateIpGoogleAccess")
        except ApiError as error:
            return [_unread("network", error)]
        if subnet is None:
            return [_told("network", FAIL, f"{config.subnet}: not in {region}", "gce_subnet names nothing there", fix)]
        if not subnet.get("privateIpGoogleAccess"):
            closed.append(region)
    if closed and not config.external_ip:
        fact = f"{config.subnet} has no Private Google Access in {', '.join(closed)}"
        open_it = (
            f"gcloud compute networks subnets update {config.subnet} --region={closed[0]} "
            f"--enable-private-ip-google-access --project={config.project}"
        )
        return [_told("network", FAIL, fact, "machines without an external address reach no bucket", open_it)]
    return [_told("network", OK, f"subnet {config.subnet} in {', '.join(config.regions)}")]


def data_disk(config: GceConfig, read: Read) -> list[Finding]:
    disk = config.data_disk
    if disk is None:
        return []
    try:
        found = _maybe(read, f"zones/{disk.zone}/disks/{disk.name}", fields="sizeGb,users")
    except ApiError as error:
        return [_unread("data disk", error)]
    if found is None:
        fix = f"gcloud compute disks create {disk.name} --zone={disk.zone} --size=500GB --project={config.project}"
        return [_told("data disk", FAIL, f"{disk.name} in {disk.zone}: not there", "gce_data_disk names nothing", fix)]
    used = ", ".join(str(user).rpartition("/")[2] for user in found.get("users") or ())
    fact = f"{disk.name} in {disk.zone}, {found.get('sizeGb')} GB" + (f", with {used}" if used else "")
    return [_told("data disk", OK, fact)]


def _machine(shape: Shape, zone: str, read: Read) -> Mapping[str, Any] | None:
    """None: the zone does not have the machine, or not its cards."""
    machine = _maybe(read, f"zones/{zone}/machineTypes/{shape.machine_type}", fields="name,accelerators")
    if machine is None or not shape.gpu_type:
        return machine
    card = _maybe(read, f"zones/{zone}/acceleratorTypes/{shape.gpu_type}", fields="name")
    return None if card is None else machine


def _cards(shape: Shape, machine: Mapping[str, Any]) -> int:
    own = sum(int(one.get("guestAcceleratorCount", 0)) for one in machine.get("accelerators") or ())
    return shape.gpus if shape.gpu_type else own


def _zones(config: GceConfig) -> tuple[str, ...]:
    return config.zones if config.data_disk is None else (config.data_disk.zone,)


def _metric(card: str) -> str | None:
    """nvidia-tesla-t4 -> NVIDIA_T4_GPUS, the name of its quota; None where cards have no quota of that kind."""
    if not card:
        return None
    return card.replace("-tesla-", "-").upper().replace("-", "_") + "_GPUS"


def _limits(facts: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """metric -> (limit, usage)."""
    return {
        quota["metric"]: (float(quota.get("limit", 0)), float(quota.get("usage", 0)))
        for quota in facts.get("quotas") or ()
        if "metric" in quota
    }


def _maybe(read: Read, path: str, **query: str) -> Mapping[str, Any] | None:
    """None: there is no such thing."""
    try:
        return read(path, **query)
    except ApiError as error:
        if error.missing:
            return None
        raise


def _list(what: str, config: GceConfig) -> str:
    return f"gcloud compute {what} list --project={config.project}"


def _unread(name: str, error: ApiError) -> Finding:
    return _told(name, WARN, "not read", str(error), "see the lines above; then ask again")


def _told(name: str, result: str, fact: str, cause: str = "", fix: str = "") -> Finding:
    return Finding(name, result, fact, cause, fix, group="google")
