"""The objects of a machine: its Job, the Secret of its job, and the ConfigMap of the agent. Pure: a repeated launch
makes the same objects.

The Job starts one pod, once. Its script is a file of the ConfigMap, the same for every machine; what a user wrote is in
the Secret, which belongs to the Job and goes with it. Field names: the API reference of Kubernetes 1.29 and newer (the
tests check each object against the schemas of several versions).

A pod has requests equal to its limits, so its class is Guaranteed where a shape has CPUs and memory. A failure with the
condition DisruptionTarget gets a reason of its own in the Job, which is still there when the pod is gone.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from supervisor.contract.identifiers import label_value, parse_launch_id
from supervisor.domain.machines import ATTEMPT_LABEL, LAUNCH_LABEL, RUN_LABEL, RUNNER_LABEL, SUPERVISOR_LABEL
from supervisor.domain.policies import leaving_s
from supervisor.ports.provider import LaunchRejected, LaunchRequest, SecretRefused
from supervisor.providers.kubernetes.settings import KubernetesSettings, labels_of, toleration

Json = dict[str, Any]
SCRIPT = Path(__file__).with_name("start.sh")
MACHINE_LABEL, ZONE_LABEL, SHAPE_LABEL = "spot-machine", "spot-zone", "spot-shape"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
CONTAINER = "training"
MACHINES, AGENT, JOB, SHM = "/spot/machines", "/spot/agent", "/spot/job", "/dev/shm"  # noqa: S108 - mounts of the pod
BEFORE_START_S = 1800.0  # a pod may wait so long, which counts for the limit of its Job
FINISHED_S = 3600  # an ended Job is kept for people, with its log
GRACE_S, MOST_GRACE_S = 120.0, 900.0
NOTICE_FROM, KILL_MARGIN_S = "term", 5.0
MOST_BYTES = 1_000_000  # of a Secret or a ConfigMap: the API takes 1 MiB
RUN_S = (60, 365 * 86400)
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
_SECRET = re.compile(r"k8s:(?P<name>[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)/(?P<key>[A-Za-z0-9._-]{1,253})\Z")
# An autoscaler that makes a pool smaller leaves the nodes of these pods alone.
KEEP_NODE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}


class RefusedForRun(LaunchRejected):
    """The run's own spec cannot be launched here: without an image, or too long for a Secret."""

    of_run = True


@dataclass(frozen=True, slots=True)
class Agent:
    """`name`: of its ConfigMap, by the hash of its content. `archive`: the zipapp. `script`: the first process."""

    name: str
    archive: bytes
    script: str


def agent_of(path: Path) -> Agent:
    """LaunchRejected for an incomplete installation."""
    try:
        archive, script = path.read_bytes(), SCRIPT.read_text(encoding="utf-8")
    except OSError as error:
        raise LaunchRejected(f"this installation is not complete: {error}") from error
    return Agent(_agent_name(archive, script), archive, script)


@lru_cache(4)
def _agent_name(archive: bytes, script: str) -> str:
    return f"spot-agent-{hashlib.sha256(archive + script.encode()).hexdigest()[:16]}"


def config_map(agent: Agent, namespace: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": agent.name, "namespace": namespace, "labels": {RUNNER_LABEL: "agent"}},
        "immutable": True,
        "data": {"start.sh": agent.script},
        "binaryData": {"agent.pyz": base64.b64encode(agent.archive).decode()},
    }


def labels(request: LaunchRequest, prefix: str) -> dict[str, str]:
    """Of the Job and of its pod. Raises LaunchRejected for a value that no label can have."""
    values = {
        RUNNER_LABEL: label_value(prefix),
        MACHINE_LABEL: request.name,
        SUPERVISOR_LABEL: request.supervisor_id,
        RUN_LABEL: request.run_id,
        ATTEMPT_LABEL: str(parse_launch_id(request.launch_id)[1]),
        LAUNCH_LABEL: request.launch_id,
        ZONE_LABEL: request.placement.zone,
        SHAPE_LABEL: request.placement.shape,
    }
    for name, value in values.items():
        if not _LABEL.match(value):
            raise LaunchRejected(f"{value!r} cannot be the label {name}")
    return values


def job(s: KubernetesSettings, request: LaunchRequest, namespace: str, agent: Agent, prefix: str) -> Json:
    """LaunchRejected for values that the API refuses anyway."""
    if not _NAME.match(request.name):
        raise LaunchRejected(f"{request.name} is not valid as the name of a Job: set another machine_prefix")
    if not request.image:
        raise RefusedForRun("in a pod a command runs in an image, and the run has none")
    own = labels(request, prefix)
    queue = {QUEUE_LABEL: s.kubernetes_queue} if s.kubernetes_queue else {}
    shortest, longest = RUN_S
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": request.name, "namespace": namespace, "labels": {**own, **queue}},
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(
                min(longest, max(shortest, math.ceil(request.machine_max_s + BEFORE_START_S)))
            ),
            "ttlSecondsAfterFinished": FINISHED_S,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            **({"suspend": True} if queue else {}),
            "template": {"metadata": {"labels": own, "annotations": KEEP_NODE}, "spec": _pod(s, request, agent)},
        },
    }


def _pod(s: KubernetesSettings, request: LaunchRequest, agent: Agent) -> Json:
    place = request.placement
    spec: Json = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_s(s, request.checkpoint_s),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": selector(s, place.zone, place.shape),
        "affinity": _away_from(request.avoid),
        "tolerations": [toleration(word) for word in s.kubernetes_tolerations],
        "imagePullSecrets": [{"name": name} for name in s.kubernetes_pull_secrets],
        "serviceAccountName": s.kubernetes_service_account,
        "priorityClassName": s.kubernetes_priority_class,
        "containers": [_container(s, request)],
        "volumes": _volumes(s, request, agent),
    }
    return {name: value for name, value in spec.items() if value not in ("", [], {})}


def _away_from(nodes: tuple[str, ...]) -> Json:
    """A field of a node is compared with one name at a time. {} = any node."""
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    return {"nodeAffinity": required} if fields else {}


def selector(s: KubernetesSettings, zone: str, shape: str) -> dict[str, str]:
    """The labels of the nodes for this placement."""
    return {**labels_of(s.kubernetes_pools.get(zone, "")), **labels_of(s.kubernetes_nodes.get(shape, ""))}


def grace_s(s: KubernetesSettings, checkpoint_s: float | None = None) -> int:
    """From TERM to KILL: two checkpoints and a minute, where one was measured. The cluster waits so long before it can
    use the place, so there is a limit. A setting is what the nodes give, and counts as it is."""
    if s.kubernetes_grace_s is not None:
        return math.ceil(s.kubernetes_grace_s)
    return math.ceil(min(MOST_GRACE_S, max(GRACE_S, leaving_s(checkpoint_s))))


def _container(s: KubernetesSettings, request: LaunchRequest) -> Json:
    mounts: list[Json] = [
        {"name": "machine", "mountPath": MACHINES},
        {"name": "agent", "mountPath": AGENT, "readOnly": True},
        {"name": "job", "mountPath": JOB, "readOnly": True},
        {"name": "shm", "mountPath": SHM},
    ]
    if s.kubernetes_claim:
        mounts.append({"name": "claim", "mountPath": s.kubernetes_claim_mount})
    limits = resources(s, request.placement.shape)
    return {
        "name": CONTAINER,
        "image": request.image,
        "imagePullPolicy": "IfNotPresent" if "@" in request.image else "Always",  # a tag may have moved
        "command": ["/bin/sh", f"{AGENT}/start.sh"],
        "env": [
            {"name": "SPOT_MACHINE", "value": request.name},
            {"name": "SPOT_MACHINE_DIR", "value": f"{MACHINES}/{request.name}"},
            {"name": "SPOT_AGENT_DIR", "value": AGENT},
            {"name": "SPOT_JOB_DIR", "value": JOB},
            {"name": "SPOT_SECRETS_DIR", "value": f"{JOB}/secrets"},
            _of_pod("SPOT_JOB_UID", "metadata.labels['batch.kubernetes.io/controller-uid']"),
            _of_pod("SPOT_POD_UID", "metadata.uid"),
        ],
        "resources": {"limits": limits, "requests": dict(limits)},
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def resources(s: KubernetesSettings, shape: str) -> dict[str, str]:
    """Limits of the container. GPUs are whole; what a shape leaves out is the namespace's own."""
    gpus, cpus = s.kubernetes_gpus.get(shape, 0), s.kubernetes_cpus.get(shape, 0)
    each = {
        "cpu": str(cpus or ""),
        "memory": s.kubernetes_memory.get(shape, ""),
        "ephemeral-storage": s.kubernetes_disk,
        s.kubernetes_gpu_resource: str(gpus or ""),
    }
    return {name: value for name, value in each.items() if value}


def _of_pod(name: str, field: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": field}}}


def _volumes(s: KubernetesSettings, request: LaunchRequest, agent: Agent) -> list[Json]:
    """The user of the image may be any, so the files can be read by all of this one container."""
    volumes: list[Json] = [
        {"name": "machine", "emptyDir": {"sizeLimit": s.kubernetes_disk}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": s.kubernetes_shm}},
        {"name": "agent", "configMap": {"name": agent.name, "defaultMode": 0o555}},
        {"name": "job", "projected": {"defaultMode": 0o444, "sources": _sources(request)}},
    ]
    if s.kubernetes_claim:
        volumes.append({"name": "claim", "persistentVolumeClaim": {"claimName": s.kubernetes_claim}})
    return volumes


def _sources(request: LaunchRequest) -> list[Json]:
    own: list[Json] = [{"key": "job.json", "path": "job.json"}]
    foreign: list[Json] = []
    for name, reference in sorted(request.secrets.items()):
        form = _SECRET.match(reference)
        if form is None:
            own.append({"key": _key(name), "path": f"secrets/{name}"})
        else:
            item = {"key": form["key"], "path": f"secrets/{name}"}
            foreign.append({"secret": {"name": form["name"], "items": [item]}})
    return [{"secret": {"name": request.name, "items": own}}, *foreign]


def _key(name: str) -> str:
    return f"secret.{name}"


def secret_problem(reference: str) -> str:
    """Why a pod cannot have this secret; "" = the form is correct, or it is read by the supervisor."""
    if not reference.startswith("k8s:") or _SECRET.match(reference):
        return ""
    return f"{reference} is not a reference; write k8s:NAME/KEY, a key of a Secret in the namespace of the Jobs"


def is_read_here(reference: str) -> bool:
    """By the supervisor, at the launch."""
    return not reference.startswith("k8s:")


def check_secrets(request: LaunchRequest) -> None:
    """SecretRefused with the first secret that no pod can have."""
    for name, reference in sorted(request.secrets.items()):
        problem = secret_problem(reference)
        if problem:
            raise SecretRefused(f"secret {name}: {problem}")


def secret(
    request: LaunchRequest, namespace: str, *, owner_uid: str, content: Mapping[str, object], values: Mapping[str, str]
) -> Json:
    """`content`: job.json; `values`: of secrets that the supervisor has read. RefusedForRun where it is too large."""
    data = {"job.json": json.dumps(content, ensure_ascii=False), **{_key(name): text for name, text in values.items()}}
    size = sum(len(text.encode()) for text in data.values())
    if size > MOST_BYTES:
        raise RefusedForRun(
            f"the job and its secrets take {size} bytes, and a Secret of the cluster can hold {MOST_BYTES}: move long "
            "values into the code bundle or the image"
        )
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": request.name,
            "namespace": namespace,
            "labels": {MACHINE_LABEL: request.name},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": request.name, "uid": owner_uid}],
        },
        "type": "Opaque",
        "immutable": True,
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in data.items()},
    }


def job_json(s: KubernetesSettings, request: LaunchRequest, public_url: str) -> dict[str, object]:
    """What the agent reads."""
    gpus = s.kubernetes_gpus.get(request.placement.shape, 0)
    return {
        **request.job,
        "name": request.name,
        "zone": request.placement.zone,
        "supervisor_id": request.supervisor_id,
        "run_id": request.run_id,
        "launch_id": request.launch_id,
        "in_image": True,
        "server_url": public_url or None,
        "server_file": None,
        "notice_from": NOTICE_FROM,
        "notice_s": max(1.0, grace_s(s, request.checkpoint_s) - KILL_MARGIN_S),
        "gpus": gpus,
        "image_digest": request.image.partition("@")[2] or None,
    }
