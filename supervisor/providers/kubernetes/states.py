"""What Kubernetes' words mean for a machine that has begun: phases, conditions and reasons of its pod and of its Job.

Sources: "Pod Lifecycle", "Disruptions" (Pod disruption conditions), "Jobs" (Job termination, Pod failure policy),
"Node-pressure Eviction", and the texts of the kubelet, Kubernetes 1.29 to 1.37. A phase that is not in the table is
unknown: nothing is concluded from it. A pod that ended by its own exit has no record: the baton and the agent's last
beat say how the work ended.

A condition DisruptionTarget says that the platform ends the pod, whatever its reason is. One without it, that is being
deleted while its Job stands, was deleted by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineState
from supervisor.providers.kubernetes.api import own, rows

ASKED, STARTING, UP = MachineState.ASKED, MachineState.STARTING, MachineState.UP
ENDING, ENDED = MachineState.ENDING, MachineState.ENDED
TEXT_CHARS = 240


class UnknownState(Exception):
    """A word that this version does not know, or a state that nobody knows. The text has it."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """`cause`: of the record of an end; None = it has not ended, or by its own exit. Of a machine that is UP: why it
    may be lost."""

    state: MachineState
    cause: Cause | None = None
    text: str = ""


PHASES: Mapping[str, MachineState] = {"Pending": STARTING, "Running": UP, "Succeeded": ENDED, "Failed": ENDED}
# Reasons of the condition DisruptionTarget.
DISRUPTIONS: Mapping[str, tuple[Cause, str]] = {
    "PreemptionByScheduler": (Cause.PREEMPTED, "a pod with a higher priority took its place"),
    "EvictionByEvictionAPI": (Cause.PREEMPTED, "it was evicted, such as by a drain of its node"),
    "TerminationByKubelet": (Cause.PREEMPTED, "its node ended it, because it shuts down or needs the place"),
    "DeletionByTaintManager": (
        Cause.HOST_ERROR,
        "its node is not ready, or got a taint that the pod does not tolerate",
    ),
    "DeletionByPodGC": (Cause.HOST_ERROR, "its node does not exist any more"),
}
# Reasons of a pod that has failed, beside its containers. A reason that begins with OutOf has its own rule.
FAILURES: Mapping[str, tuple[Cause, str]] = {
    "DeadlineExceeded": (Cause.TIME_LIMIT, "it reached its time limit"),
    "Preempting": (Cause.PREEMPTED, "its node needed the place for a critical pod"),
    "Terminated": (Cause.PREEMPTED, "its node shut down"),
    "NodeShutdown": (Cause.PREEMPTED, "its node shut down"),
    "Shutdown": (Cause.PREEMPTED, "its node shut down"),
    "NodeAffinity": (Cause.HOST_ERROR, "its node does not fit it any more"),
    "NodeLost": (Cause.HOST_ERROR, "its node was lost"),
    "UnexpectedAdmissionError": (Cause.HOST_ERROR, "its node refused it"),
}
# Reasons of the condition Failed, or FailureTarget, of a Job.
JOB_FAILURES: Mapping[str, tuple[Cause, str]] = {
    "DeadlineExceeded": (Cause.TIME_LIMIT, "the Job reached its time limit")
}
DISK_WORDS = (
    "ephemeral-storage", "ephemeral storage", "ephemeral local storage", "emptydir", "inodes", "imagefs", "nodefs",
)  # fmt: skip
GPU_WORDS = ("nvidia-container", "nvml", "unhealthy devices", "no healthy devices", "could not select device driver")
SHELL_WORDS = ("executable file not found", "no such file or directory", "exec format error", "permission denied")
# Exit codes of start.sh, and of the agent's archive.
NO_PYTHON = {4: "the image's Python is older than 3.8", 6: "the image has no Python 3.8 or newer"}
SHM = "shm"  # a volume of objects.py, in memory


def short(text: object) -> str:
    """A foreign text in one line."""
    words = " ".join(str(text or "").split())
    return words if len(words) <= TEXT_CHARS else f"{words[: TEXT_CHARS - 1]}…"


def condition(item: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """The condition of this type that holds. None = it does not, or is not there."""
    for row in rows(item, "status", "conditions"):
        if row.get("type") == kind and row.get("status") == "True":
            return row
    return None


# --- the pod ----------------------------------------------------------------------------------------------------------


def pod_meaning(pod: Mapping[str, Any]) -> Meaning:
    """Of a pod whose Job stands. Raises UnknownState."""
    phase, reason = str(own(pod, "status", "phase") or ""), str(own(pod, "status", "reason") or "")
    if phase not in PHASES:
        raise UnknownState(f"Kubernetes says {phase or 'nothing'!r} about its phase")
    state = PHASES[phase]
    deleted = own(pod, "metadata", "deletionTimestamp") is not None
    if state is not ENDED and reason == "NodeLost":
        raise UnknownState("its node does not respond")
    if state is ENDED:
        cause, text = end_of(pod)
        return Meaning(ENDED, cause, text)
    disruption = condition(pod, "DisruptionTarget")
    if disruption is not None and deleted:
        return Meaning(ENDING, *disrupted(disruption))
    if deleted:
        return Meaning(ENDING, Cause.MACHINE_DELETED, "its pod was deleted, and its Job was not")
    if state is not UP:
        return container_meaning(pod)
    return Meaning(UP, Cause.HOST_ERROR, "its node is not ready") if _is_on_silent_node(pod) else Meaning(UP)


def _is_on_silent_node(pod: Mapping[str, Any]) -> bool:
    """Its containers are ready by the last word of its node, and the node controller says that the pod is not."""
    ready = next((row for row in rows(pod, "status", "conditions") if row.get("type") == "Ready"), None)
    return ready is not None and ready.get("status") == "False" and condition(pod, "ContainersReady") is not None


def end_of(pod: Mapping[str, Any]) -> tuple[Cause | None, str]:
    """Of a pod that has ended. None: by its own exit, with the text of its container."""
    reason, message = str(own(pod, "status", "reason") or ""), str(own(pod, "status", "message") or "")
    if reason == "Evicted":
        return evicted(message)
    if reason == "UnexpectedAdmissionError" and has_any(message, GPU_WORDS):
        return Cause.GPU_UNAVAILABLE, f"its node has no healthy GPU for it: {short(message)}"
    if reason.startswith("OutOf"):
        return Cause.HOST_ERROR, f"its node had no more place for it when it came: {short(message) or reason}"
    killed = _terminated(pod)
    if killed is not None and killed[0] is not None:
        return killed
    disruption = condition(pod, "DisruptionTarget")
    if disruption is not None:
        return disrupted(disruption)
    if reason in FAILURES:
        cause, text = FAILURES[reason]
        return cause, f"{text} ({reason}{': ' + short(message) if message else ''})"
    if own(pod, "metadata", "deletionTimestamp") is not None:
        return Cause.MACHINE_DELETED, "its pod was deleted, and its Job was not"
    return killed or (None, short(message) or reason)


def evicted(message: str) -> tuple[Cause, str]:
    """By the kubelet, for a limit of the pod or because its node had too little left."""
    lower = message.lower()
    if f'"{SHM}"' in message:
        return Cause.HOST_OOM, f"its shared memory is full: raise kubernetes_shm ({short(message)})"
    if has_any(lower, DISK_WORDS):
        return Cause.DISK_FULL, f"it was evicted: {short(message)}. Raise kubernetes_disk, or write less to the disk"
    return Cause.HOST_ERROR, f"it was evicted by its node: {short(message) or 'no reason is given'}"


def disrupted(row: Mapping[str, Any]) -> tuple[Cause, str]:
    """By its condition DisruptionTarget. A new reason is a disruption all the same."""
    reason = str(row.get("reason") or "")
    cause, text = DISRUPTIONS.get(reason, (Cause.HOST_ERROR, "the cluster ended it"))
    message = short(row.get("message"))
    return cause, f"{text} ({reason or 'DisruptionTarget'}{': ' + message if message else ''})"


def _terminated(pod: Mapping[str, Any]) -> tuple[Cause | None, str] | None:
    """By the state of its container. None = it says nothing."""
    for row in rows(pod, "status", "containerStatuses"):
        end = own(row, "state", "terminated")
        if isinstance(end, Mapping):
            return exit_meaning(str(end.get("reason") or ""), end.get("exitCode"), str(end.get("message") or ""))
    return None


def exit_meaning(reason: str, code: object, message: str) -> tuple[Cause | None, str]:
    """Of a container that has ended. Since 1.28 an OOM kills all of it, the agent too."""
    text = f"{reason or 'ended'}, exit {code}" + (f": {short(message)}" if message else "")
    if reason == "OOMKilled":
        return Cause.HOST_OOM, "it needed more than its memory limit: raise kubernetes_memory, or use less"
    if reason in ("StartError", "ContainerCannotRun"):
        return start_failure(message)
    if reason == "ContainerStatusUnknown":
        return Cause.HOST_ERROR, f"its node has lost its container ({text})"
    if isinstance(code, int) and code in NO_PYTHON:
        return Cause.IMAGE_ERROR, f"{NO_PYTHON[code]} ({text})"
    return None, text


def start_failure(message: str) -> tuple[Cause, str]:
    """A container that could not be started."""
    if has_any(message.lower(), GPU_WORDS):
        return Cause.GPU_UNAVAILABLE, f"its node cannot give it a GPU: {short(message)}"
    if has_any(message.lower(), SHELL_WORDS):
        return Cause.IMAGE_ERROR, f"the image cannot be run, which needs /bin/sh: {short(message)}"
    return Cause.HOST_ERROR, f"its container could not be started: {short(message)}"


def has_any(text: str, words: Iterable[str]) -> bool:
    return any(word in text.lower() for word in words)


# --- a pod on its node, before its container runs ---------------------------------------------------------------------

DENIED = (
    "not found", "manifest unknown", "name unknown", "does not exist", "unauthorized", "denied", "forbidden",
    "authorization failed", "no match for platform", "no basic auth credentials", "invalid reference",
)  # fmt: skip
LATER = re.compile(r"timeout|timed out|too ?many ?requests|\b429\b|connection re|no such host|\beof\b", re.IGNORECASE)
# References of images and addresses: any word may be in a name, and 429 in a digest.
_REFERENCES = re.compile(r'"[^"]*"|\S*(?:/|@sha256:)\S*')
BAD_IMAGES = frozenset({"InvalidImageName", "ErrImageNeverPull", "SignatureValidationFailed"})
PULLS = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError"})
CONFIG_ERRORS = frozenset({"CreateContainerConfigError"})
START_ERRORS = frozenset({"CreateContainerError", "RunContainerError"})


def container_meaning(pod: Mapping[str, Any]) -> Meaning:
    """By the reason why its container waits. A reason that nobody knows is shown, and is no end."""
    for row in rows(pod, "status", "containerStatuses"):
        waits = own(row, "state", "waiting")
        if isinstance(waits, Mapping):
            reason, message = str(waits.get("reason") or ""), str(waits.get("message") or "")
            return waiting_meaning(reason, message)
    return Meaning(STARTING)


def waiting_meaning(reason: str, message: str) -> Meaning:
    shown = f"{reason}: {short(message)}" if message else reason
    if reason in BAD_IMAGES or (reason in PULLS and image_refused(message)):
        return Meaning(ENDING, Cause.IMAGE_ERROR, f"its image cannot be pulled ({shown})")
    if reason in PULLS:
        return Meaning(STARTING, text=f"its image cannot be pulled yet ({shown})")
    if reason in CONFIG_ERRORS and not LATER.search(message):
        return Meaning(ENDING, Cause.IMAGE_ERROR, f"its container cannot be made as configured ({shown})")
    if reason in START_ERRORS:
        cause, text = start_failure(message)
        if cause is Cause.HOST_ERROR:
            return Meaning(STARTING, text=f"its container cannot be started yet ({shown})")
        return Meaning(ENDING, cause, f"{text} ({reason})")
    return Meaning(STARTING, text="" if reason in ("", "ContainerCreating", "PodInitializing") else shown)


def image_refused(message: str) -> bool:
    """The registry says for certain that this image cannot be had: it does not exist, or access is denied."""
    words = _REFERENCES.sub(" ", message)
    return has_any(words, DENIED) and not LATER.search(words)


# --- the Job ----------------------------------------------------------------------------------------------------------


def job_end(job: Mapping[str, Any]) -> Meaning | None:
    """None = it has not ended. By its conditions alone: its pod may be gone."""
    failed = condition(job, "Failed")
    target = failed or condition(job, "FailureTarget")
    if target is not None:
        cause, text = _job_failure(str(target.get("reason") or ""), str(target.get("message") or ""))
        return Meaning(ENDED if failed is not None else ENDING, cause, text)
    if condition(job, "Complete") is not None:
        return Meaning(ENDED, text="its agent has ended")
    if condition(job, "SuccessCriteriaMet") is not None:
        return Meaning(ENDING, text="its agent has ended")
    return None


_POLICY = re.compile(r"has condition DisruptionTarget\b")


def _job_failure(reason: str, message: str) -> tuple[Cause | None, str]:
    if reason in JOB_FAILURES:
        cause, text = JOB_FAILURES[reason]
        return cause, f"{text} ({reason})"
    if reason == "PodFailurePolicy" and _POLICY.search(message):
        return Cause.PREEMPTED, f"the cluster ended its pod ({short(message)})"
    return None, f"{reason}: {short(message)}" if message else reason
