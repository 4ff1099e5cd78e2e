"""The body of instances.insert, made from a launch request by a pure function: a repeat sends the same bytes.

The start-up script is a fixed text, the same for every machine: three files of this package, which bash runs as root on
each boot (see startup.sh). Nothing of a request is written into it: the values are in other metadata keys. Field names
and allowed values: Google's discovery document of compute v1 (the tests check each body against it).

The preview of a launch shows the body of the same function, with its packed metadata readable. It sends nothing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from supervisor.contract.identifiers import label_value, parse_launch_id
from supervisor.domain.machines import (
    ATTEMPT_LABEL,
    LAUNCH_LABEL,
    OLD_RUN_LABEL,
    OLD_RUNNER_LABEL,
    RUN_LABEL,
    RUNNER_LABEL,
    SUPERVISOR_LABEL,
)
from supervisor.ports.provider import LaunchRejected, LaunchRequest, SecretRefused
from supervisor.providers.gce.config import SCOPE, SCOPES, STORAGE_SCOPE, GceConfig, NewDisk, Shape, region_of
from supervisor.providers.gce.prices.machine_facts import boot_disk_type
from supervisor.providers.gce.settings import NOTICES_S

PARTS = ("startup.sh", "startup_machine.sh", "startup_container.sh")
VALUE_MAX = 262_144  # bytes of one metadata value, by the discovery document
TOTAL_MAX = 524_288  # bytes of all keys and values must be less than this
RUN_S = (30, 120 * 86400)  # the shortest and the longest maxRunDuration that Google accepts
# Of a flex-start machine: docs.cloud.google.com/ai-hypercomputer/docs/create/create-vm, ten minutes to seven days.
FLEX_RUN_S = (600, 7 * 86400)
OWN_S = 30.0  # from a preemption without any notice to its end, at best
FIRST_SEQUENCE = 100  # the start-up script's own beats have the numbers 1 to 99
NAME_MAX = 63  # characters of a name
SECRET_FORM = "gcp:projects/PROJECT/secrets/NAME/versions/NUMBER (or latest)"  # noqa: S105
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_SECRET = re.compile(r"gcp:projects/[a-z0-9:.-]+/secrets/[A-Za-z0-9_-]{1,255}/versions/([1-9][0-9]*|latest)\Z")


class RefusedForRun(LaunchRejected):
    """The run's own spec cannot be launched here: without an image, or too long for the metadata of a machine."""

    of_run = True


@dataclass(frozen=True, slots=True)
class Payload:
    """The same for every machine: the start-up script, and the agent's name in the object store."""

    startup_script: str
    agent_sha256: str


def payload_of(agent: Path | None) -> tuple[Payload, bytes]:
    """The payload, and the content of the agent's zipapp. LaunchRejected for an incomplete installation."""
    if agent is None:
        raise LaunchRejected("this installation has no agent; `make agent` builds it")
    try:
        content = agent.read_bytes()
        return Payload(startup_script(), hashlib.sha256(content).hexdigest()), content
    except OSError as error:
        raise LaunchRejected(f"this installation is not complete: {error}") from error


def startup_script() -> str:
    """The value of the metadata key `startup-script`: about 18 KB, and a value can have 256 KiB."""
    folder = resources.files(__package__)
    return "\n".join(folder.joinpath(name).read_text("utf-8") for name in PARTS)


def build(config: GceConfig, request: LaunchRequest, payload: Payload) -> dict[str, Any]:
    """The instance. LaunchRejected for values that Google refuses anyway."""
    place, shape = request.placement, config.shapes[request.placement.shape]
    if not _NAME.match(request.name):
        raise LaunchRejected(f"{request.name} is not valid as the name of a machine: set another machine_prefix")
    if not request.image:
        raise RefusedForRun("on Google Cloud a command runs in an image, and the run has none")
    items = _metadata(config, request, shape, payload)
    _check_sizes(items)
    body: dict[str, Any] = {
        "name": request.name,
        "machineType": f"zones/{place.zone}/machineTypes/{shape.machine_type}",
        "labels": labels(config, request),
        "scheduling": _scheduling(config, request),
        "disks": _disks(config, request, shape),
        "networkInterfaces": [_network(config, region_of(place.zone))],
        "serviceAccounts": [{"email": config.service_account, "scopes": scopes(config, bool(request.secrets))}],
        "metadata": {"items": [{"key": key, "value": value} for key, value in items.items()]},
    }
    if place.flex:
        # docs.cloud.google.com/ai-hypercomputer/docs/create/create-vm: 90 s to 2 h, and no reservation. Its example has
        # the duration in `scheduling`; the discovery document of compute v1 has it in `params`, for this method only.
        body["params"] = {"requestValidForDuration": {"seconds": str(int(request.waits_s))}}
        body["reservationAffinity"] = {"consumeReservationType": "NO_RESERVATION"}
    if shape.gpu_type:
        kind = f"projects/{config.project}/zones/{place.zone}/acceleratorTypes/{shape.gpu_type}"
        body["guestAccelerators"] = [{"acceleratorType": kind, "acceleratorCount": shape.gpus}]
    if config.min_cpu_platform:
        body["minCpuPlatform"] = config.min_cpu_platform
    if config.shielded:
        # Google signs the driver that cos-extensions installs, so it loads with secure boot too.
        body["shieldedInstanceConfig"] = {
            "enableSecureBoot": True,
            "enableVtpm": True,
            "enableIntegrityMonitoring": True,
        }
    return body


def labels(config: GceConfig, request: LaunchRequest) -> dict[str, str]:
    """A label has no dots: the launch id 1.2.3 is written 1-2-3."""
    attempt = parse_launch_id(request.launch_id)[1]
    runner, run = label_value(config.machine_prefix), label_value(request.run_id)
    return {
        RUNNER_LABEL: runner,
        SUPERVISOR_LABEL: label_value(request.supervisor_id),
        RUN_LABEL: run,
        ATTEMPT_LABEL: str(attempt),
        LAUNCH_LABEL: request.launch_id.replace(".", "-"),
        # Never the older runner's own label as its value: its cleanup deletes machines by that value.
        OLD_RUNNER_LABEL: runner,
        OLD_RUN_LABEL: run,
    }


def scopes(config: GceConfig, has_secrets: bool) -> list[str]:
    """What the token of a machine is good for."""
    others = (f"{SCOPES}{name}" for name in config.machine_scopes)
    return [SCOPE] if has_secrets else list(dict.fromkeys((STORAGE_SCOPE, *others)))


def bucket_and_prefix(store_url: str) -> tuple[str, str]:
    """gs://bucket/some/where -> ("bucket", "some/where/")."""
    bucket, _, prefix = store_url.removeprefix("gs://").partition("/")
    prefix = prefix.strip("/")
    return bucket, f"{prefix}/" if prefix else ""


def secret_problem(reference: str) -> str:
    """Why a machine cannot read this secret; "" = the form is correct. The machine reads it with its own account: no
    value passes through the supervisor, whose account does not need to read it."""
    if _SECRET.match(reference):
        return ""
    kind = reference.partition(":")[0]
    if kind in ("env", "file"):
        return f"{kind}: belongs to the supervisor's own computer; on Google Cloud write {SECRET_FORM}"
    return f"write {SECRET_FORM}"


def refuse_secrets(secrets: Mapping[str, str]) -> None:
    """SecretRefused with the first secret that no machine can read."""
    for name, reference in sorted(secrets.items()):
        problem = secret_problem(reference)
        if problem:
            raise SecretRefused(f"secret {name}: {problem}")


def _scheduling(config: GceConfig, request: LaunchRequest) -> dict[str, Any]:
    spot = request.placement.spot
    shortest, longest = FLEX_RUN_S if request.placement.flex else RUN_S
    scheduling: dict[str, Any] = {
        "provisioningModel": "FLEX_START" if request.placement.flex else "SPOT" if spot else "STANDARD",
        "instanceTerminationAction": "STOP" if request.keep else "DELETE",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "maxRunDuration": {"seconds": str(int(min(longest, max(shortest, request.machine_max_s))))},
    }
    notice_s = _notice_s(config, request)
    if notice_s:
        scheduling["preemptionNoticeDuration"] = {"seconds": str(notice_s)}
    return scheduling


def _notice_s(config: GceConfig, request: LaunchRequest) -> int:
    """Before the shutdown, which gives OWN_S at best: as in the settings, or what the run's drills ask for."""
    if not request.placement.spot:
        return 0
    return max(NOTICES_S) if request.notice_s > OWN_S else config.notice_s


def _disks(config: GceConfig, request: LaunchRequest, shape: Shape) -> list[dict[str, Any]]:
    zone = request.placement.zone
    base = f"projects/{config.project}/global/images/{request.base}"
    boot = {
        "sourceImage": base if request.base else config.boot_image,
        "diskSizeGb": str(max(config.boot_disk_gb, request.base_disk_gb)),
        "diskType": f"zones/{zone}/diskTypes/{boot_disk_type(config.boot_disk_type, shape)}",
    }
    disks: list[dict[str, Any]] = [{"boot": True, "autoDelete": True, "initializeParams": boot}]
    if config.data_disk is not None:
        source = f"projects/{config.project}/zones/{config.data_disk.zone}/disks/{config.data_disk.name}"
        disks.append(
            {
                "source": source,
                "deviceName": config.data_disk.device_name,
                "mode": "READ_ONLY" if config.data_disk.read_only else "READ_WRITE",
                "boot": False,
                "autoDelete": False,
            }
        )
    if config.new_disk is not None:
        disks.append(_new_disk(config.new_disk, request, shape))
    return disks


def _new_disk(disk: NewDisk, request: LaunchRequest, shape: Shape) -> dict[str, Any]:
    """Deleted with its machine, so that no disk is left."""
    kind = boot_disk_type(disk.kind, shape)  # a series that cannot boot from such a disk cannot attach it either
    blank = {
        "diskName": request.name[: NAME_MAX - len("-data")] + "-data",
        "diskSizeGb": str(disk.gb),
        "diskType": f"zones/{request.placement.zone}/diskTypes/{kind}",
    }
    return {
        "initializeParams": blank,
        "deviceName": disk.device_name,
        "mode": "READ_WRITE",
        "boot": False,
        "autoDelete": True,
    }


def _network(config: GceConfig, region: str) -> dict[str, Any]:
    """A network or subnet with a slash is already a path, such as that of a shared VPC's host project."""
    interface: dict[str, Any] = {}
    if config.subnet:
        below = f"projects/{config.project}/regions/{region}/subnetworks/{config.subnet}"
        interface["subnetwork"] = config.subnet if "/" in config.subnet else below
    else:
        below = f"projects/{config.project}/global/networks/{config.network}"
        interface["network"] = config.network if "/" in config.network else below
    if config.external_ip:
        interface["accessConfigs"] = [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}]
    return interface


def _metadata(config: GceConfig, request: LaunchRequest, shape: Shape, payload: Payload) -> dict[str, str]:
    bucket, prefix = bucket_and_prefix(config.store_url)
    command, job = _job(config, request, shape)
    items = {
        "startup-script": payload.startup_script,
        "spot-run-id": request.run_id,
        "spot-attempt": str(parse_launch_id(request.launch_id)[1]),
        "spot-launch-id": request.launch_id,
        "spot-nonce": str(request.job.get("nonce") or ""),
        "spot-bucket": bucket,
        "spot-prefix": prefix,
        "spot-image-ref": request.image,
        "spot-job-command": base64.b64encode(command.encode()).decode(),
        # No time in the gzip header: the same request gives the same bytes.
        "spot-job": base64.b64encode(gzip.compress(json.dumps(job).encode(), mtime=0)).decode(),
        "spot-agent-sha256": payload.agent_sha256,
        "spot-gpus": str(shape.gpus),
        "spot-gpu-timeout-sec": str(int(config.gpu_timeout_s)),
        "spot-gpu-driver-version": config.gpu_driver_version,
        "spot-shm-size": config.shm_size,
    }
    if config.serial_logging:
        # https://cloud.google.com/compute/docs/troubleshooting/viewing-serial-port-output
        items["serial-port-logging-enable"] = "true"
    if request.base:
        items["spot-base"] = "true"
    if request.prepares:
        items["spot-prepares"] = request.prepares
    if request.keep:
        items["spot-keep"] = "true"
    if request.job.get("conda_env"):
        items["spot-conda-env"] = str(request.job["conda_env"])
    if config.storage_endpoint:
        items["spot-storage-endpoint"] = config.storage_endpoint
    disk = config.data_disk or config.new_disk
    if disk is not None:
        items["spot-data-disk-device-name"] = disk.device_name
        items["spot-data-disk-mount-path"] = disk.mount
        items["spot-data-disk-fs-type"] = disk.fs
        items["spot-data-disk-read-only"] = "true" if disk.read_only else "false"
    return items


def _job(config: GceConfig, request: LaunchRequest, shape: Shape) -> tuple[str, dict[str, object]]:
    """(the command as text, the job without it): the two share the space of the metadata."""
    command = request.job.get("command", "")
    # Unescaped characters: \u4e2d takes twice the space, and an accepted command must fit.
    text = command if isinstance(command, str) else json.dumps(command, ensure_ascii=False)
    spot = request.placement.spot
    job: dict[str, object] = {name: value for name, value in request.job.items() if name != "command"}
    job |= {
        "name": request.name,
        "command_form": "shell" if isinstance(command, str) else "words",
        "in_image": True,
        "server_url": config.public_url or None,
        "server_file": None,
        "secret_refs": dict(request.secrets),
        "sequence_from": FIRST_SEQUENCE,
        "notice_from": "gce" if spot else None,
        "notice_s": _notice_s(config, request),
        "storage_endpoint": config.storage_endpoint or None,
        "secret_manager_endpoint": config.secret_manager_endpoint or None,
        "gpus": shape.gpus,
        "image_digest": request.image.partition("@")[2] or None,
    }
    if request.placement.flex:  # the agent saves before Google deletes the machine
        job["machine_max_s"] = min(request.machine_max_s, float(FLEX_RUN_S[1]))
    return text, job


def _check_sizes(items: Mapping[str, str]) -> None:
    sizes = {key: len(value.encode()) for key, value in items.items()}
    key, size = max(sizes.items(), key=lambda item: item[1])
    names = {"spot-job-command": "the command", "spot-job": "the environment and the rest of the spec"}
    advice = "move long values into the code bundle or the image"
    if size > VALUE_MAX:
        raise RefusedForRun(
            f"{names.get(key, key)} takes {size} bytes in the machine's metadata, and {VALUE_MAX} are allowed: {advice}"
        )
    total = sum(sizes.values()) + sum(len(key) for key in sizes)
    if total >= TOTAL_MAX:
        raise RefusedForRun(
            f"the machine's metadata takes {total} bytes, and less than {TOTAL_MAX} are allowed: {advice}"
        )


def preview(config: GceConfig, agent: Path | None, request: LaunchRequest) -> Mapping[str, object]:
    """`instance`: the body of instances.insert without its metadata; `metadata`: key -> value as a machine reads it;
    `unpacked`: the packed values in readable form. Raises LaunchRejected."""
    body = build(config, request, payload_of(agent)[0])
    metadata = {item["key"]: item["value"] for item in body.pop("metadata")["items"]}
    return {
        "kind": "compute.instances.insert",
        "project": config.project,
        "zone": request.placement.zone,
        "request_id": request.request_id,
        "instance": body,
        "metadata": metadata,
        "unpacked": {
            "spot-job-command": base64.b64decode(metadata["spot-job-command"]).decode(),
            "spot-job": json.loads(gzip.decompress(base64.b64decode(metadata["spot-job"]))),
        },
    }
