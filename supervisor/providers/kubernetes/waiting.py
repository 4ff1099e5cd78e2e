"""Why a pod is not there yet, or does not begin: by its conditions, by events, and by the nodes of its pool. Pure.

Sources: "Assigning Pods to Nodes", "Schedule GPUs", "Resource Quotas"; the texts of the scheduler (`0/5 nodes are
available: …`), of the Job controller (`Error creating: …`) and of the attach controller, Kubernetes 1.29 to 1.37.

A wait that ends by itself is free. A wait that only a change of the settings or of the cluster can end has a cause,
and ends the try; where the same text also comes for a short time, it counts only after it has lasted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from supervisor.domain.causes import Cause
from supervisor.ports.provider import LaunchFailed, LaunchRejected, QuotaExceeded
from supervisor.providers.kubernetes.api import own, rows
from supervisor.providers.kubernetes.states import has_any, short

BUSY_S = 600.0  # a volume may be held by a node that failed; then a person must look
SETTLE_S = 60.0  # what is created beside the Job may be late
NODE_S = 300.0  # a new node gets its GPUs from the device plugin after minutes
NOT_CREATED = "its Secret is not created yet"
TEMPORARY_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeletedByClusterAutoscaler")
REFUSING = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Wait:
    """`cause` None: it may end by itself. `after_s`: the cause counts when the same wait has lasted so long. `of_run`:
    the run's own spec is at fault."""

    text: str
    cause: Cause | None = None
    after_s: float = 0.0
    of_run: bool = False


@dataclass(frozen=True, slots=True)
class Pool:
    """The nodes of a placement, where they may be read. `nodes`: how many have its labels; `gpus`: of all of them,
    allocatable; `taints`: those that keep the pod from every one of them."""

    nodes: int
    gpus: int
    taints: tuple[str, ...] = ()


class NoGpu(LaunchFailed):
    """No node of the pool has a GPU to give."""

    cause = Cause.GPU_UNAVAILABLE


def refusal(wait: Wait) -> LaunchFailed:
    """Of a wait with a cause."""
    if wait.cause is Cause.QUOTA:
        return QuotaExceeded(wait.text, "project")  # of the namespace: of all pools
    if wait.cause is Cause.GPU_UNAVAILABLE:
        return NoGpu(wait.text)
    refused = LaunchRejected(wait.text)
    refused.of_run = wait.of_run
    return refused


# --- a Job without a pod ----------------------------------------------------------------------------------------------

_QUOTA_WORDS = ("exceeded quota", "exceeds quota")
_PASSING = ("timeout", "timed out", "try again", "connection", "internal error", "failed calling webhook", "conflict")


def creation_refused(message: str) -> Wait:
    """By the API, for the Job or for its pod. `message`: its text."""
    if has_any(message, _QUOTA_WORDS):
        return Wait(f"a quota of the namespace is used up: {short(message)}", Cause.QUOTA)
    if has_any(message, _PASSING):
        return Wait(f"its pod could not be created yet: {short(message)}")
    return Wait(f"its pod is refused: {short(message)}", Cause.LAUNCH_REJECTED)


def without_pod(events: Iterable[Mapping[str, Any]]) -> Wait:
    """`events`: of the Job."""
    failed = newest(events, "FailedCreate")
    return Wait("its pod is not created yet") if failed is None else creation_refused(str(failed.get("message") or ""))


# --- a pod without a node ---------------------------------------------------------------------------------------------


def unscheduled(pod: Mapping[str, Any], resource: str, pool: Pool | None) -> Wait:
    """`resource`: of the GPUs. `pool`: None = the nodes cannot be read."""
    row = next((row for row in rows(pod, "status", "conditions") if row.get("type") == "PodScheduled"), None)
    if row is None or row.get("status") == "True":
        return Wait("the scheduler has not looked at it yet")
    reason, message = str(row.get("reason") or ""), str(row.get("message") or "").partition(" preemption:")[0]
    if reason == "SchedulingGated":
        return Wait("a scheduling gate holds it")
    shown = short(message) or reason or "it waits for a node"
    if re.search(r'persistentvolumeclaim "[^"]*" not found', message):
        return Wait(f"{shown}: make the claim, or change kubernetes_claim", Cause.LAUNCH_REJECTED)
    if pool is not None and pool.nodes:
        if pool.taints:
            taints = ", ".join(pool.taints)
            text = f"every node of the pool has a taint that the pod does not tolerate ({taints})"
            return Wait(f"{text}: set kubernetes_tolerations", Cause.LAUNCH_REJECTED, NODE_S)
        if f"Insufficient {resource}" in message and not pool.gpus:
            text = f"no node of the pool has {resource} to give: is its device plugin running? ({shown})"
            return Wait(text, Cause.GPU_UNAVAILABLE, NODE_S)
    return Wait(shown)


def pool_of(
    nodes: Iterable[Mapping[str, Any]],
    labels: Mapping[str, str],
    tolerations: Sequence[Mapping[str, str]],
    resource: str,
) -> Pool:
    """`labels`: of the nodes for a placement."""
    here = [node for node in nodes if labels.items() <= (own(node, "metadata", "labels") or {}).items()]
    gpus = sum(_count(own(node, "status", "allocatable", resource)) for node in here)
    refused = [_refusing(node, tolerations) for node in here]
    taints = dict.fromkeys(taint for each in refused for taint in each) if refused and all(refused) else {}
    return Pool(len(here), gpus, tuple(taints))


def _refusing(node: Mapping[str, Any], tolerations: Sequence[Mapping[str, str]]) -> list[str]:
    """Lasting taints that keep the pod away."""
    return [
        f"{taint.get('key')}={taint.get('value') or ''}:{taint.get('effect')}".replace("=:", ":")
        for taint in rows(node, "spec", "taints")
        if taint.get("effect") in REFUSING
        and not str(taint.get("key")).startswith(TEMPORARY_TAINTS)
        and not any(_tolerates(each, taint) for each in tolerations)
    ]


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, Any]) -> bool:
    if toleration["key"] != taint.get("key") or toleration.get("effect", taint.get("effect")) != taint.get("effect"):
        return False
    return toleration["operator"] == "Exists" or toleration.get("value", "") == (taint.get("value") or "")


def _count(quantity: object) -> int:
    """Of GPUs: a whole number, as a text."""
    text = str(quantity or "0")
    return int(text) if text.isdigit() else 0


# --- a pod on its node, before its volumes are there ------------------------------------------------------------------

_MULTI_ATTACH = "Multi-Attach"
_MISSING_SECRET = re.compile(r'secret "(?P<name>[^"]+)" not found|references non-existent secret key: (?P<key>\S+)')


def without_volumes(pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]], own_secret: str) -> Wait:
    """`events`: of the pod. `own_secret`: the one that the launch makes beside the Job, perhaps later."""
    attach = newest(events, "FailedAttachVolume")
    if attach is not None and _MULTI_ATTACH in str(attach.get("message")):
        message = short(attach.get("message"))
        text = f"volume busy: {message}. Another node still holds it: delete that node's VolumeAttachment (kubectl get "
        return Wait(text + "volumeattachments), or use a claim with ReadWriteMany", Cause.LAUNCH_REJECTED, BUSY_S)
    mount = newest(events, "FailedMount")
    if mount is not None:
        return _unmounted(str(mount.get("message") or ""), own_secret)
    failed = attach or newest(events, "FailedCreatePodSandBox")
    return Wait("it has a node, and its volumes are on their way" if failed is None else short(failed.get("message")))


def _unmounted(message: str, own_secret: str) -> Wait:
    missing = _MISSING_SECRET.search(message)
    if missing is None:
        return Wait(short(message))
    if missing["name"] == own_secret:
        return Wait(NOT_CREATED)
    text = f"a secret of the run cannot be read in the pod: {short(message)}"
    return Wait(text, Cause.LAUNCH_REJECTED, SETTLE_S, of_run=True)


def newest(events: Iterable[Mapping[str, Any]], reason: str) -> Mapping[str, Any] | None:
    """The last event with this reason; None = there is none."""
    of_reason = [event for event in events if event.get("reason") == reason]
    return max(of_reason, key=event_time, default=None)


def event_time(event: Mapping[str, Any]) -> str:
    """As RFC 3339, which sorts as a text; "" = not known."""
    series = own(event, "series", "lastObservedTime")
    return str(series or event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or "")
