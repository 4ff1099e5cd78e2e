"""What others did between the requests of a recording, brought about in the fakes before a request that shows it.

A machine that switched itself off, an object that an agent wrote, an operation that ended: the recorded response shows
it, and the fakes are changed (tests/cloud/replay.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.cloud.cloud import BUCKET
from tests.cloud.discovery import Found

if TYPE_CHECKING:
    from tests.cloud.replay import Replay

STARTING = "STAGING"
Json = Mapping[str, Any]


class World:
    """What others did before this request, as its recorded response shows."""

    def __init__(self, replay: Replay, found: Found, line: Json) -> None:
        self.cloud, self.found, self.line, self.name = replay.cloud, found, line, replay.name
        self.replay, self.names, self.listed = replay, replay.names, replay.listed
        self.status, self.answer = line["status"], line["answer"]

    def catch_up(self) -> None:
        steps = {
            "storage.objects.get": self._object,
            "storage.objects.list": self._objects,
            "storage.objects.delete": self._written,
            "storage.objects.insert": self._written,
            "compute.instances.get": self._machine,
            "compute.instances.getSerialPortOutput": self._console,
            "compute.instances.simulateMaintenanceEvent": self._maintained,
            "compute.instances.delete": self._machine,
            "compute.instances.aggregatedList": self._machines,
            "compute.zoneOperations.get": self._operation,
        }
        if self.found.method["id"] in steps:
            steps[self.found.method["id"]]()

    def _object(self) -> None:
        key, generation = self.found.arguments["object"], (self.line["query"].get("generation") or [""])[-1]
        if self.status in (200, 206):
            body = self.answer if isinstance(self.answer, dict) else {}
            size = body.get("size") or self.line["headers"].get("x-goog-stored-content-length") or 0
            self._have(key, int(size), body.get("metadata"))
            if generation and generation not in self.names:
                self.names[generation] = str(self._stored(key).generation)
        elif self.status == 404:
            self._lack(key)

    def _objects(self) -> None:
        items = self.answer.get("items") or () if self.status == 200 else ()
        listed = {item["name"] for item in items if "name" in item}
        for item in items:
            if "name" in item:
                self._have(item["name"], int(item.get("size") or 0), item.get("metadata"))
        whole = self.status == 200 and not self.answer.get("nextPageToken") and "pageToken" not in self.line["query"]
        if whole:
            for name in self.cloud.storage.names(BUCKET, (self.line["query"].get("prefix") or [""])[-1]):
                if name not in listed:
                    self._lack(name)

    def _written(self) -> None:
        """A write that found another generation than it expected, or none, or the one that it had read."""
        about = (self.line["request"] or {}).get("json") or {}
        named = self.found.arguments.get("object") or about.get("name")
        key = named or (self.line["query"].get("name") or [""])[-1]
        wanted = (self.line["query"].get("ifGenerationMatch") or [""])[-1]
        stored = self._stored(key)
        if self.status == 412 and stored is not None and wanted != "0":
            self.cloud.storage.put(BUCKET, key, stored.data, dict(stored.metadata))
        elif self.status == 404 or (self.status == 200 and wanted == "0"):
            self._lack(key)
        elif self.status in (204, 412) or (self.status == 200 and wanted):
            self._have(key, 0, None)
            if self.status != 412 and wanted:
                self.names[wanted] = str(self._stored(key).generation)

    def _have(self, key: str, size: int, metadata: Any) -> None:
        stored = self._stored(key)
        if stored is None or (metadata is not None and dict(stored.metadata) != metadata):
            self.cloud.storage.put(BUCKET, key, b"\0" * size, dict(metadata or {}))

    def _lack(self, key: str) -> None:
        if self._stored(key) is not None:
            self.cloud.storage.remove(BUCKET, key)

    def _stored(self, key: str) -> Any:
        return self.cloud.storage.find(BUCKET, key)

    def _machine(self) -> None:
        self._brought(*self._named(), "gone" if self.status == 404 else (self.answer or {}).get("status", ""))

    def _console(self) -> None:
        """It is not ready (400) before the machine has come up as after its end."""
        ended = self._named() in self.replay.came_up
        statuses = {200: "RUNNING", 400: "TERMINATED" if ended else STARTING, 404: "gone"}
        self._brought(*self._named(), statuses.get(self.status, ""))

    def _maintained(self) -> None:
        """Only one that runs is."""
        self._brought(*self._named(), "RUNNING" if self.status == 200 else "")

    def _named(self) -> tuple[str, str]:
        return self.found.arguments["zone"], self.found.arguments["instance"]

    def _machines(self) -> None:
        listed = {}
        for scope, part in (self.answer.get("items") or {}).items() if self.status == 200 else ():
            for item in part.get("instances") or ():
                listed[scope.rpartition("/")[2], item.get("name")] = item.get("status", "")
        for vm in self.cloud.instances():
            # A create call and a listing may cross: what no listing has shown yet is not gone.
            missing = "gone" if (vm.zone, vm.name) in self.listed else ""
            status = listed.get((vm.zone, vm.name), missing)
            self._brought(vm.zone, vm.name, "" if status == STARTING else status)
        self.listed |= listed.keys()

    def _brought(self, zone: str, name: str, status: str) -> None:
        """A machine in the status that Google reported. Here it runs as soon as it is requested."""
        compute = self.cloud.compute
        if status == "RUNNING":
            self.replay.came_up.add((zone, name))
        if name not in compute.names() or compute.instance(name, zone).status == status:
            return
        if status == STARTING or (status == "RUNNING" and compute.instance(name, zone).status == STARTING):
            compute.instance(name, zone).change(status=status)
        elif status == "gone":
            self.replay.jump()
            if name in compute.names():
                compute.delete_by("somebody", name, zone)
                self.replay.jump()
        elif status == "TERMINATED":
            compute.guest_powered_off(name, zone)
            self.replay.jump()

    def _operation(self) -> None:
        if self.status == 200 and self.answer.get("status") == "DONE":
            name = self.name(self.found.arguments["operation"])
            if any(one.name == name and one.status != "DONE" for one in self.cloud.compute.operations.all()):
                self.replay.jump()
