"""The Job controller: one pod after the other, and a Job's conditions, as Kubernetes documents them.

Finished pods are counted once, by their finalizer. A Job fails or completes when no pod of it ends any more.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tests.kubernetes.defaults import TRACKING
from tests.kubernetes.errors import ApiError
from tests.kubernetes.kinds import JOB, POD
from tests.kubernetes.objects import OVER, Object, Objects, condition, controller_of, epoch, is_true

COMPONENT = "job-controller"
RETRY_S = 10.0  # after a pod that could not be created
OWN = ("labels", "annotations", "finalizers")


class JobController:
    """`make_pod(namespace, pod)`: as a client creates it; raises ApiError."""

    def __init__(self, objects: Objects, make_pod: Callable[[str, Object], Object]) -> None:
        self.objects, self._make_pod = objects, make_pod
        self._retry_at: dict[str, float] = {}

    def step(self) -> None:
        jobs = {job["metadata"]["uid"]: job for job in self.objects.of(JOB)}
        pods: dict[str, list[Object]] = {uid: [] for uid in jobs}
        for pod in self.objects.of(POD):
            owner = controller_of(pod)
            if owner is None or owner["uid"] in jobs:
                pods.get(owner["uid"] if owner else "", []).append(pod)
            else:
                self.objects.drop_finalizer(POD, pod, TRACKING)
        for uid, job in jobs.items():
            self._sync(job, pods[uid])

    def _sync(self, job: Object, pods: list[Object]) -> None:
        if "deletionTimestamp" in job["metadata"]:
            for pod in pods:
                self.objects.drop_finalizer(POD, pod, TRACKING)
            return
        before, status = copy.deepcopy(job["status"]), job["status"]
        if not is_over(job):
            policy = self._count(job, pods)
            self._suspend_or_start(job, pods)
            self._judge(job, pods, policy)
        living = [pod for pod in pods if pod["status"]["phase"] not in OVER]
        ending = [pod for pod in living if "deletionTimestamp" in pod["metadata"]]
        self._finish(job, living)
        if not (is_over(job) or _is_ending(job) or job["spec"]["suspend"]):
            wanted = job["spec"]["completions"] - status.get("succeeded", 0)
            replaces = living if job["spec"]["podReplacementPolicy"] == "Failed" else _without(living, ending)
            if wanted > 0 and not replaces:
                self._create(job)
        status["uncountedTerminatedPods"] = {}
        status["terminating"] = len(ending)
        status["ready"] = sum(is_true(pod, "Ready") for pod in living)
        status["active"] = len(living) - len(ending)
        if not status["active"]:
            del status["active"]
        if status != before:
            self.objects.touch(job)

    def _count(self, job: Object, pods: list[Object]) -> str:
        """What its policy says of a pod that has failed; "" = nothing."""
        status, policy = job["status"], ""
        for pod in pods:
            phase = pod["status"]["phase"]
            if phase in OVER and TRACKING in pod["metadata"].get("finalizers", ()):
                word = "succeeded" if phase == "Succeeded" else "failed"
                status[word] = status.get(word, 0) + 1
                policy = policy or (_fails_job(job, pod) if word == "failed" else "")
                self.objects.drop_finalizer(POD, pod, TRACKING)
        return policy

    def _suspend_or_start(self, job: Object, pods: list[Object]) -> None:
        status, at = job["status"], self.objects.at()
        if job["spec"]["suspend"]:
            for pod in pods:
                if "deletionTimestamp" not in pod["metadata"]:  # those are no failures
                    self.objects.drop_finalizer(POD, pod, TRACKING)
                    self.objects.delete(POD, pod)
            status.pop("startTime", None)
            if condition(job, "Suspended", "True", "JobSuspended", "Job suspended", at):
                self.objects.event(job, "Suspended", "Job suspended", COMPONENT, warning=False)
        elif "startTime" not in status:
            status["startTime"] = at
            if is_true(job, "Suspended"):
                condition(job, "Suspended", "False", "JobResumed", "Job resumed", at)
                self.objects.event(job, "Resumed", "Job resumed", COMPONENT, warning=False)

    def _judge(self, job: Object, pods: list[Object], policy: str) -> None:
        """Whether it ends now; then its pods are deleted."""
        spec, status, at = job["spec"], job["status"], self.objects.at()
        if _is_ending(job):
            return
        deadline = spec.get("activeDeadlineSeconds")
        started_at = epoch(status["startTime"]) if "startTime" in status else None
        if status.get("succeeded", 0) >= spec["completions"]:
            text = "Reached expected number of succeeded pods"
            condition(job, "SuccessCriteriaMet", "True", "CompletionsReached", text, at)
            return
        if policy:
            reason, text = "PodFailurePolicy", policy
        elif status.get("failed", 0) > spec["backoffLimit"]:
            reason, text = "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        elif None not in (deadline, started_at) and self.objects.clock() - started_at >= deadline:
            reason, text = "DeadlineExceeded", "Job was active longer than specified deadline"
        else:
            return
        condition(job, "FailureTarget", "True", reason, text, at)
        self.objects.event(job, reason, text, COMPONENT)
        for pod in pods:
            if pod["status"]["phase"] not in OVER and "deletionTimestamp" not in pod["metadata"]:
                self.objects.delete(POD, pod)
                self.objects.event(job, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}", COMPONENT, False)

    def _finish(self, job: Object, living: list[Object]) -> None:
        if is_over(job) or living or not _is_ending(job):
            return
        status, at = job["status"], self.objects.at()
        done = is_true(job, "SuccessCriteriaMet")
        first = next(each for each in status["conditions"] if each["type"] in ("SuccessCriteriaMet", "FailureTarget"))
        condition(job, "Complete" if done else "Failed", "True", first["reason"], first["message"], at)
        if done:
            status["completionTime"] = at
            self.objects.event(job, "Completed", "Job completed", COMPONENT, warning=False)

    def _create(self, job: Object) -> None:
        metadata, template = job["metadata"], copy.deepcopy(job["spec"]["template"])
        if self.objects.clock() < self._retry_at.get(metadata["uid"], 0.0):
            return
        own: dict[str, Any] = template.get("metadata", {})
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": f"{metadata['name']}-",
                **{name: own[name] for name in OWN if name in own},
                "finalizers": [*own.get("finalizers", ()), TRACKING],
                "ownerReferences": [{
                    "apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"],
                    "controller": True, "blockOwnerDeletion": True,
                }],
            },
            "spec": template["spec"],
        }  # fmt: skip
        try:
            made = self._make_pod(metadata["namespace"], pod)
        except ApiError as error:
            self._retry_at[metadata["uid"]] = self.objects.clock() + RETRY_S
            self.objects.event(job, "FailedCreate", f"Error creating: {error.message}", COMPONENT)
            return
        job["status"]["active"] = 1
        text = f"Created pod: {made['metadata']['name']}"
        self.objects.event(job, "SuccessfulCreate", text, COMPONENT, warning=False)


def _fails_job(job: Object, pod: Object) -> str:
    """The first rule that matches this failed pod counts; "" = none, or it does not fail the Job."""
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    for place, rule in enumerate((job["spec"].get("podFailurePolicy") or {}).get("rules", ())):
        what = _matched(rule, pod, name)
        if what:
            text = f"{what} matching {rule['action']} rule at index {place}"
            return text if rule["action"] == "FailJob" else ""
    return ""


def _matched(rule: Object, pod: Object, name: str) -> str:
    for wanted in rule.get("onPodConditions", ()):
        for each in pod["status"].get("conditions", ()):
            if (each["type"], each["status"]) == (wanted["type"], wanted.get("status", "True")):
                return f"Pod {name} has condition {each['type']}"
    codes = rule.get("onExitCodes")
    for container in pod["status"].get("containerStatuses", ()) if codes else ():
        code = container["state"].get("terminated", {}).get("exitCode", 0)
        if code and (code in codes["values"]) == (codes["operator"] == "In"):
            return f"Container {container['name']} for pod {name} failed with exit code {code}"
    return ""


def is_over(job: Object) -> bool:
    return is_true(job, "Complete") or is_true(job, "Failed")


def over_at(job: Object) -> float:
    """Epoch seconds of a Job that is over."""
    ends = (each for each in job["status"]["conditions"] if each["type"] in ("Complete", "Failed"))
    return epoch(next(ends)["lastTransitionTime"])


def _is_ending(job: Object) -> bool:
    return is_true(job, "FailureTarget") or is_true(job, "SuccessCriteriaMet")


def _without(pods: list[Object], others: list[Object]) -> list[Object]:
    return [pod for pod in pods if pod not in others]
