"""The oracle: does an exchange agree with Google's own discovery document of that service?

It finds the method by verb and path, then checks path and query parameters, the bodies of request and answer, the
`fields` mask, and the shape of errors. The documents come with google-api-python-client. They say nothing of error
codes, quotas or the order of statuses: those are the fakes' own business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import googleapiclient

from tests.cloud import discovery_values as values
from tests.cloud.web import Request, Response

DOCUMENTS = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"
# Older clients and gcloud send it, the document of this month has it no more; the service takes it.
TOLERATED = {"compute": {"returnPartialSuccess": {"type": "boolean"}}}
VERSIONS = {"logging": "v2"}  # all others: v1
NESTED = ("compute", "storage")  # their paths begin with the service's name, and their errors carry reasons
ERROR_FIELDS = {"code", "message", "errors", "status", "details"}
REASON_FIELDS = {"message", "domain", "reason", "location", "locationType", "extendedHelp", "debugInfo"}
PARAMETER = "{}"
QUERY = "query"  # what we add to a method: the parameters that its query may have
Flat = tuple[tuple[str, re.Pattern[str], Mapping[str, Any]], ...]  # (verb, path, method), where not NESTED


@dataclass
class Node:
    """Of the tree of paths; `methods` by verb."""

    children: dict[str, Node] = field(default_factory=dict)
    methods: dict[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """`way`: plain, media (a download of content), upload, or session (bytes of a resumable upload)."""

    method: Mapping[str, Any]
    arguments: Mapping[str, str]
    way: str


class Oracle:
    """`service`: such as compute or cloudbuild. The document is read at the first check; safe for many threads."""

    def __init__(self, service: str) -> None:
        self.service = service
        self._good: dict[str, tuple[object, ...]] = {}  # path -> the last GET with nothing wrong in it

    def find(self, request: Request) -> Found | None:
        """The requested method; None: there is none."""
        return document_of(self.service).find(request)

    def check(self, request: Request, response: Response) -> list[str]:
        """The faults of this exchange, in sentences; [] = none."""
        if request.method != "GET" or request.body:
            return self._judge(request, response)
        exchange = (request.query, response.status, response.encoded)
        if self._good.get(request.raw_path) == exchange:
            return []  # as before: most reads of a supervisor find nothing new
        faults = self._judge(request, response)
        if not faults:
            self._good[request.raw_path] = exchange
        return faults

    def _judge(self, request: Request, response: Response) -> list[str]:
        document = document_of(self.service)
        found = document.find(request)
        line = f"{request.method} {request.raw_path}"
        if found is None:
            return [f"{line}: {self.service} has no such method"]
        asked = (_arguments(found, request), _request_body(document, found, request))
        checks = (*asked, _answer(document, found, request, response))
        return [f"{line} ({found.method['id']}): {one}" for check in checks for one in check]


@dataclass(frozen=True)
class Document:
    service: str
    schemas: Mapping[str, Any]
    root: Node
    flat: Flat = ()

    def find(self, request: Request) -> Found | None:
        if self.service not in NESTED:
            return self._find_flat(request)
        prefix, words = _ways(self.service, request.raw_path)
        if prefix is None:
            return None
        bound: list[str] = []
        verb = request.method
        if prefix == "upload" and request.one("upload_id") is not None:
            prefix, verb = "session", "POST"
        method = _walk(self.root, words, verb, bound)
        if method is None or (prefix in ("upload", "session") and "mediaUpload" not in method):
            return None
        if prefix == "plain" and request.one("alt") == "media":
            prefix = "media"
        names = [word.strip("{+}") for word in method["path"].split("/") if word.startswith("{")]
        return Found(method, dict(zip(names, bound, strict=True)), prefix)

    def _find_flat(self, request: Request) -> Found | None:
        """Of several methods with the same path, such as those with and without a location, the one whose names fit."""
        found = []
        for verb, pattern, method in self.flat:
            match = pattern.fullmatch(request.raw_path) if verb == request.method else None
            if match is not None:
                at = {name: unquote(value) for name, value in match.groupdict().items()}
                fits = all(re.search(method["parameters"][name].get("pattern", ""), at[name]) for name in at)
                found.insert(0 if fits else len(found), Found(method, at, "plain"))
        return found[0] if found else None


def _flat(methods: Iterable[Mapping[str, Any]]) -> Flat:
    """`{+name}` may hold several words, `{name}` holds one; the pattern of each is checked with the other arguments."""
    found = []
    for method in methods:
        path = re.sub(r"{\+(\w+)}", r"(?P<\1>[^:]+)", re.sub(r"{(\w+)}", r"(?P<\1>[^/:]+)", method["path"]))
        found.append((method["httpMethod"], re.compile("/" + path), method))
    return tuple(found)


def _ways(service: str, path: str) -> tuple[str | None, list[str]]:
    rooms = {f"/{service}/v1/": "plain"}
    if service == "storage":
        rooms |= {"/upload/storage/v1/": "upload", "/download/storage/v1/": "media"}
        rooms["/resumable/upload/storage/v1/"] = "upload"
    for start, way in rooms.items():
        if path.startswith(start):
            return way, path[len(start) :].split("/")
    return None, []


def _walk(node: Node, words: list[str], verb: str, bound: list[str]) -> Mapping[str, Any] | None:
    """A literal word is tried before a parameter."""
    if not words:
        return node.methods.get(verb)
    head, rest = words[0], words[1:]
    if head in node.children and (found := _walk(node.children[head], rest, verb, bound)) is not None:
        return found
    if PARAMETER in node.children and head:
        bound.append(unquote(head))
        if (found := _walk(node.children[PARAMETER], rest, verb, bound)) is not None:
            return found
        bound.pop()
    return None


@cache
def document_of(service: str) -> Document:
    raw = json.loads((DOCUMENTS / f"{service}.{VERSIONS.get(service, 'v1')}.json").read_bytes())
    common = raw["parameters"] | TOLERATED.get(service, {})
    methods = [{**method, QUERY: _query(method) | common} for method in _methods(raw["resources"])]
    root = Node()
    if service not in NESTED:
        return Document(service, raw["schemas"], root, _flat(methods))
    for method in methods:
        node = root
        for word in method["path"].split("/"):
            node = node.children.setdefault(PARAMETER if word.startswith("{") else word, Node())
        node.methods[method["httpMethod"]] = method
    return Document(service, raw["schemas"], root)


def _query(method: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in method.get("parameters", {}).items() if one["location"] == "query"}


def _methods(resources: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for resource in resources.values():
        yield from resource.get("methods", {}).values()
        yield from _methods(resource.get("resources", {}))


def _arguments(found: Found, request: Request) -> Iterator[str]:
    own = found.method.get("parameters", {})
    for name, value in found.arguments.items():
        yield from values.parameter(value, own.get(name, {}), f"path parameter {name}")
    known = found.method[QUERY]
    if found.way == "session":
        known = known | {"upload_id": {"type": "string"}}
    for name, sent in request.query.items():
        if name not in known:
            yield f"query parameter {name}: there is no such parameter"
            continue
        if len(sent) > 1 and not known[name].get("repeated"):
            yield f"query parameter {name}: sent {len(sent)} times"
        for value in sent:
            yield from values.parameter(value, known[name], f"query parameter {name}")
    for name, one in known.items():
        if one.get("required") and name not in request.query and found.way != "session":
            yield f"query parameter {name}: required, but not sent"


def _request_body(document: Document, found: Found, request: Request) -> Iterator[str]:
    if found.way == "session":
        return
    raw = request.body
    if found.way == "upload":
        kind = request.one("uploadType")
        if kind not in ("media", "multipart", "resumable"):
            yield f"query parameter uploadType: {kind!r} is none of media, multipart, resumable"
        if kind == "multipart":
            raw = _first_part(request)
        elif kind == "media":
            return
    schema = found.method.get("request")
    if schema is None:
        if raw.strip() not in (b"", b"{}"):
            yield f"body: {found.method['id']} takes none"
        return
    try:
        body = json.loads(raw) if raw.strip() else {}
    except ValueError:
        yield "body: it is no JSON"
        return
    judge = values.Values(document.schemas, found.method["id"], sent=True)
    yield from judge.check(body, schema, "body")


def _first_part(request: Request) -> bytes:
    """The JSON of a multipart/related upload; a body of another form is not JSON either."""
    kind = request.headers.get("content-type", "")
    _, _, boundary = kind.partition("boundary=")
    parts = request.body.split(b"--" + boundary.strip('"').encode(), 2) if boundary else []
    if len(parts) < 3 or not kind.startswith("multipart/related"):
        return b"no multipart"
    return parts[1].partition(b"\r\n\r\n")[2] or b"no multipart"


def _answer(document: Document, found: Found, request: Request, response: Response) -> Iterator[str]:
    status = response.status
    if status == 304 or (status == 308 and found.way == "session") or request.method == "HEAD":
        return
    if not 200 <= status < 300:
        yield from _error(document, found, response)
        return
    if found.way == "media" or (found.way == "session" and request.method == "DELETE"):
        return
    if found.way == "upload" and request.one("uploadType") == "resumable":
        if "location" not in {name.lower() for name in response.headers}:
            yield "answer: a resumable upload begins without a Location"
        return
    schema = found.method.get("response")
    body = _json(response)
    if schema is None:
        if response.encoded:
            yield f"answer: {found.method['id']} answers nothing, but there is a body"
        return
    if body is None:
        yield "answer: there is no JSON"
        return
    judge = values.Values(document.schemas, found.method["id"], sent=False)
    yield from judge.check(body, schema, "answer")
    yield from _masked(document, schema, body, request.one("fields"))


def _masked(document: Document, schema: Any, body: Any, words: str | None) -> Iterator[str]:
    if words is None:
        return
    try:
        mask = values.parse_mask(words)
    except ValueError as error:
        yield f"fields {words!r}: {error}"
        return
    yield from values.unknown_in_mask(mask, schema, document.schemas, "fields ")
    yield from values.outside_mask(body, mask, "answer")


def _error(document: Document, found: Found, response: Response) -> Iterator[str]:
    """Google's own form; downloads of content and front ends (5xx) may respond with plain text."""
    told = _json(response)
    if told is None and (found.way in ("media", "session") or response.status >= 500):
        return
    error = told.get("error") if isinstance(told, dict) else None
    if not isinstance(error, dict) or set(told) != {"error"}:
        yield f"answer {response.status}: {told!r} is no error of Google's form"
        return
    for name in sorted(set(error) - ERROR_FIELDS):
        yield f"answer.error.{name}: there is no such field"
    if error.get("code") != response.status:
        yield f"answer.error.code: {error.get('code')!r} with status {response.status}"
    if not isinstance(error.get("message"), str):
        yield "answer.error.message: missing"
    if document.service in NESTED:
        yield from _reasons(error.get("errors"))
    elif not isinstance(error.get("status"), str):
        yield "answer.error.status: missing"


def _reasons(reasons: Any) -> Iterator[str]:
    if not isinstance(reasons, list) or not reasons:
        yield "answer.error.errors: missing"
        return
    for number, reason in enumerate(reasons):
        for name in sorted(set(reason) - REASON_FIELDS):
            yield f"answer.error.errors[{number}].{name}: there is no such field"
        for name in ("message", "domain", "reason"):
            if not isinstance(reason.get(name), str):
                yield f"answer.error.errors[{number}].{name}: missing"


def _json(response: Response) -> Any:
    try:
        return json.loads(response.encoded)
    except ValueError:
        return None
