"""The scheduler: which pod goes to which node, why none fits, in Kubernetes' words, and which pods have to leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tests.kubernetes.kinds import CLAIM, NODE, POD
from tests.kubernetes.objects import OVER, Object, Objects, condition
from tests.kubernetes.quantities import quantity, requests

COMPONENT = "default-scheduler"
PREEMPTED = "default-scheduler: preempting to accommodate a higher priority pod"
NO_HELP, NO_VICTIMS = "Preemption is not helpful for scheduling", "No preemption victims found for incoming pod"


class Scheduler:
    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    def step(self) -> None:
        waiting = [
            pod
            for pod in self.objects.of(POD)
            if "nodeName" not in pod["spec"] and "deletionTimestamp" not in pod["metadata"]
            and pod["status"]["phase"] == "Pending" and not pod["spec"].get("schedulingGates")
        ]  # fmt: skip
        waiting.sort(key=lambda pod: (-pod["spec"]["priority"], pod["metadata"]["creationTimestamp"]))
        for pod in waiting:
            self._place(pod)

    def _place(self, pod: Object) -> None:
        nodes = self.objects.of(NODE)
        if not nodes:
            self._refuse(pod, "no nodes available to schedule pods")
            return
        count = f"0/{len(nodes)} nodes are available:"
        no_help = f" preemption: {count} {len(nodes)} {NO_HELP}."
        if problem := self._claim_problem(pod):
            self._refuse(pod, f"{count} {problem}.{no_help}")
            return
        used = self._used()
        reasons = {node["metadata"]["name"]: _reasons(pod, node, used) for node in nodes}
        for node in nodes:
            if not reasons[node["metadata"]["name"]]:
                self._bind(pod, node["metadata"]["name"])
                return
        helped = Counter[str]()
        for node in nodes:
            short = all(reason.startswith("Insufficient") for reason in reasons[node["metadata"]["name"]])
            helped[NO_VICTIMS if short else NO_HELP] += 1
            if short and self._preempt(pod, node, used):
                helped = Counter()
                break
        text = f"{count} {_histogram(reason for each in reasons.values() for reason in each)}."
        if pod["spec"]["preemptionPolicy"] == "Never":
            text += " preemption: not eligible due to preemptionPolicy=Never."
        elif helped:
            text += f" preemption: {count} {_histogram(helped.elements())}."
        self._refuse(pod, text)

    def _bind(self, pod: Object, node: str) -> None:
        pod["spec"]["nodeName"] = node
        condition(pod, "PodScheduled", "True", "", "", self.objects.at())
        pod["status"].pop("nominatedNodeName", None)
        self.objects.touch(pod)
        metadata = pod["metadata"]
        text = f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}"
        self.objects.event(pod, "Scheduled", text, COMPONENT, warning=False)

    def _refuse(self, pod: Object, text: str) -> None:
        if condition(pod, "PodScheduled", "False", "Unschedulable", text, self.objects.at()):
            self.objects.touch(pod)
            self.objects.event(pod, "FailedScheduling", text, COMPONENT)

    def _claim_problem(self, pod: Object) -> str:
        for volume in pod["spec"].get("volumes", ()):
            name = volume.get("persistentVolumeClaim", {}).get("claimName")
            claim = self.objects.find(CLAIM, pod["metadata"]["namespace"], name) if name else None
            if name and claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if claim is not None and claim["status"]["phase"] != "Bound":
                return "pod has unbound immediate PersistentVolumeClaims"
        return ""

    def _used(self) -> dict[str, list[Object]]:
        """node -> its pods that use something."""
        used: dict[str, list[Object]] = {}
        for pod in self.objects.of(POD):
            if "nodeName" in pod["spec"] and pod["status"]["phase"] not in OVER:
                used.setdefault(pod["spec"]["nodeName"], []).append(pod)
        return used

    def _preempt(self, pod: Object, node: Object, used: Mapping[str, list[Object]]) -> bool:
        """Whether it fits once pods of a lower priority have left; they are asked to leave."""
        name, priority = node["metadata"]["name"], pod["spec"]["priority"]
        if pod["spec"]["preemptionPolicy"] == "Never":
            return False
        here = used.get(name, [])
        lower = sorted((each for each in here if each["spec"]["priority"] < priority), key=_priority)
        for count in range(1, len(lower) + 1):
            victims = lower[:count]
            left = [each for each in here if not any(each is victim for victim in victims)]
            if not _reasons(pod, node, {name: left}):
                pod["status"]["nominatedNodeName"] = name
                for victim in victims:
                    self._evict(victim, pod, name)
                return True
        return False

    def _evict(self, victim: Object, pod: Object, node: str) -> None:
        if "deletionTimestamp" in victim["metadata"]:
            return
        condition(victim, "DisruptionTarget", "True", "PreemptionByScheduler", PREEMPTED, self.objects.at())
        self.objects.touch(victim)
        text = f"Preempted by pod {pod['metadata']['uid']} on node {node}"
        self.objects.event(victim, "Preempted", text, COMPONENT, warning=False)
        self.objects.delete(POD, victim)


def _reasons(pod: Object, node: Object, used: Mapping[str, list[Object]]) -> list[str]:
    """Why it does not fit on this node, by the first filter that says no; none = it fits."""
    spec, labels = node["spec"], node["metadata"].get("labels", {})
    if spec.get("unschedulable") and not _tolerates(pod, UNSCHEDULABLE):
        return ["node(s) were unschedulable"]
    for taint in spec.get("taints", ()):
        if taint["effect"] != "PreferNoSchedule" and not _tolerates(pod, taint):
            return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"]
    if any(labels.get(key) != value for key, value in pod["spec"].get("nodeSelector", {}).items()):
        return ["node(s) didn't match Pod's node affinity/selector"]
    if not _matches(pod["spec"].get("affinity", {}), labels):
        return ["node(s) didn't match Pod's node affinity/selector"]
    allocatable = node["status"]["allocatable"]
    pods = used.get(node["metadata"]["name"], [])
    taken: dict[str, Decimal] = {}
    for each in pods:
        for name, value in requests(each["spec"]).items():
            taken[name] = taken.get(name, Decimal(0)) + value
    short = ["Too many pods"] if len(pods) >= int(allocatable["pods"]) else []
    for name, value in requests(pod["spec"]).items():
        if value and taken.get(name, Decimal(0)) + value > quantity(allocatable.get(name, "0")):
            short.append(f"Insufficient {name}")
    return short


UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def _tolerates(pod: Object, taint: Mapping[str, Any]) -> bool:
    return any(tolerates(toleration, taint) for toleration in pod["spec"].get("tolerations", ()))


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return toleration.get("value", "") == taint.get("value", "")


def _matches(affinity: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """The required node affinity: one of its terms holds."""
    required = affinity.get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(
        all(_holds(rule, labels) for rule in term.get("matchExpressions", ())) for term in required["nodeSelectorTerms"]
    )


def _holds(rule: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator, values = rule["key"], rule["operator"], rule.get("values", ())
    return {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }[operator]


def _histogram(reasons: Any) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in Counter(reasons).items()))


def _priority(pod: Object) -> int:
    return int(pod["spec"]["priority"])
