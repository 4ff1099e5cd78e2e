"""Cloud Logging's `entries:list`, over what the tests' VMs wrote to their serial ports and what a test adds.

Of the query language only the used part: comparisons joined by AND. An unreadable filter is 400, never "everything".
Entries come in by `log`, or by `on_serial`, which keeps a console only where the VM was started with
`serial-port-logging-enable`, as the real service does, and a line at a time.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from tests.cloud.compute_errors import rfc3339
from tests.cloud.compute_instances import Instance
from tests.cloud.secretmanager import refusal
from tests.cloud.web import Request, Response, Watch, WebServer

SERIAL_LOG = "serialconsole.googleapis.com%2Fserial_port_1_output"
_TERM = re.compile(r'([A-Za-z_.]+)\s*(=|>=)\s*"([^"]*)"')
_FIELDS = {"logName", "resource.type", "resource.labels.instance_id", "timestamp"}
_PAGE_MAX = 1000


class LoggingFake:
    """`page_rows`: at most so many in one answer. `empty_pages`: so many answers of each question hold nothing but the
    token of the next. `denied`: 403 to everybody. `requests`: the bodies that were sent."""

    def __init__(self, clock: Callable[[], float] = time.time, watch: Watch | None = None, project: str = "p") -> None:
        self.project, self._clock = project, clock
        self.page_rows, self.empty_pages, self.denied = _PAGE_MAX, 0, ""
        self.authorize: Callable[[str | None], bool] | None = None
        self.requests: list[dict[str, Any]] = []
        self._entries: list[dict[str, Any]] = []
        self._torn: dict[str, bytes] = {}
        self._faults: list[Response | Exception] = []
        self._lock = threading.Lock()
        self.server = WebServer(self._answer, watch)

    @property
    def url(self) -> str:
        return self.server.url

    def close(self) -> None:
        self.server.close()

    # what is in it

    def log(self, log: str, instance_id: str, at: float, text: str = "", message: str = "") -> None:
        """One entry of a VM: `text` as textPayload, else `message` in a jsonPayload."""
        with self._lock:
            count = len(self._entries) + 1
            payload = {"textPayload": text} if text else {"jsonPayload": {"message": message}}
            self._entries.append({
                "insertId": f"e{count:09d}",
                "logName": f"projects/{self.project}/logs/{log}",
                "resource": {"type": "gce_instance",
                             "labels": {"instance_id": instance_id, "project_id": self.project}},
                "timestamp": rfc3339(at),
                "receiveTimestamp": rfc3339(at + 0.5),
                **payload,
            })  # fmt: skip

    def on_serial(self, vm: Instance, data: bytes) -> None:
        if vm.metadata.get("serial-port-logging-enable", "").lower() not in ("true", "1", "y", "yes"):
            return
        *lines, self._torn[vm.id] = (self._torn.get(vm.id, b"") + data).split(b"\n")
        for line in lines:
            self.log(SERIAL_LOG, vm.id, self._clock(), line.decode("utf-8", "replace").rstrip("\r") or " ")

    def texts(self) -> list[str]:
        """Of every entry, oldest first."""
        with self._lock:
            return [str(one.get("textPayload") or one["jsonPayload"]["message"]) for one in self._entries]

    def fail(self, *answers: Response | Exception) -> None:
        """The next requests get these instead."""
        self._faults += answers

    def forgive(self) -> None:
        self._faults = []

    # answering

    def _answer(self, request: Request) -> Response:
        if self._faults:
            fault = self._faults.pop(0)
            if isinstance(fault, Exception):
                raise fault
            return fault
        header = request.headers.get("authorization")
        if not header or (self.authorize is not None and not self.authorize(header)):
            return refusal(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        if (request.method, request.path) != ("POST", "/v2/entries:list"):
            return Response(404, b"<title>Error 404 (Not Found)!!1</title>", {"Content-Type": "text/html"})
        if self.denied:
            return refusal(403, "PERMISSION_DENIED", self.denied)
        body = request.json()
        self.requests.append(body)
        try:
            return Response(200, self._listed(body))
        except ValueError as error:
            return refusal(400, "INVALID_ARGUMENT", str(error))

    def _listed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if body.get("resourceNames") != [f"projects/{self.project}"]:
            raise ValueError("One or more resource names are invalid.")
        if body.get("orderBy", "timestamp asc") not in ("timestamp asc", "timestamp desc"):
            raise ValueError("orderBy is invalid.")
        wanted = _terms(str(body.get("filter") or ""))
        with self._lock:
            found = [entry for entry in self._entries if all(_holds(entry, *term) for term in wanted)]
        newest_first = body.get("orderBy") == "timestamp desc"
        found.sort(key=lambda entry: (_moment(entry["timestamp"]), entry["insertId"]), reverse=newest_first)
        empties, _, start = (body.get("pageToken") or "0:0").partition(":")
        if int(empties) < self.empty_pages:
            return {"nextPageToken": f"{int(empties) + 1}:{start}"}
        first = int(start)
        last = first + min(int(body.get("pageSize") or 50), self.page_rows)
        answer: dict[str, Any] = {"entries": found[first:last]} if found[first:last] else {}
        return answer | ({"nextPageToken": f"{empties}:{last}"} if last < len(found) else {})


def _terms(text: str) -> list[tuple[str, str, str]]:
    found = []
    for part in re.split(r"\s+AND\s+", text.strip()) if text.strip() else []:
        match = _TERM.fullmatch(part)
        if match is None or match.group(1) not in _FIELDS:
            raise ValueError(f"Unparseable filter: {part}")
        found.append((match.group(1), match.group(2), match.group(3)))
    return found


def _holds(entry: Mapping[str, Any], path: str, operator: str, wanted: str) -> bool:
    value: Any = entry
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if path == "timestamp":
        return operator == ">=" and _moment(str(value)) >= _moment(wanted)
    return operator == "=" and value == wanted


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
