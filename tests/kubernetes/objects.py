"""The objects of the cluster: identity, versions, pages of a list, and what a delete does to an object.

Callers hold `lock`. Objects are dictionaries as on the wire; whoever changes one calls `touch`.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from tests.kubernetes.errors import bad_request, expired
from tests.kubernetes.kinds import BY_KIND, EVENT, POD, Kind

Object = dict[str, Any]
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
MOST_PAGES = 8  # lists that are being read
EVENT_S = 10.0  # the same event is counted so often
TOKEN_LIFE_S = 300.0  # etcd is compacted every five minutes
OVER = ("Succeeded", "Failed")


class Objects:
    """`clock`: epoch seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock, self.lock = clock, threading.RLock()
        self.version = 1000
        self._by_kind: dict[Kind, dict[tuple[str, str], Object]] = {kind: {} for kind in BY_KIND.values()}
        self._pages: dict[int, tuple[float, list[Object]]] = {}  # version of the first page -> the whole list

    # --- time and versions --------------------------------------------------------------------------------------------

    def at(self, after_s: float = 0.0) -> str:
        return datetime.fromtimestamp(self.clock() + after_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def touch(self, resource: Object) -> None:
        self.version += 1
        resource["metadata"]["resourceVersion"] = str(self.version)

    # --- reading ------------------------------------------------------------------------------------------------------

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return self._by_kind[kind].get((namespace if kind.namespaced else "", name))

    def of(self, kind: Kind, namespace: str | None = None) -> list[Object]:
        """In the order of their names. None = of all namespaces."""
        entries = sorted(self._by_kind[kind].items())
        return [resource for (place, _), resource in entries if namespace in (None, place)]

    def everything(self) -> Iterator[tuple[Kind, Object]]:
        for kind, entries in self._by_kind.items():
            for resource in list(entries.values()):
                yield kind, resource

    def page(self, chosen: Callable[[], list[Object]], limit: int, token: str) -> tuple[list[Object], Object]:
        """(objects, the metadata of their list). `chosen`: all objects of the list, now. Raises ApiError."""
        version, start = _decode(token) if token else (self.version, "")
        proceeds = bool(token) and version == 0  # an inconsistent list
        known = self._pages.get(version)
        if token and not proceeds and (known is None or self.clock() - known[0] > TOKEN_LIFE_S):
            self._pages.pop(version, None)
            raise expired(_encode(0, start))
        whole = chosen() if known is None or not token or proceeds else known[1]
        rest = [resource for resource in whole if _key(resource) > start]
        page = rest[:limit] if limit else rest
        metadata: Object = {"resourceVersion": str(version or self.version)}
        if len(page) < len(rest):
            if not token:
                self._pages[version] = (self.clock(), copy.deepcopy(whole))
                while len(self._pages) > MOST_PAGES:
                    del self._pages[next(iter(self._pages))]
            metadata["continue"] = _encode(version, _key(page[-1]))
        return page, metadata

    def expire_tokens(self) -> None:
        """As a compaction of etcd does."""
        self._pages.clear()

    # --- changing -----------------------------------------------------------------------------------------------------

    def add(self, kind: Kind, namespace: str, resource: Object) -> Object:
        metadata = resource["metadata"]
        metadata["creationTimestamp"] = self.at()
        metadata.setdefault("uid", str(uuid.uuid4()))
        if kind.namespaced:
            metadata["namespace"] = namespace
        resource["apiVersion"], resource["kind"] = kind.api_version, kind.kind
        self._by_kind[kind][namespace if kind.namespaced else "", metadata["name"]] = resource
        self.touch(resource)
        return resource

    def remove(self, kind: Kind, resource: Object) -> None:
        metadata = resource["metadata"]
        self._by_kind[kind].pop((metadata.get("namespace", ""), metadata["name"]), None)
        self.version += 1

    def delete(self, kind: Kind, resource: Object, policy: str = "Background", grace_s: int | None = None) -> None:
        """As a DELETE does: a pod that runs gets its grace period, finalizers hold the object."""
        metadata = resource["metadata"]
        grace = self._grace(resource, grace_s) if kind is POD else 0
        if policy in ("Foreground", "Orphan"):
            finalizer = FOREGROUND if policy == "Foreground" else ORPHAN
            if finalizer not in metadata.setdefault("finalizers", []):
                metadata["finalizers"].append(finalizer)
        if "deletionTimestamp" not in metadata or grace < metadata.get("deletionGracePeriodSeconds", 0):
            metadata["deletionTimestamp"] = self.at(grace)
            metadata["deletionGracePeriodSeconds"] = grace
            self.touch(resource)
        self.finalize(kind, resource)

    def finalize(self, kind: Kind, resource: Object) -> None:
        """Remove it if it is deleted and nothing holds it."""
        metadata = resource["metadata"]
        if not metadata.get("finalizers"):
            metadata.pop("finalizers", None)
        is_free = "deletionTimestamp" in metadata and "finalizers" not in metadata
        if is_free and (kind is not POD or metadata["deletionGracePeriodSeconds"] == 0):
            self.remove(kind, resource)

    def _grace(self, pod: Object, grace_s: int | None) -> int:
        """A pod that is on no node, or is over, has nothing to end."""
        if "nodeName" not in pod["spec"] or pod["status"]["phase"] in OVER:
            return 0
        return int(pod["spec"]["terminationGracePeriodSeconds"]) if grace_s is None else grace_s

    def drop_finalizer(self, kind: Kind, resource: Object, finalizer: str) -> None:
        if finalizer in resource["metadata"].get("finalizers", ()):
            resource["metadata"]["finalizers"].remove(finalizer)
            self.touch(resource)
            self.finalize(kind, resource)

    def event(self, about: Object, reason: str, message: str, source: str, warning: bool = True) -> None:
        """The same event again only raises its count."""
        metadata = about["metadata"]
        namespace = metadata.get("namespace", "default")
        for event in self.of(EVENT, namespace):
            same = event["involvedObject"]["uid"] == metadata["uid"] and event["reason"] == reason
            if same and event["message"] == message:
                if self.clock() - epoch(event["lastTimestamp"]) < EVENT_S:
                    return
                event["count"] += 1
                event["lastTimestamp"] = self.at()
                self.touch(event)
                return
        involved = {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": metadata["name"],
            "namespace": namespace,
            "uid": metadata["uid"],
        }
        self.add(EVENT, namespace, {
            "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}"},
            "involvedObject": involved,
            "reason": reason, "message": message, "type": "Warning" if warning else "Normal",
            "source": {"component": source}, "reportingComponent": source, "reportingInstance": "",
            "firstTimestamp": self.at(), "lastTimestamp": self.at(), "count": 1, "eventTime": None,
        })  # fmt: skip


def condition(resource: Object, kind: str, status: str, reason: str, message: str, at: str) -> bool:
    """Set a condition of its status; whether it has changed."""
    conditions = resource["status"].setdefault("conditions", [])
    words = {"reason": reason, "message": message}
    new = {"type": kind, "status": status, **{name: text for name, text in words.items() if text}}
    old = next((item for item in conditions if item["type"] == kind), None)
    if old is not None and all(old.get(name, "") == new.get(name, "") for name in ("status", "reason", "message")):
        return False
    new["lastTransitionTime"] = at if old is None or old["status"] != status else old["lastTransitionTime"]
    new.update({"Pod": {"lastProbeTime": None}, "Job": {"lastProbeTime": at}}.get(resource["kind"], {}))
    if resource["kind"] == "Node":
        new["lastHeartbeatTime"] = at
    conditions[:] = [item for item in conditions if item["type"] != kind] + [new]
    return True


def condition_of(resource: Object, kind: str) -> Object | None:
    conditions: Iterable[Object] = (resource.get("status") or {}).get("conditions") or ()
    return next((item for item in conditions if item["type"] == kind), None)


def is_true(resource: Object, kind: str) -> bool:
    found = condition_of(resource, kind)
    return found is not None and found["status"] == "True"


def epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def controller_of(resource: Object) -> Object | None:
    """Its owner reference that controls it."""
    owners: list[Object] = resource["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def _key(resource: Object) -> str:
    return f"{resource['metadata'].get('namespace', '')}/{resource['metadata']['name']}"


def _encode(version: int, start: str) -> str:
    values = {"v": "meta.k8s.io/v1", "rv": version, "start": start}
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def _decode(token: str) -> tuple[int, str]:
    """Raises ApiError."""
    try:
        padded = token + "=" * (-len(token) % 4)
        values = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        return int(values["rv"]), re.sub(r"\0$", "", values["start"])
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from None
