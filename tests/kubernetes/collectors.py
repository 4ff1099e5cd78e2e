"""What Kubernetes removes by itself: finished Jobs after their time, objects without an owner, pods without a node."""

from __future__ import annotations

from tests.kubernetes.jobs import is_over, over_at
from tests.kubernetes.kinds import EVENT, JOB, NODE, POD
from tests.kubernetes.objects import FOREGROUND, ORPHAN, OVER, Object, Objects, condition, epoch

EVENT_LIFE_S = 3600.0
QUARANTINE_S = 40.0  # between the end of a node and the end of its pods


class Collectors:
    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self._node_missed_at: dict[str, float] = {}

    def step(self) -> None:
        self._finished_jobs()
        self._old_events()
        self._owned()
        self._pods_without_node()

    def _finished_jobs(self) -> None:
        for job in self.objects.of(JOB):
            life_s = job["spec"].get("ttlSecondsAfterFinished")
            if life_s is not None and is_over(job) and self.objects.clock() - over_at(job) >= life_s:
                self.objects.delete(JOB, job, "Foreground")

    def _old_events(self) -> None:
        for event in self.objects.of(EVENT):
            if self.objects.clock() - epoch(event["lastTimestamp"]) > EVENT_LIFE_S:
                self.objects.remove(EVENT, event)

    def _owned(self) -> None:
        everything = list(self.objects.everything())
        by_uid = {resource["metadata"]["uid"]: resource for _, resource in everything}
        dependents: dict[str, int] = {}
        for kind, resource in everything:
            owners = resource["metadata"].get("ownerReferences")
            if not owners:
                continue
            living = [by_uid[owner["uid"]] for owner in owners if owner["uid"] in by_uid]
            kept = [owner for owner in living if ORPHAN in owner["metadata"].get("finalizers", ())]
            if kept:
                left = {owner["metadata"]["uid"] for owner in kept}
                owners[:] = [owner for owner in owners if owner["uid"] not in left]
                if not owners:
                    del resource["metadata"]["ownerReferences"]
                self.objects.touch(resource)
                continue
            falls = all(FOREGROUND in owner["metadata"].get("finalizers", ()) for owner in living)
            if falls and "deletionTimestamp" not in resource["metadata"]:
                self.objects.delete(kind, resource)
            for owner in living:
                uid = owner["metadata"]["uid"]
                dependents[uid] = dependents.get(uid, 0) + self._is_there(kind, resource)
        for kind, resource in everything:
            self.objects.drop_finalizer(kind, resource, ORPHAN)
            if not dependents.get(resource["metadata"]["uid"]):
                self.objects.drop_finalizer(kind, resource, FOREGROUND)

    def _is_there(self, kind: object, resource: Object) -> bool:
        metadata = resource["metadata"]
        return self.objects.find(kind, metadata.get("namespace", ""), metadata["name"]) is resource  # type: ignore[arg-type]

    def _pods_without_node(self) -> None:
        """Also a pod that is deleted before it has one: nothing else ends it."""
        names, now = {node["metadata"]["name"] for node in self.objects.of(NODE)}, self.objects.clock()
        missed = {pod["spec"]["nodeName"] for pod in self.objects.of(POD) if "nodeName" in pod["spec"]} - names
        self._node_missed_at = {name: self._node_missed_at.get(name, now) for name in missed}
        for pod in self.objects.of(POD):
            node = pod["spec"].get("nodeName")
            if node is None and "deletionTimestamp" in pod["metadata"] and pod["status"]["phase"] not in OVER:
                pod["status"]["phase"] = "Failed"
                self.objects.touch(pod)
            if node not in missed or now - self._node_missed_at[node] < QUARANTINE_S:
                continue
            if pod["status"]["phase"] not in OVER:
                pod["status"]["phase"] = "Failed"
                text = "PodGC: node no longer exists"
                condition(pod, "DisruptionTarget", "True", "DeletionByPodGC", text, self.objects.at())
                self.objects.touch(pod)
            self.objects.delete(POD, pod, grace_s=0)
