"""A few objects of a cluster behind a transport in memory: enough to break each request of the provider once.

It has no controllers: a test sets what a Job or a pod says. The whole API is in tests/kubernetes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2

from supervisor.contract.identifiers import request_id
from supervisor.domain.machines import Machine, MachineRef, Placement
from supervisor.ports.provider import LaunchRequest
from supervisor.providers.kubernetes.api import Api, Connection
from supervisor.providers.kubernetes.objects import labels
from supervisor.providers.kubernetes.provider import KubernetesProvider
from supervisor.providers.kubernetes.settings import KubernetesSettings

Json = dict[str, Any]
DAY, NAMESPACE = "2026-11-26", "training"
IMAGE = f"registry.example/train@sha256:{'a' * 64}"
SETTINGS = KubernetesSettings(
    kubernetes_namespace=NAMESPACE,
    kubernetes_pools={"spot": "cloud.example/spot=true", "big": "cloud.example/pool=big"},
    kubernetes_shapes=("cpu", "a100"),
    kubernetes_gpus={"a100": 1},
    kubernetes_cpus={"a100": 8},
    kubernetes_memory={"a100": "64Gi"},
)
PATH = re.compile(rf"/api(?:s/[^/]+)?/v1/namespaces/{NAMESPACE}/(\w+)(?:/([^/]+))?(/log)?")


def status(code: int, reason: str, message: str = "words") -> httpx2.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return httpx2.Response(code, json={**body, "message": message})


def torn() -> httpx2.Response:
    return httpx2.Response(200, content=b'{"kind": "Job", "meta', headers={"Content-Type": "application/json"})


Answer = Callable[[], httpx2.Response] | type[Exception]


class Script:
    """`pages`: items of a page of a list, 0 = all."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Json]] = {}
        self.requests: list[httpx2.Request] = []
        self.made: list[str] = []  # names of Jobs, in the order of their creation
        self.pages = 0
        self.denied: set[str] = set()
        self._failures: list[tuple[str, str, Answer, bool, int]] = []

    # --- what a test does ---------------------------------------------------------------------------------------------

    def fail(self, method: str, path: str, answer: Answer, *, lost: bool = False, times: int = 1) -> None:
        """`lost`: the request is carried out all the same."""
        self._failures.append((method, path, answer, lost, times))

    def all(self, kind: str) -> dict[str, Json]:
        return self.objects.setdefault(kind, {})

    def add(self, kind: str, item: Json) -> Json:
        item.setdefault("metadata", {}).setdefault("uid", str(uuid4()))
        self.all(kind)[item["metadata"]["name"]] = item
        return item

    def count(self, method: str = "", path: str = "") -> int:
        return sum(
            each.method == (method or each.method) and re.search(path, str(each.url)) is not None
            for each in self.requests
        )

    def pod(self, job: Json, name: str = "", **changes: Any) -> Json:
        """A pod of this Job, running unless `status` says otherwise."""
        owner = {"kind": "Job", "uid": job["metadata"]["uid"], "name": job["metadata"]["name"]}
        return self.add("pods", pod_of(name or f"{job['metadata']['name']}-x7f2k", owner, job["metadata"], **changes))

    # --- the transport ------------------------------------------------------------------------------------------------

    def client(self) -> httpx2.Client:
        def send(request: httpx2.Request) -> httpx2.Response:
            return self.handle(request)  # as it is then: a test may replace it

        return httpx2.Client(base_url="https://cluster.example", transport=httpx2.MockTransport(send))

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        for number, (method, path, answer, lost, times) in enumerate(self._failures):
            if times and method == request.method and re.search(path, str(request.url)):
                self._failures[number] = (method, path, answer, lost, times - 1)
                if lost:
                    self._answered(request)
                if isinstance(answer, type):
                    raise answer("as the test wants it", request=request)
                return answer()
        return self._answered(request)

    def _answered(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/selfsubjectaccessreviews"):
            return self._review(json.loads(request.content))
        if request.url.path == "/api/v1/nodes":
            return httpx2.Response(200, json={"items": list(self.all("nodes").values()), "metadata": {}})
        if request.url.path == f"/api/v1/namespaces/{NAMESPACE}":
            return httpx2.Response(200, json={"kind": "Namespace"})
        match = PATH.fullmatch(request.url.path)
        if match is None:
            return httpx2.Response(404, text="404 page not found")
        kind, name, log = match[1], match[2], match[3]
        if log:
            most = int(request.url.params["limitBytes"])
            return httpx2.Response(200, content=self.all("logs").get(name, {}).get("content", b"")[:most])
        answers = {"GET": self._read, "POST": self._create, "DELETE": self._delete}
        return answers[request.method](kind, name, request)

    def _read(self, kind: str, name: str | None, request: httpx2.Request) -> httpx2.Response:
        if name is not None:
            item = self.all(kind).get(name)
            return status(404, "NotFound") if item is None else httpx2.Response(200, json=item)
        items = [item for item in self.all(kind).values() if _selected(item, request.url.params.get("labelSelector"))]
        start = int(request.url.params.get("continue") or 0)
        end = start + (self.pages or len(items) or 1)
        token = {"continue": str(end)} if end < len(items) else {}
        return httpx2.Response(200, json={"kind": "List", "metadata": token, "items": items[start:end]})

    def _create(self, kind: str, _: str | None, request: httpx2.Request) -> httpx2.Response:
        item = json.loads(request.content)
        name = item["metadata"]["name"]
        if name in self.all(kind):
            return status(409, "AlreadyExists", f'{kind} "{name}" already exists')
        if kind == "jobs":
            self.made.append(name)
        item["metadata"] |= {"uid": str(uuid4()), "creationTimestamp": "2026-11-26T10:00:00Z"}
        self.add(kind, item)
        return httpx2.Response(201, json=item)

    def _delete(self, kind: str, name: str | None, request: httpx2.Request) -> httpx2.Response:
        item, options = self.all(kind).get(name or ""), json.loads(request.content)
        if item is None:
            return status(404, "NotFound")
        if options["preconditions"]["uid"] != item["metadata"]["uid"]:
            return status(409, "Conflict")
        assert options["propagationPolicy"] == "Foreground"
        del self.all(kind)[name or ""]
        return httpx2.Response(200, json={"kind": "Status", "status": "Success"})

    def _review(self, review: Json) -> httpx2.Response:
        wanted = review["spec"]["resourceAttributes"]
        words = f"{wanted['verb']} {wanted['resource']}" + (
            f"/{wanted['subresource']}" if "subresource" in wanted else ""
        )
        return httpx2.Response(201, json={**review, "status": {"allowed": words not in self.denied}})


def _selected(item: Json, selector: str | None) -> bool:
    own = item["metadata"].get("labels") or {}
    parts = [part.partition("=") for part in (selector or "").split(",") if part]
    return all(key in own and (not equal or own[key] == value) for key, equal, value in parts)


def pod_of(name: str, owner: Json, of_job: Json, **changes: Any) -> Json:
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "PodReadyToStartContainers", "status": "True"}]
    metadata = {
        "name": name,
        "uid": str(uuid4()),
        "creationTimestamp": "2026-11-26T10:00:01Z",
        "labels": of_job["labels"],
        "ownerReferences": [{**owner, "controller": True}],
        **changes.pop("metadata", {}),
    }
    state = {"phase": "Running", "conditions": conditions, **changes.pop("status", {})}
    return {"metadata": metadata, "spec": {"nodeName": "node-1", **changes.pop("spec", {})}, "status": state}


class Bench:
    """A provider on a script."""

    def __init__(self, folder: Path, s: KubernetesSettings = SETTINGS) -> None:
        self.script, self.settings, self.now = Script(), s, 1000.0
        self.agent = folder / "agent.pyz"
        self.agent.write_bytes(b"an agent")
        self.provider = self.fresh()

    def fresh(self, s: KubernetesSettings | None = None) -> KubernetesProvider:
        """Another one, as after a restart of the supervisor."""
        api = Api(lambda: Connection(self.script.client(), NAMESPACE), limit_s=5.0)
        return KubernetesProvider(
            "cluster", s or self.settings, api, agent=lambda: self.agent, on=DAY, monotonic=lambda: self.now
        )

    def request(self, run: str = "digits", try_number: int = 1, **changes: Any) -> LaunchRequest:
        return request(run, try_number, **changes)

    def job(self, wanted: LaunchRequest, **changes: Any) -> Json:
        """A Job of this launch that is there already."""
        item = {
            "metadata": {
                "name": wanted.name, "uid": str(uuid4()), "labels": labels(wanted, "spot"),
                "creationTimestamp": "2026-11-26T10:00:00Z", **changes.pop("metadata", {}),
            },
            "spec": changes.pop("spec", {}),
            "status": changes.pop("status", {}),
        }  # fmt: skip
        return self.script.add("jobs", item)

    def listed(self, wanted: LaunchRequest) -> Machine | None:
        return next((each for each in self.provider.machines().machines if each.name == wanted.name), None)


def request(run: str = "digits", try_number: int = 1, **changes: Any) -> LaunchRequest:
    launch_id = f"1.1.{try_number}"
    values: dict[str, Any] = {
        "name": f"spot-{run}-a1-t{try_number}",
        "request_id": request_id("supervisor-one", run, 1, 1, try_number),
        "placement": Placement("cluster", "kubernetes", "spot", "a100", True),
        "supervisor_id": "supervisor-one",
        "run_id": run,
        "launch_id": launch_id,
        "machine_max_s": 3600.0,
        "job": {"version": 1, "run_id": run, "launch_id": launch_id, "nonce": "n", "command": "python3 train.py"},
        "image": IMAGE,
    }
    return LaunchRequest(**{**values, **changes})


def ref(wanted: LaunchRequest, machine_id: str | None = None) -> MachineRef:
    return MachineRef("cluster", wanted.placement.zone, wanted.name, machine_id)


def conditions(*rows: tuple[str, str, str]) -> Json:
    """(type, reason, message), all of them true."""
    return {
        "conditions": [
            {"type": kind, "status": "True", "reason": reason, "message": text} for kind, reason, text in rows
        ]
    }


def bodies(requests: Iterable[httpx2.Request], plural: str) -> list[Mapping[str, Any]]:
    """Of the creates of objects of this kind."""
    return [
        json.loads(each.content) for each in requests if each.method == "POST" and each.url.path.endswith(f"/{plural}")
    ]
