"""The tests' cluster in one piece: an API on loopback, its controllers, nodes whose pods run.

Time is `clock`'s. Nothing happens by itself: `step` lets all controllers act on what is there now, and `run` does so in
a thread, for tests with real processes. `close` raises AssertionError with what no client may do.

A test changes the cluster under `lock`, by these parts:
  api       away, fail_next, rights, token, count, requests
  nodes     add (name, labels, gpus, taints); kubelet.cut, kubelet.boot, kubelet.shut_down, remove_node
  pods      kubelet.evict, delete_pod, evict_by_api, end_container, submit_prod; kubelet.images.problems
  other     add_claim, add_quota, add_secret, expire_tokens; kueue (install_kueue)
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.kubernetes import quotas
from tests.kubernetes.api import NAMESPACE, Api
from tests.kubernetes.collectors import Collectors
from tests.kubernetes.containers import Runtime
from tests.kubernetes.jobs import JobController
from tests.kubernetes.kinds import CLAIM, JOB, NODE, POD, QUOTA, SECRET
from tests.kubernetes.kinds import NAMESPACE as NAMESPACES
from tests.kubernetes.kubelet import Kubelet
from tests.kubernetes.kueue import Kueue
from tests.kubernetes.nodes import Nodes
from tests.kubernetes.objects import OVER, Object, Objects, condition, controller_of
from tests.kubernetes.scheduler import Scheduler
from tests.kubernetes.still import StillRuntime
from tests.kubernetes.verbs import Target

STEP_S = 0.05  # of the thread
SPOT, POOL, PROD = "cloud.example/spot", "cloud.example/pool", "prod"
HIGH = 1000  # the priority of `prod`
IMAGE = f"registry.example/train@sha256:{'a' * 64}"
ROUNDS = 4  # in which a step comes to rest: a Job, its pod, its place, its container


class Cluster:
    """With nodes `spot-1` and `spot-2` of one pool, and `big-1` of another."""

    def __init__(self, clock: Callable[[], float] = time.time, runtime: Runtime | None = None) -> None:
        self.objects = Objects(clock)
        self.lock = self.objects.lock
        self.nodes = Nodes(self.objects)
        self.kubelet = Kubelet(self.objects, self.nodes, runtime or StillRuntime())
        self.api = Api(self.objects, self.kubelet.log)
        self.api.verbs.priorities[PROD] = HIGH
        self.scheduler, self.collectors = Scheduler(self.objects), Collectors(self.objects)
        self.jobs = JobController(self.objects, self._make_pod)
        self.kueue = Kueue(self.objects)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._errors: list[BaseException] = []
        self.objects.add(NAMESPACES, "", {"metadata": {"name": NAMESPACE}, "spec": {}, "status": {"phase": "Active"}})
        for name in ("spot-1", "spot-2"):
            self.nodes.add(name, {SPOT: "true"})
        self.nodes.add("big-1", {POOL: "big"})

    # --- time ---------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        with self.lock:
            for _ in range(ROUNDS):
                version = self.objects.version
                self.nodes.step()
                if self.api.kueue:
                    self.kueue.step()
                self.jobs.step()
                self.scheduler.step()
                self.kubelet.step()
                self.collectors.step()
                quotas.refresh(self.objects)
                if self.objects.version == version:
                    return

    def run(self) -> None:
        """Step in a thread until `close`."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(STEP_S):
            try:
                self.step()
            except Exception as error:  # noqa: BLE001 - close raises it
                self._errors.append(error)
                return

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self.api.server.close()
        self.kubelet.close()
        if self._errors:
            raise self._errors[0]
        told = "\n".join(self.api.violations)
        assert self.api.violations == [], f"exchanges that Kubernetes' API does not have:\n{told}"

    def kubeconfig(self, folder: Path) -> Path:
        path = folder / "kubeconfig"
        path.write_text(self.api.kubeconfig())
        return path

    # --- what is there ------------------------------------------------------------------------------------------------

    def job(self, name: str) -> Object:
        found = self.objects.find(JOB, NAMESPACE, name)
        assert found is not None, f"there is no Job {name}"
        return found

    def pods(self, job: str = "") -> list[Object]:
        """That have not ended, of one Job or of all."""
        living = [pod for pod in self.objects.of(POD, NAMESPACE) if pod["status"]["phase"] not in OVER]
        return [pod for pod in living if not job or (controller_of(pod) or {"name": ""})["name"] == job]

    def pod(self, job: str) -> Object:
        (pod,) = self.pods(job)
        return pod

    def names(self) -> set[tuple[str, str]]:
        """(kind, name) of every object in the namespace that a client has made, and of its pods."""
        kept = (JOB, POD, SECRET)
        return {(kind.kind, each["metadata"]["name"]) for kind in kept for each in self.objects.of(kind, NAMESPACE)}

    # --- what happens -------------------------------------------------------------------------------------------------

    def delete_pod(self, pod: Object) -> None:
        """By hand: kubectl delete pod."""
        with self.lock:
            self.objects.delete(POD, pod)

    def evict_by_api(self, pod: Object) -> None:
        """kubectl drain."""
        with self.lock:
            text = "Eviction API: evicting"
            condition(pod, "DisruptionTarget", "True", "EvictionByEvictionAPI", text, self.objects.at())
            self.objects.touch(pod)
            self.objects.delete(POD, pod)

    def end_container(self, pod: Object, code: int, oom: bool = False) -> None:
        """Of a StillRuntime."""
        with self.lock:
            self.kubelet.running[pod["metadata"]["uid"]].end(code, oom)  # type: ignore[attr-defined]

    def remove_node(self, name: str) -> None:
        """As an autoscaler or a cloud does, after its power is cut."""
        with self.lock:
            self.kubelet.cut(name)
            self.objects.remove(NODE, self.nodes.node(name))

    def submit_prod(self, name: str = "prod", seconds: float = 600.0, claim: str = "", **limits: str) -> Object:
        """A pod of another team in the spot pool, with a higher priority; it leaves no room for another of its size."""
        container = {"name": "prod", "image": IMAGE, "command": ["/bin/sleep", str(seconds)]}
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
        pod = {
            "metadata": {"name": name},
            "spec": {
                "restartPolicy": "Never",
                "priorityClassName": PROD,
                "nodeSelector": {SPOT: "true"},
                "containers": [{**container, "resources": {"limits": limits or {"cpu": "6"}}}],
                **({"volumes": volumes} if volumes else {}),
            },
        }
        with self.lock:
            return self._make_pod(NAMESPACE, pod)

    def add_claim(self, name: str, mode: str = "ReadWriteMany", phase: str = "Bound") -> None:
        with self.lock:
            self.objects.add(CLAIM, NAMESPACE, {
                "metadata": {"name": name},
                "spec": {
                    "accessModes": [mode], "resources": {"requests": {"storage": "100Gi"}}, "volumeName": f"pv-{name}",
                    "storageClassName": "shared", "volumeMode": "Filesystem",
                },
                "status": {"phase": phase, "accessModes": [mode], "capacity": {"storage": "100Gi"}},
            })  # fmt: skip

    def add_quota(self, name: str, hard: Mapping[str, str]) -> None:
        with self.lock:
            status = {"hard": dict(hard), "used": dict.fromkeys(hard, "0")}
            body = {"metadata": {"name": name}, "spec": {"hard": dict(hard)}, "status": status}
            self.objects.add(QUOTA, NAMESPACE, body)

    def remove_quota(self, name: str) -> None:
        with self.lock:
            quota = self.objects.find(QUOTA, NAMESPACE, name)
            assert quota is not None
            self.objects.remove(QUOTA, quota)

    def add_secret(self, name: str, **values: str) -> None:
        with self.lock:
            data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
            self.objects.add(SECRET, NAMESPACE, {"metadata": {"name": name}, "type": "Opaque", "data": data})

    def install_kueue(self, queue: str) -> None:
        with self.lock:
            self.api.kueue, self.api.verbs.on_job = True, self.kueue.hook
            self.api.verbs.on_workload = self.kueue.check
            self.kueue.add_queue(NAMESPACE, queue)

    def _make_pod(self, namespace: str, pod: Object) -> Object:
        return self.api.verbs.admit(Target(POD, namespace), pod)
