"""The nodes of the cluster and their controller: heartbeats that stop, taints, and the pods that must leave then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.kubernetes.kinds import NODE, POD
from tests.kubernetes.objects import OVER, Object, Objects, condition, epoch
from tests.kubernetes.quantities import GPU
from tests.kubernetes.scheduler import tolerates

SILENT_S = 40.0  # node-monitor-grace-period
UNREACHABLE = "node.kubernetes.io/unreachable"
STOPPED = "Kubelet stopped posting node status."
TAINTED = "Taint manager: deleting due to NoExecute taint"


class Nodes:
    """`silent`: node -> since when its kubelet is not heard, epoch seconds."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.silent: dict[str, float] = {}

    def add(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        gpus: int = 1,
        taints: Sequence[Mapping[str, str]] = (),
        **resources: str,
    ) -> Object:
        """`resources`: cpu, memory, pods; ephemeral_storage."""
        has = {"cpu": "8", "memory": "32Gi", "ephemeral_storage": "200Gi", "pods": "110", **resources}
        amounts = {key.replace("_", "-"): value for key, value in has.items()} | {GPU: str(gpus)}
        node: Object = {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
            "spec": {"providerID": f"test:///{name}", **({"taints": list(map(dict, taints))} if taints else {})},
            "status": {
                "capacity": amounts,
                "allocatable": dict(amounts),
                "nodeInfo": {
                    "architecture": "amd64", "bootID": name, "containerRuntimeVersion": "containerd://2.1.4",
                    "kernelVersion": "6.1.0", "kubeProxyVersion": "", "kubeletVersion": "v1.34.2", "machineID": name,
                    "operatingSystem": "linux", "osImage": "Debian GNU/Linux 12", "systemUUID": name,
                },
            },
        }  # fmt: skip
        self.objects.add(NODE, "", node)
        self._ready(node, "True", "KubeletReady", "kubelet is posting ready status")
        return node

    def node(self, name: str) -> Object:
        found = self.objects.find(NODE, "", name)
        assert found is not None, f"there is no node {name}"
        return found

    def hears(self, name: str) -> bool:
        """Whether its kubelet and the API hear each other."""
        return name not in self.silent and self.objects.find(NODE, "", name) is not None

    def step(self) -> None:
        now = self.objects.clock()
        for node in self.objects.of(NODE):
            since = self.silent.get(node["metadata"]["name"])
            if since is None:
                self._ready(node, "True", "KubeletReady", "kubelet is posting ready status")
                self._taint(node, False)
            elif now - since >= SILENT_S:
                self._ready(node, "Unknown", "NodeStatusUnknown", STOPPED)
                self._taint(node, True)
                self._pods_of(node)

    def _ready(self, node: Object, status: str, reason: str, message: str) -> None:
        if condition(node, "Ready", status, reason, message, self.objects.at()):
            self.objects.touch(node)

    def _taint(self, node: Object, is_away: bool) -> None:
        taints = [taint for taint in node["spec"].get("taints", ()) if taint["key"] != UNREACHABLE]
        present = len(taints) < len(node["spec"].get("taints", ()))
        if present == is_away:
            return
        if is_away:
            each = {"key": UNREACHABLE, "timeAdded": self.objects.at()}
            taints += [{**each, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        node["spec"]["taints"] = taints
        if not taints:
            del node["spec"]["taints"]
        self.objects.touch(node)

    def _pods_of(self, node: Object) -> None:
        """No pod there is known to be ready, and after its toleration it is deleted: who ends it is another matter."""
        taint = next(
            each for each in node["spec"]["taints"] if (each["key"], each["effect"]) == (UNREACHABLE, "NoExecute")
        )
        for pod in self.objects.of(POD):
            if pod["spec"].get("nodeName") != node["metadata"]["name"] or pod["status"]["phase"] in OVER:
                continue
            if condition(pod, "Ready", "False", "", "", self.objects.at()):
                self.objects.touch(pod)
            if "deletionTimestamp" in pod["metadata"]:
                continue
            stays = [each for each in pod["spec"].get("tolerations", ()) if tolerates(each, taint)]
            seconds = [each.get("tolerationSeconds") for each in stays]
            if stays and None in seconds:
                continue
            if self.objects.clock() - epoch(taint["timeAdded"]) >= min(seconds, default=0):
                condition(pod, "DisruptionTarget", "True", "DeletionByTaintManager", TAINTED, self.objects.at())
                self.objects.touch(pod)
                self.objects.event(pod, "TaintManagerEviction", "Marking for deletion Pod", "taint-eviction-controller")
                self.objects.delete(POD, pod)
