"""Holds a recording of exchanges with Google (setting `record_file`, `spot trial`) against the fakes of this folder.

    python -m tests.cloud.replay RECORDING

Each request is sent to a new cloud with the clock of the recording. Names that a service generates (ids, generations,
operations, page tokens) are translated as they come; what others did meanwhile, such as a machine that switched itself
off or wrote an object, is applied before a request whose recorded response shows it. Reported are: another status, and
for each method, status and mask the fields, their types, and the headers we rely on, which only one side ever has;
an order of statuses that the fakes never show, and operations and responses of another class of time (pace).
The exit code is 1 where there is any difference, 2 where the recording cannot be read.
"""

from __future__ import annotations

import http.client
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from tests.cloud import pace
from tests.cloud.cloud import BUCKET, PROJECT, Cloud
from tests.cloud.discovery import Found, Oracle
from tests.cloud.replayed_world import World
from tests.cloud.web import Request, Response

HEADERS = (
    "content-range", "content-type", "location", "range", "x-goog-generation", "x-goog-hash", "x-goog-metageneration",
    "x-goog-stored-content-encoding", "x-goog-stored-content-length",
)  # fmt: skip
# The first that has the method, where the host does not say it.
SERVICES = (
    "compute", "storage", "logging", "cloudresourcemanager", "iam", "cloudbilling", "secretmanager", "cloudbuild",
)  # fmt: skip
# Their keys are data, not fields.
MAPS = ("labels", "metadata", "instanceSelections")
# What a service makes up, and later requests name.
MADE_UP = (
    "id", "name", "generation", "metageneration", "nextPageToken", "fingerprint", "etag", "projectNumber",
)  # fmt: skip
SUMS = ("md5Hash", "crc32c")  # of the real content, which is not there
AT_ONCE = ("create_s", "fail_s", "queue_s")
# What ends takes so long that it ends only when the recording shows it: then the clock jumps.
SLOWLY, SLOWLY_S = ("delete_s", "stop_s", "preempted_stop_s"), 300.0
Json = Mapping[str, Any]


@dataclass
class Seen:
    """What one side answered to one method with one status and mask: field -> types, header names."""

    fields: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    headers: set[str] = field(default_factory=set)

    def add(self, body: Any, headers: Mapping[str, str]) -> None:
        for path, kind in _fields(body, ""):
            self.fields[path].add(kind)
        self.headers |= {f"{name}: {_told(name, headers[name])}" for name in HEADERS if name in headers}


class Replay:
    def __init__(self, lines: list[Json]) -> None:
        self.lines, self.now = lines, 0.0  # in the order in which they were answered
        self.jumped_s = 0.0
        self.cloud = Cloud(None, clock=lambda: self.now, live=False)
        for name in AT_ONCE:
            setattr(self.cloud.compute, name, 0.0)
        for name in SLOWLY:
            setattr(self.cloud.compute, name, SLOWLY_S)
        self.oracles = {service: Oracle(service) for service in SERVICES}
        self.names: dict[str, str] = {}  # Google's -> the fake's
        self.google: dict[str, Seen] = defaultdict(Seen)
        self.fakes: dict[str, Seen] = defaultdict(Seen)
        self.statuses: Counter[str] = Counter()
        self.listed: set[tuple[str, str]] = set()  # (zone, name) of machines that a listing has shown
        self.came_up: set[tuple[str, str]] = set()  # of machines that were shown running

    def differences(self) -> list[str]:
        """In sentences; [] = the fakes respond as Google did."""
        for number, line in enumerate(self.lines, 1):
            if "status" in line:  # the others got no response
                self._exchange(number, line)
        found = [f"{text} ({count} times)" for text, count in self.statuses.items()]
        for key in sorted(self.google):
            found += _compared(key, self.google[key], self.fakes[key])
        return [*found, *pace.differences(self.lines)]

    def close(self) -> None:
        self.cloud.close()

    def _exchange(self, number: int, line: Json) -> None:
        self.now = max(self.now, line["at"] + self.jumped_s)
        request = Request(line["method"], line["path"], line["query"], line["request_headers"], b"")
        service, found = self._service(line["host"], request)
        if found is None:
            self.statuses[f"{line['method']} {line['path']}: no fake has such a method"] += 1
            return
        self._learn_places(found, line)
        World(self, found, line).catch_up()
        response = self._ask(service, found, line)
        mask = request.one("fields")
        key = f"{found.method['id']} {line['status']}" + (f" fields={mask}" if mask else "")
        if response.status != line["status"]:
            text = f"{found.method['id']}: Google answered {line['status']}, the fake {response.status}"
            self.statuses[text] += 1
            return
        self._learn(line["answer"], response.body)
        self.google[key].add(line["answer"], line["headers"])
        self.fakes[key].add(response.body, response.headers)

    def jump(self) -> None:
        """Whatever is ending has ended."""
        self.jumped_s += SLOWLY_S + 1
        self.now += SLOWLY_S + 1
        self.cloud.compute.catch_up()

    def _service(self, host: str, request: Request) -> tuple[str, Found | None]:
        """By its host; stand-ins have other hosts."""
        named = host.removesuffix(".googleapis.com")
        for service in (named,) if named in SERVICES else SERVICES:
            found = self.oracles[service].find(request)
            if found is not None and _fits(found):
                return service, found
        return "", None

    def _learn_places(self, found: Found, line: Json) -> None:
        """Project, bucket and zones of the recording become those of the fakes."""
        at = found.arguments
        if "project" in at and "/images/" not in line["path"]:
            self.names[at["project"]] = PROJECT
        if "bucket" in at:
            self.names[at["bucket"]] = BUCKET
        zones = self.cloud.compute.catalog.zones
        if "zone" in at and at["zone"] not in zones:
            zones.append(at["zone"])

    def name(self, text: str) -> str:
        """As the fakes call it; also inside a path or link."""
        if text in self.names:
            return self.names[text]
        return "/".join(self.names.get(part, part) for part in text.split("/"))

    def named(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.named(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.named(one) for one in value]
        return self.name(value) if isinstance(value, str) else value

    def _learn(self, google: Any, ours: Any) -> None:
        """Of the two responses to one request."""
        if isinstance(google, dict) and isinstance(ours, dict):
            for key in google.keys() & ours.keys():
                one, other = google[key], ours[key]
                if key in MADE_UP and isinstance(one, str) and isinstance(other, str) and one and one != other:
                    self.names[one] = other
                self._learn(one, other)
        elif isinstance(google, list) and isinstance(ours, list) and len(google) == len(ours):
            for one, other in zip(google, ours, strict=True):
                self._learn(one, other)

    def _ask(self, service: str, found: Found, line: Json) -> Response:
        fakes = {"cloudresourcemanager": "projects", "cloudbilling": "billing", "secretmanager": "secrets"}
        fake = getattr(self.cloud, {**fakes, "cloudbuild": "builds"}.get(service, service))
        path = "/".join(quote(self.name(unquote(part)), safe="~:@-._") for part in line["path"].split("/"))
        query = {name: [self.name(value) for value in values] for name, values in line["query"].items()}
        headers = {**line["request_headers"], "authorization": "Bearer replay"}
        headers.pop("x-goog-user-project", None)  # the caller is not compared
        body, kind = _sent(self.named(line["request"]), headers.get("content-type", ""))
        if kind:
            headers["content-type"] = kind
        connection = http.client.HTTPConnection(urlsplit(fake.url).netloc, timeout=30)
        try:
            connection.request(line["method"], f"{path}?{urlencode(query, doseq=True)}", body, headers)
            with connection.getresponse() as answer:
                given = {name.lower(): value for name, value in answer.getheaders()}
                return Response(answer.status, _json(answer.read(), given), given)
        finally:
            connection.close()


def _fits(found: Found) -> bool:
    known = found.method.get("parameters", {})
    return all(re.search(known[name].get("pattern", ""), value) for name, value in found.arguments.items())


def _sent(request: Any, kind: str) -> tuple[bytes | None, str]:
    """The body to send, and its type. Of an upload the content is made up, in the recorded size."""
    if request is None:
        return None, kind
    if set(request) <= {"bytes", "json"} and "bytes" in request:
        content = b"\0" * int(request["bytes"] or 0)
        if "json" not in request:
            return content, kind
        about = {key: one for key, one in (request["json"] or {}).items() if key not in SUMS}
        head = b"--part\r\ncontent-type: application/json\r\n\r\n" + json.dumps(about).encode()
        middle = b"\r\n--part\r\ncontent-type: application/octet-stream\r\n\r\n"
        return head + middle + content + b"\r\n--part--", "multipart/related; boundary=part"
    return json.dumps(request).encode(), kind


def _json(data: bytes, headers: Mapping[str, str]) -> Any:
    """As the recorder keeps it: JSON, or nothing where it kept the size only."""
    try:
        return json.loads(data) if "json" in headers.get("content-type", "") else None
    except ValueError:
        return None


def _fields(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        if set(value) == {"bytes"}:
            return  # content, which the recorder does not keep
        last = path.rpartition(".")[2]
        data = (last in MAPS and "items" not in value) or any("/" in key for key in value)
        for key, one in value.items():
            yield from _fields(one, f"{path}.{'*' if data else key}".lstrip("."))
    elif isinstance(value, list):
        for one in value:
            yield from _fields(one, f"{path}[]")
    elif path:
        yield path, type(value).__name__


def _told(name: str, value: str) -> str:
    """Of a header: that it is there, of a type its first half."""
    return value.partition(";")[0].strip() if name == "content-type" else "present"


def _compared(key: str, google: Seen, ours: Seen) -> list[str]:
    found = [f"{key}: {path} is only in Google's answer" for path in sorted(google.fields.keys() - ours.fields.keys())]
    found += [
        f"{key}: {path} is only in the fake's answer" for path in sorted(ours.fields.keys() - google.fields.keys())
    ]
    for path in sorted(google.fields.keys() & ours.fields.keys()):
        if google.fields[path] != ours.fields[path]:
            kinds = " or ".join(sorted(google.fields[path])), " or ".join(sorted(ours.fields[path]))
            found.append(f"{key}: {path} is {kinds[0]} in Google's answer and {kinds[1]} in the fake's")
    found += [f"{key}: header {one}: only from Google" for one in sorted(google.headers - ours.headers)]
    return found + [f"{key}: header {one}: only from the fake" for one in sorted(ours.headers - google.headers)]


def main(words: list[str]) -> int:
    try:
        text = Path(words[0]).read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.splitlines()]
    except (IndexError, OSError, ValueError) as error:
        sys.stderr.write(f"make replay RECORDING=FILE: no recording can be read: {error}\n")
        return 2
    replay = Replay(lines)
    try:
        found = replay.differences()
    finally:
        replay.cloud.violations.clear()  # requests are Google's affair here, not ours
        replay.cloud.access.faults.clear()
        replay.close()
    for one in found:
        sys.stdout.write(f"{one}\n")
    sys.stdout.write(f"{len(lines)} exchanges, {len(found)} differences\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
