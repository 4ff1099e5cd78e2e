"""What the API server fills in: defaults of Jobs and pods, and what its admission adds to a pod."""

from __future__ import annotations

import base64
from typing import Any

from tests.kubernetes.kinds import CONFIG_MAP, JOB, POD, SECRET, Kind

UID_LABEL, NAME_LABEL = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
TRACKING = "batch.kubernetes.io/job-tracking"  # a finalizer: the Job controller has not counted this pod yet
# Admission adds them to each pod: so long it stays on a node that does not answer.
DEFAULT_TOLERATIONS = tuple(
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for name in ("not-ready", "unreachable")
)


def fill(kind: Kind, resource: dict[str, Any]) -> None:
    """Of a new object, which has its uid."""
    if kind is JOB:
        _fill_job(resource)
    elif kind is POD:
        fill_pod(resource)
    elif kind is SECRET:
        resource.setdefault("type", "Opaque")
        for key, text in resource.pop("stringData", {}).items():
            resource.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
    elif kind is CONFIG_MAP:
        for field in ("data", "binaryData"):
            if not resource.get(field, True):
                del resource[field]


def _fill_job(job: dict[str, Any]) -> None:
    spec, metadata = job["spec"], job["metadata"]
    replaces = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    for name, value in {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": replaces,
        "selector": {"matchLabels": {UID_LABEL: metadata["uid"]}},
    }.items():
        spec.setdefault(name, value)
    labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    if not metadata.get("labels") and labels:
        metadata["labels"] = dict(labels)
    for prefix in ("", "batch.kubernetes.io/"):
        labels.update({f"{prefix}controller-uid": metadata["uid"], f"{prefix}job-name": metadata["name"]})
    metadata["generation"] = 1
    _fill_spec(spec["template"]["spec"])
    job["status"] = {}


def fill_pod(pod: dict[str, Any]) -> None:
    """Also what limits say of requests, and the tolerations of admission."""
    spec = pod["spec"]
    _fill_spec(spec)
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("priority", 0)
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        resources = container["resources"]
        for name, value in resources.get("limits", {}).items():
            resources.setdefault("requests", {}).setdefault(name, value)
    present = {toleration.get("key") for toleration in spec.get("tolerations", ())}
    added = [dict(extra) for extra in DEFAULT_TOLERATIONS if extra["key"] not in present]
    spec["tolerations"] = [*spec.get("tolerations", ()), *added]
    pod.setdefault("status", {"phase": "Pending", "qosClass": _quality(spec)})


def _fill_spec(spec: dict[str, Any]) -> None:
    for name, value in {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }.items():
        spec.setdefault(name, value)
    if "serviceAccountName" in spec:
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        last = container["image"].rpartition("/")[2]
        newest = "@" not in last and (":" not in last or last.endswith(":latest"))
        container.setdefault("imagePullPolicy", "Always" if newest else "IfNotPresent")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("resources", {})
    for volume in spec.get("volumes", ()):
        for source in ("secret", "configMap", "projected"):
            if source in volume:
                volume[source].setdefault("defaultMode", 0o644)


def _quality(spec: dict[str, Any]) -> str:
    parts = [container["resources"] for container in spec["containers"]]
    if not any(part.get("limits") or part.get("requests") for part in parts):
        return "BestEffort"
    exact = all(
        part.get("limits", {}).get(name) is not None and part["limits"].get(name) == part.get("requests", {}).get(name)
        for part in parts
        for name in ("cpu", "memory")
    )
    return "Guaranteed" if exact else "Burstable"
