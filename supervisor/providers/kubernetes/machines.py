"""A machine is a Job; its id is the Job's UID. Pure: from the Job, its pods and what was read beside them.

The Job starts one pod. Where a second one exists all the same, the first one is the machine: the agent of the second
finds the baton held under another id and ends. The agent's own id is `JOB.POD`, so a beat or a release may name that.

Asked for: the pod has no node, or its volumes are not there, so nothing of the image can run. Starting: its image is
being pulled. With Kueue the Job waits suspended, in a queue of the cluster; suspended again after it ran, it was
preempted, and the same Job would start another pod later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from supervisor.domain.causes import Cause
from supervisor.domain.machines import LAUNCH_LABEL, RUN_LABEL, SUPERVISOR_LABEL, Machine, MachineRecord, MachineState
from supervisor.providers.kubernetes.api import own, rows
from supervisor.providers.kubernetes.objects import MACHINE_LABEL, QUEUE_LABEL, SHAPE_LABEL, ZONE_LABEL
from supervisor.providers.kubernetes.states import Meaning, condition, job_end, pod_meaning
from supervisor.providers.kubernetes.waiting import Pool, Wait, unscheduled, without_pod, without_volumes

Json = Mapping[str, Any]
AGAIN = "the cluster has started another pod for it, and does not say why"
RAN_S = 120.0  # a Job that is suspended so long after its creation was not only created so


@dataclass(frozen=True, slots=True)
class Sighting:
    """One Job at one moment. `pods`: its own, oldest first. `events`: of the Job and of its pods, where they were read.
    `pool`: the nodes of its placement, None = not read. `has_run`: it was seen with a pod before.
    `was_released`: by this supervisor."""

    job: Json
    pods: Sequence[Json] = ()
    events: Sequence[Json] = ()
    pool: Pool | None = None
    has_run: bool = False
    was_released: bool = False

    @property
    def name(self) -> str:
        return str(own(self.job, "metadata", "name") or "")

    @property
    def uid(self) -> str:
        return str(own(self.job, "metadata", "uid") or "")

    @property
    def labels(self) -> Mapping[str, str]:
        labels: Mapping[str, str] = own(self.job, "metadata", "labels") or {}
        return labels

    @property
    def zone(self) -> str:
        return self.labels.get(ZONE_LABEL, "")

    @property
    def is_deleted(self) -> bool:
        return own(self.job, "metadata", "deletionTimestamp") is not None

    @property
    def is_suspended(self) -> bool:
        return own(self.job, "spec", "suspend") is True

    @property
    def is_over(self) -> bool:
        return condition(self.job, "Complete") is not None or condition(self.job, "Failed") is not None

    def has_id(self, machine_id: str | None) -> bool:
        """This Job, or a pod of it."""
        return not machine_id or machine_id == self.uid or machine_id.startswith(f"{self.uid}.")

    def is_of(self, labels: Mapping[str, str]) -> bool:
        """Of the launch that makes these labels."""
        return all(self.labels.get(name) == labels[name] for name in (SUPERVISOR_LABEL, RUN_LABEL, LAUNCH_LABEL))


@dataclass(frozen=True, slots=True)
class Seen:
    """What a sighting means. `machine` None: it is over, without a record of why. `wait`: of a pod that is only asked
    for."""

    machine: Machine | None
    wait: Wait | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """What is known beside Jobs and pods. `events`: by the UID of their object. `pools`: by zone and shape. `ran`: UIDs
    of Jobs that were seen with a pod before; `released`: of those that this supervisor deletes."""

    events: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    pools: Mapping[tuple[str, str], Pool] = field(default_factory=dict)
    ran: Set[str] = frozenset()
    released: Set[str] = frozenset()


def sightings(jobs: Iterable[Json], pods: Iterable[Json], beside: Beside) -> list[Sighting]:
    """Of the Jobs that are machines."""
    of_job: dict[str, list[Json]] = {}
    for pod in pods:
        for owner in rows(pod, "metadata", "ownerReferences"):
            if owner.get("kind") == "Job":
                of_job.setdefault(str(owner.get("uid")), []).append(pod)
    return [_sighting(job, of_job, beside) for job in jobs if _is_machine(job)]


def _is_machine(job: Json) -> bool:
    labels = own(job, "metadata", "labels") or {}
    return labels.get(MACHINE_LABEL) == own(job, "metadata", "name") and bool(own(job, "metadata", "uid"))


def _sighting(job: Json, of_job: Mapping[str, list[Json]], beside: Beside) -> Sighting:
    uid, labels = str(own(job, "metadata", "uid")), own(job, "metadata", "labels") or {}
    pods = sorted(of_job.get(uid, ()), key=_age)
    uids = [uid, *(str(own(pod, "metadata", "uid")) for pod in pods)]
    events = [event for each in uids for event in beside.events.get(each, ())]
    pool = beside.pools.get((labels.get(ZONE_LABEL, ""), labels.get(SHAPE_LABEL, "")))
    return Sighting(job, pods, events, pool, uid in beside.ran, uid in beside.released)


def _age(pod: Json) -> tuple[str, str]:
    """Two pods of one second keep their order, whatever the order of a list is."""
    return str(own(pod, "metadata", "creationTimestamp") or ""), str(own(pod, "metadata", "uid"))


def seen(sighting: Sighting, resource: str) -> Seen:
    """`resource`: of the GPUs. Raises UnknownState."""
    if sighting.is_deleted:
        cause = None if sighting.was_released else Cause.MACHINE_DELETED
        return Seen(_machine(sighting, Meaning(MachineState.ENDING, cause, "its Job is being deleted")))
    end = _end(sighting)
    if end is not None:
        over = end.state is MachineState.ENDED and end.cause is None
        return Seen(None if over else _machine(sighting, end))
    if sighting.is_suspended:
        queue = sighting.labels.get(QUEUE_LABEL, "")
        wait = Wait(f"it waits to be admitted by the queue {queue}" if queue else "its Job is suspended")
        return Seen(_asked_machine(sighting, wait), wait)
    if not sighting.pods:
        wait = without_pod(sighting.events)
        return Seen(_asked_machine(sighting, wait), wait)
    return _of_pod(sighting, sighting.pods[0], resource)


def _of_pod(sighting: Sighting, pod: Json, resource: str) -> Seen:
    """Raises UnknownState."""
    meaning = pod_meaning(pod)
    if meaning.state is MachineState.STARTING and meaning.cause is None:
        wait = None
        if not own(pod, "spec", "nodeName"):
            wait = unscheduled(pod, resource, sighting.pool)
        elif _lacks_volumes(pod):
            wait = without_volumes(pod, sighting.events, sighting.name)
        if wait is not None:
            return Seen(_asked_machine(sighting, wait), wait)
    return Seen(_machine(sighting, meaning))


def _lacks_volumes(pod: Json) -> bool:
    """Its sandbox is made after its volumes are mounted. Older kubelets do not say it."""
    row = next(
        (row for row in rows(pod, "status", "conditions") if row.get("type") == "PodReadyToStartContainers"), None
    )
    return row is not None and row.get("status") == "False"


def needs_events(sighting: Sighting) -> bool:
    """Its pod does not say why it waits."""
    if sighting.is_deleted or sighting.is_over or sighting.is_suspended:
        return False
    if not sighting.pods:
        return True
    pod = sighting.pods[0]
    return bool(own(pod, "spec", "nodeName")) and own(pod, "status", "phase") == "Pending" and _lacks_volumes(pod)


def needs_nodes(sighting: Sighting) -> bool:
    """The scheduler has found no node for it."""
    return not sighting.is_deleted and any(
        row.get("type") == "PodScheduled" and row.get("reason") == "Unschedulable"
        for pod in sighting.pods[:1]
        for row in rows(pod, "status", "conditions")
    )


def _end(sighting: Sighting) -> Meaning | None:
    """None = it has not ended. The pod says more than the Job; the first pod is the machine. Raises UnknownState."""
    of_job = job_end(sighting.job)
    if of_job is not None and of_job.cause is Cause.TIME_LIMIT:
        return of_job
    if sighting.is_suspended:
        return _suspended_again(sighting)
    of_pod = pod_meaning(sighting.pods[0]) if sighting.pods else None
    if of_pod is not None and of_pod.state in (MachineState.ENDED, MachineState.ENDING):
        if of_pod.cause is None and len(sighting.pods) > 1:
            return replace(of_pod, cause=Cause.PREEMPTED, text=AGAIN)
        return of_pod
    if of_job is not None and of_job.cause is None and condition(sighting.job, "Failed") and not sighting.pods:
        return replace(of_job, cause=Cause.MACHINE_DELETED, text="its pod was deleted, and its Job was not")
    return of_job


def _suspended_again(sighting: Sighting) -> Meaning | None:
    """A Job that was suspended since its creation only waits."""
    since = condition(sighting.job, "Suspended")
    created_at, suspended_at = _created_at(sighting), None if since is None else epoch(since.get("lastTransitionTime"))
    late = created_at is not None and suspended_at is not None and suspended_at - created_at > RAN_S
    is_leaving = any(own(pod, "metadata", "deletionTimestamp") is not None for pod in sighting.pods)
    if not (sighting.has_run or late or is_leaving):
        return None  # it waits, or was admitted after the list of Jobs and before the list of pods
    state = MachineState.ENDING if sighting.pods else MachineState.ENDED
    return Meaning(state, Cause.PREEMPTED, "it was suspended again: another job has its place")


def _asked_machine(sighting: Sighting, wait: Wait) -> Machine:
    """A Job that its queue has admitted keeps its place, although its pod may wait for a node."""
    machine = _machine(sighting, Meaning(MachineState.ASKED, text=wait.text))
    return replace(machine, queued=QUEUE_LABEL in sighting.labels, waits_for=wait.text)


def _machine(sighting: Sighting, meaning: Meaning) -> Machine:
    labels = sighting.labels
    record = None if meaning.cause is None else MachineRecord(meaning.cause, meaning.text, _ended_at(sighting))
    is_up = meaning.state is MachineState.UP
    return Machine(
        machine_id=sighting.uid,
        name=sighting.name,
        zone=sighting.zone,
        state=meaning.state,
        supervisor_id=labels.get(SUPERVISOR_LABEL, ""),
        run_id=labels.get(RUN_LABEL, ""),
        launch_id=labels.get(LAUNCH_LABEL, ""),
        created_at=_created_at(sighting),
        record=None if is_up else record,
        doubt=record if is_up else None,
        detail=meaning.text,
        labels=dict(labels),
        shape=labels.get(SHAPE_LABEL, ""),
        node=str(own(sighting.pods[0], "spec", "nodeName") or "") if sighting.pods else "",
    )


def _created_at(sighting: Sighting) -> float | None:
    return epoch(own(sighting.job, "metadata", "creationTimestamp"))


def _ended_at(sighting: Sighting) -> float | None:
    """For people. None = it is not over, or nothing says when."""
    for pod in sighting.pods[:1]:
        for row in rows(pod, "status", "containerStatuses"):
            at = epoch(own(row, "state", "terminated", "finishedAt"))
            if at is not None:
                return at
    ends = (condition(sighting.job, kind) for kind in ("Failed", "Complete"))
    return next((epoch(row.get("lastTransitionTime")) for row in ends if row is not None), None)


def epoch(moment: object) -> float | None:
    """Seconds of an RFC 3339 time; None = not one."""
    if not isinstance(moment, str) or not moment:
        return None
    try:
        at = datetime.fromisoformat(moment)
    except ValueError:
        return None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
