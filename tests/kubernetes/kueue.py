"""Kueue, as much as a client of Jobs sees: a Workload for each Job of a queue, which the queue admits or evicts.

Its API: kueue.sigs.k8s.io, v1beta1. The Job controller of Kubernetes does the rest, by `suspend`. Whom it preempts:
pkg/scheduler/preemption, with the priorities of KEP-7990 where its feature gate is on.
"""

from __future__ import annotations

import copy
import hashlib
import re

from tests.kubernetes.errors import ApiError
from tests.kubernetes.jobs import is_over
from tests.kubernetes.kinds import JOB, LOCAL_QUEUE, WORKLOAD
from tests.kubernetes.objects import Object, Objects, condition, is_true

QUEUE_LABEL, UID_LABEL = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/job-uid"
BOOST = "kueue.x-k8s.io/priority-boost"
PENDING = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor default-flavor, "
    "1 more needed"
)
EVICTED = "Preempted to accommodate a workload (UID: {uid}) due to prioritization in the ClusterQueue"


class Kueue:
    """`is_open`: every Job of a queue is admitted at once. `boosts`: the feature gate PriorityBoost."""

    def __init__(self, objects: Objects) -> None:
        self.objects, self.is_open, self.boosts = objects, False, False

    def add_queue(self, namespace: str, name: str) -> None:
        active = {"type": "Active", "status": "True", "reason": "Ready", "message": "Can submit new workloads to it"}
        self.objects.add(LOCAL_QUEUE, namespace, {
            "metadata": {"name": name},
            "spec": {"clusterQueue": "gpus"},
            "status": {"conditions": [{**active, "lastTransitionTime": self.objects.at()}], "pendingWorkloads": 0},
        })  # fmt: skip

    def hook(self, job: Object) -> None:
        """Its webhook: a Job of a queue starts suspended, whatever it says."""
        if QUEUE_LABEL in job["metadata"].get("labels", {}):
            job["spec"]["suspend"] = True

    def check(self, workload: Object) -> None:
        """Its webhook for changed Workloads."""
        value = workload["metadata"].get("annotations", {}).get(BOOST)
        if self.boosts and value is not None and not re.fullmatch(r"[+-]?\d+", value):
            text = f'metadata.annotations[{BOOST}]: Invalid value: "{value}": must be a valid signed integer'
            raise ApiError(403, "Forbidden", f'admission webhook "vworkload.kb.io" denied the request: {text}')

    def step(self) -> None:
        for job in self.objects.of(JOB):
            queue = job["metadata"].get("labels", {}).get(QUEUE_LABEL)
            if queue is None or "deletionTimestamp" in job["metadata"]:
                continue
            workload = self._workload(job) or self._make(job, queue)
            if is_over(job):
                if self._set(workload, "Finished", "True", "Succeeded", "Job finished"):
                    self.objects.touch(workload)
            elif self.objects.find(LOCAL_QUEUE, job["metadata"]["namespace"], queue) is None:
                text = f"LocalQueue {queue} doesn't exist"
                if self._set(workload, "QuotaReserved", "False", "Inadmissible", text):
                    self.objects.touch(workload)
            elif self.is_open and not is_true(workload, "Admitted"):
                self.admit(job)

    def admit(self, job: Object) -> None:
        workload = self._known(job)
        flavors = {"nvidia.com/gpu": "default-flavor"}
        workload["status"]["admission"] = {
            "clusterQueue": "gpus", "podSetAssignments": [{"name": "main", "count": 1, "flavors": flavors}],
        }  # fmt: skip
        self._set(workload, "QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue gpus")
        self._set(workload, "Admitted", "True", "Admitted", "The workload is admitted")
        if is_true(workload, "Evicted"):
            self._set(workload, "Evicted", "False", "QuotaReserved", "Previously: Preempted")
        self.objects.touch(workload)
        job["spec"]["suspend"] = False
        self.objects.touch(job)

    def evict(self, job: Object) -> None:
        """Another workload needs the quota: the Job is suspended again."""
        workload = self._known(job)
        text = EVICTED.format(uid="00000000-0000-4000-8000-000000000000")
        workload["status"].pop("admission", None)
        self._set(workload, "Evicted", "True", "Preempted", text)
        self._set(workload, "Preempted", "True", "InClusterQueue", text)
        self._set(workload, "QuotaReserved", "False", "Pending", PENDING)
        self._set(workload, "Admitted", "False", "NoReservation", "The workload has no reservation")
        self.objects.touch(workload)
        job["spec"]["suspend"] = True
        self.objects.touch(job)

    def preempt(self, priority: int = 1000) -> Object | None:
        """A workload of this priority needs the quota of one Job (`withinClusterQueue: LowerPriority`): the one with
        the lowest priority loses it, and of equals the one that was admitted last. The Job; None = all are higher."""
        running = [(self._workload(job), job) for job in self.objects.of(JOB)]
        admitted = [(each, job) for each, job in running if each is not None and is_true(each, "Admitted")]
        lower = [(each, job) for each, job in admitted if self._priority(each) < priority]
        lower.sort(key=lambda pair: pair[0]["metadata"]["uid"])
        lower.sort(key=lambda pair: self._reserved_at(pair[0]), reverse=True)
        lower.sort(key=lambda pair: self._priority(pair[0]))
        for _, job in lower[:1]:
            self.evict(job)
            return job
        return None

    def _priority(self, workload: Object) -> int:
        boost = workload["metadata"].get("annotations", {}).get(BOOST, "0") if self.boosts else "0"
        return int(workload["spec"]["priority"]) + int(boost)

    def _reserved_at(self, workload: Object) -> str:
        conditions = workload["status"]["conditions"]
        return next(str(row["lastTransitionTime"]) for row in conditions if row["type"] == "QuotaReserved")

    def _known(self, job: Object) -> Object:
        workload = self._workload(job)
        assert workload is not None, f"{job['metadata']['name']} has no workload yet"
        return workload

    def _workload(self, job: Object) -> Object | None:
        present = self.objects.of(WORKLOAD, job["metadata"]["namespace"])
        uid = job["metadata"]["uid"]
        return next((each for each in present if each["metadata"]["labels"][UID_LABEL] == uid), None)

    def _make(self, job: Object, queue: str) -> Object:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
        digest = hashlib.sha1(uid.encode(), usedforsecurity=False).hexdigest()[:5]
        workload = self.objects.add(WORKLOAD, job["metadata"]["namespace"], {
            "metadata": {
                "name": f"job-{name}-{digest}",
                "labels": {UID_LABEL: uid},
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            },
            "spec": {
                "active": True, "queueName": queue, "priority": 0,
                "podSets": [{"name": "main", "count": 1, "template": copy.deepcopy(job["spec"]["template"])}],
            },
            "status": {},
        })  # fmt: skip
        self._set(workload, "QuotaReserved", "False", "Pending", PENDING)
        self.objects.touch(workload)
        return workload

    def _set(self, workload: Object, kind: str, status: str, reason: str, message: str) -> bool:
        return condition(workload, kind, status, reason, message, self.objects.at())
