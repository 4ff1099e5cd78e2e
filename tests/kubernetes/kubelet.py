"""The kubelets of all nodes: they start the containers of pods, say how these are, and end them.

Where a node does not hear the API, nothing happens to its pods, and nothing new is said of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.kubernetes.containers import Exit, Running, Runtime, Waits, prepare
from tests.kubernetes.errors import ApiError, bad_request, internal
from tests.kubernetes.images import Images
from tests.kubernetes.kinds import POD
from tests.kubernetes.nodes import Nodes
from tests.kubernetes.objects import OVER, Object, Objects, condition, condition_of, epoch, is_true

COMPONENT, SANDBOX = "kubelet", "PodReadyToStartContainers"
OF_VOLUMES = ("FailedMount", "FailedAttachVolume")
SHUTDOWN = "Pod was terminated in response to imminent node shutdown."
LAST_BYTES, LAST_LINES = 2048, 80  # of the log, as the message of an end
SHUTDOWN_S = 25.0  # for the pods of a node that shuts down


@dataclass
class Ending:
    """The kubelet ends the pod by itself: what the pod's status says then, and when its time is over."""

    reason: str
    message: str
    at: float
    is_disruption: bool


class Kubelet:
    """`pull_s`: between a pod's place on a node and the start of its container."""

    def __init__(self, objects: Objects, nodes: Nodes, runtime: Runtime) -> None:
        self.objects, self.nodes, self.runtime, self.images = objects, nodes, runtime, Images()
        self.pull_s = 0.0
        self.running: dict[str, Running] = {}  # by the uid of the pod
        self._termed: set[str] = set()
        self._endings: dict[str, Ending] = {}

    def step(self) -> None:
        pods = {pod["metadata"]["uid"]: pod for pod in self.objects.of(POD)}
        for pod in pods.values():
            node = pod["spec"].get("nodeName")
            if node is not None and self.nodes.hears(node):
                self._sync(pod)
        for uid in [uid for uid in self.running if uid not in pods]:
            self.running.pop(uid).kill()  # it was removed by force

    def close(self) -> None:
        for running in self.running.values():
            running.kill()

    # --- what happens to nodes and pods -------------------------------------------------------------------------------

    def cut(self, node: str) -> None:
        """The power of the node: its containers are gone, and nobody says so."""
        self.nodes.silent[node] = self.objects.clock()
        for pod in self._pods_of(node):
            running = self.running.get(pod["metadata"]["uid"])
            if running is not None:
                running.kill()

    def boot(self, node: str) -> None:
        """It hears the API again."""
        self.nodes.silent.pop(node, None)

    def shut_down(self, node: str) -> None:
        """Graceful node shutdown: TERM to every pod, and the rest is killed."""
        for pod in self._pods_of(node):
            self._end_by_itself(pod, Ending("Terminated", SHUTDOWN, self.objects.clock() + SHUTDOWN_S, True))

    def evict(self, pod: Object, message: str, is_disruption: bool = True) -> None:
        """At once, because the node has too little of something. A limit of the pod's own volumes is no disruption."""
        self._end_by_itself(pod, Ending("Evicted", message, self.objects.clock(), is_disruption))

    def _end_by_itself(self, pod: Object, ending: Ending) -> None:
        self._endings[pod["metadata"]["uid"]] = ending
        if ending.is_disruption:
            condition(pod, "DisruptionTarget", "True", "TerminationByKubelet", ending.message, self.objects.at())
            self.objects.touch(pod)
        self._sync(pod)

    def _pods_of(self, node: str) -> list[Object]:
        living = (pod for pod in self.objects.of(POD) if pod["status"]["phase"] not in OVER)
        return [pod for pod in living if pod["spec"].get("nodeName") == node]

    # --- logs ---------------------------------------------------------------------------------------------------------

    def log(self, pod: Object, container: str) -> bytes:
        """Raises ApiError."""
        node, running = pod["spec"]["nodeName"], self.running.get(pod["metadata"]["uid"])
        if not self.nodes.hears(node):
            path = f"containerLogs/{pod['metadata']['namespace']}/{pod['metadata']['name']}/{container}"
            raise ApiError(500, "InternalError", f'Get "https://{node}:10250/{path}": dial tcp: i/o timeout')
        if running is not None:
            return running.log()
        state = pod["status"].get("containerStatuses", [{"state": {}}])[0]["state"]
        if "terminated" in state:
            raise internal(f"unable to retrieve container logs for {state['terminated'].get('containerID', '')}")
        reason = state.get("waiting", {}).get("reason", "ContainerCreating")
        pulls = reason in ("ErrImagePull", "ImagePullBackOff")
        why = "trying and failing to pull image" if pulls else reason
        raise bad_request(f'container "{container}" in pod "{pod["metadata"]["name"]}" is waiting to start: {why}')

    # --- one pod ------------------------------------------------------------------------------------------------------

    def _sync(self, pod: Object) -> None:
        uid, metadata = pod["metadata"]["uid"], pod["metadata"]
        if pod["status"]["phase"] in OVER:
            self._let_go(pod)
            return
        running = self.running.get(uid)
        if running is None:
            if "deletionTimestamp" in metadata or uid in self._endings:
                self._ended(pod, None)
            else:
                self._start(pod)
            return
        ended = running.poll()
        if ended is None:
            ended = self._press(pod, running)
        if ended is not None:
            self._ended(pod, ended)

    def _press(self, pod: Object, running: Running) -> Exit | None:
        """TERM, and KILL when the grace period is over. None = it runs on."""
        uid, deleted = pod["metadata"]["uid"], pod["metadata"].get("deletionTimestamp")
        own = self._endings.get(uid)
        times = [epoch(deleted)] if deleted else []
        times += [own.at] if own is not None else []
        if not times:
            return None
        if uid not in self._termed:
            self._termed.add(uid)
            running.terminate()
        if self.objects.clock() >= min(times):
            running.kill()
        return running.poll()

    def _start(self, pod: Object) -> None:
        (container,) = pod["spec"]["containers"]
        status = pod["status"]
        if "startTime" not in status:
            status["startTime"] = self.objects.at()
            status["hostIP"] = "10.0.0.5"
            self._wait(pod, "ContainerCreating", "", sandbox=False)
        try:
            launch = prepare(self.objects, pod)
        except Waits as waits:
            self.objects.event(pod, waits.event, waits.message, COMPONENT)
            self._wait(pod, waits.reason, waits.shown, sandbox=waits.event not in OF_VOLUMES)
            return
        if not is_true(pod, SANDBOX):
            self._wait(pod, "ContainerCreating", "")
        made = condition_of(pod, SANDBOX)
        if made is None or self.objects.clock() - epoch(made["lastTransitionTime"]) < self.pull_s:
            return
        problem = self.images.problem(container["image"])
        if problem is not None:
            self._refuse_image(pod, container["image"], *problem)
            return
        try:
            self.running[pod["metadata"]["uid"]] = self.runtime.start(launch)
        except OSError as error:
            self._not_started(pod, error)
        else:
            self._started(pod)

    def _refuse_image(self, pod: Object, image: str, reason: str, message: str) -> None:
        """First the error, then the backoff, which repeats it."""
        before = pod["status"]["containerStatuses"][0]["state"]["waiting"]
        if reason == "ErrImagePull" and before["reason"] in ("ErrImagePull", "ImagePullBackOff"):
            text = f'Back-off pulling image "{image}"'
            self.objects.event(pod, "BackOff", text, COMPONENT)
            self._wait(pod, "ImagePullBackOff", f"{text}: ErrImagePull: {message}")
            return
        self.objects.event(pod, "Failed", f'Failed to pull image "{image}": {message}', COMPONENT)
        self._wait(pod, reason, message)

    def _wait(self, pod: Object, reason: str, message: str, sandbox: bool = True) -> None:
        """`sandbox`: its volumes and its network are there; only its image or its variables may be missing."""
        state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        self._show(pod, state, ready=False, phase="Pending", sandbox=sandbox)

    def _not_started(self, pod: Object, error: OSError) -> None:
        program = error.filename or ""
        text = (
            "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
            f'failed: unable to start container process: error during container init: exec: "{program}": '
        )
        text += "executable file not found in $PATH" if isinstance(error, FileNotFoundError) else str(error)
        end = self._terminated(Exit(128), "StartError", f"{text}: unknown")
        self._show(pod, {"terminated": end}, ready=False, phase="Failed")
        self._let_go(pod)

    def _started(self, pod: Object) -> None:
        pod["status"]["podIP"] = "10.1.0.7"
        pod["status"]["podIPs"] = [{"ip": "10.1.0.7"}]
        self.objects.event(pod, "Started", "Container started", COMPONENT, warning=False)
        self._show(pod, {"running": {"startedAt": self.objects.at()}}, ready=True, phase="Running")

    def _ended(self, pod: Object, ended: Exit | None) -> None:
        """None: its container never ran."""
        uid, status = pod["metadata"]["uid"], pod["status"]
        own = self._endings.pop(uid, None)
        phase = "Succeeded" if ended is not None and ended.code == 0 and own is None else "Failed"
        if own is not None:
            status["reason"], status["message"] = own.reason, own.message
        state = status["containerStatuses"][0]["state"] if ended is None and "containerStatuses" in status else {}
        if ended is not None:
            reason = "OOMKilled" if ended.oom else "Completed" if ended.code == 0 else "Error"
            started = status["containerStatuses"][0]["state"].get("running", {}).get("startedAt", self.objects.at())
            end = self._terminated(ended, reason, self._last_words(pod, ended))
            state = {"terminated": {**end, "startedAt": started}}
        self._show(pod, state, ready=False, phase=phase)
        self._let_go(pod)

    def _let_go(self, pod: Object) -> None:
        """A deleted pod whose end is known is removed, once the Job controller has counted it."""
        if pod["metadata"].get("deletionGracePeriodSeconds"):
            pod["metadata"]["deletionGracePeriodSeconds"] = 0
            self.objects.touch(pod)
        self.objects.finalize(POD, pod)

    def _terminated(self, ended: Exit, reason: str, message: str) -> Object:
        at = self.objects.at()
        end: Object = {"exitCode": ended.code, "reason": reason, "startedAt": at, "finishedAt": at}
        return {**end, **({"message": message} if message else {})}

    def _last_words(self, pod: Object, ended: Exit) -> str:
        """By the container's terminationMessagePolicy."""
        (container,) = pod["spec"]["containers"]
        if ended.code == 0 or container["terminationMessagePolicy"] != "FallbackToLogsOnError":
            return ""
        lines = self.running[pod["metadata"]["uid"]].log().splitlines(keepends=True)[-LAST_LINES:]
        return b"".join(lines)[-LAST_BYTES:].decode(errors="replace")

    def _show(self, pod: Object, state: Object, *, ready: bool, phase: str, sandbox: bool = True) -> None:
        """The status of the pod with this state of its container."""
        (container,) = pod["spec"]["containers"]
        status, at = pod["status"], self.objects.at()
        pulled = "waiting" not in state and bool(state)
        statuses = [{
            "name": container["name"], "image": container["image"], "restartCount": 0, "ready": ready,
            "started": ready, "state": state, "lastState": {},
            "imageID": f"{container['image'].partition('@')[0]}@sha256:{'0' * 64}" if pulled else "",
        }]  # fmt: skip
        word = "True" if ready else "False"
        over = "PodCompleted" if phase == "Succeeded" else "PodFailed" if phase == "Failed" else "ContainersNotReady"
        text = f"containers with unready status: [{container['name']}]" if over == "ContainersNotReady" else ""
        has_sandbox = "True" if sandbox and phase not in OVER else "False"
        changed = condition(pod, "Initialized", "True", "", "", at)
        changed |= condition(pod, SANDBOX, has_sandbox, "", "", at)
        for name in ("Ready", "ContainersReady"):
            changed |= condition(pod, name, word, "" if ready else over, "" if ready else text, at)
        if changed or status.get("containerStatuses") != statuses or status["phase"] != phase:
            status["containerStatuses"], status["phase"] = statuses, phase
            self.objects.touch(pod)
