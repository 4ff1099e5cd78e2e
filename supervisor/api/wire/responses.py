"""Responses: JSON without validation by a model, the tags of runs, and responses kept under an Idempotency-Key.

The entity tag of a run (RFC 9110, sections 8.8.3 and 13.1) is `"VERSION-DIGEST"`. The version is the row's: it changes
with every change of the run, and a PATCH names the version that its sender has seen. The digest is of the whole text:
beats, ages and costs change it without a change of the row. So `If-None-Match` compares the whole tag, and `If-Match`
the version in it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import Request, Response

from supervisor.api.wire.deps import caller_of
from supervisor.domain.errors import InvalidRequest
from supervisor.services.runs.keys import KeyedRequest, Reply, keyed_request, scope_of
from supervisor.services.views.formats import dumps
from supervisor.services.views.run_view import RunJson

KEY_HEADER = "Idempotency-Key"
NO_HEADERS: Mapping[str, str] = {}
SNIFFED = {"X-Content-Type-Options": "nosniff"}
_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_SEPARATOR = r"[ \t]*(?:,[ \t]*)+"
_TAG_LIST = re.compile(rf"{_TAG.pattern}(?:{_SEPARATOR}{_TAG.pattern})*(?:{_SEPARATOR})?")
_VERSION = re.compile(r"([0-9]{1,18})-[0-9a-f]{16}\Z")


@dataclass(frozen=True, slots=True)
class Tag:
    """`opaque`: the text between the quotes."""

    opaque: str
    weak: bool = False

    @property
    def version(self) -> int | None:
        """None: not a tag of a run."""
        match = _VERSION.match(self.opaque)
        return int(match.group(1)) if match else None


@dataclass(frozen=True, slots=True)
class Tags:
    """`anything`: the header is `*`."""

    tags: tuple[Tag, ...] = ()
    anything: bool = False


def make_tag(version: int, shown: str) -> str:
    """The tag of a run's row version and of the text that shows it."""
    return f'"{version}-{hashlib.sha256(shown.encode()).hexdigest()[:16]}"'


def parse_tags(lines: Sequence[str]) -> Tags | None:
    """The lines of one If-Match or If-None-Match header: a list of tags, or `*` alone. None: neither of them."""
    text = ", ".join(lines).strip(" \t")
    if text == "*":
        return Tags(anything=True)
    if _TAG_LIST.fullmatch(text) is None:
        return None
    return Tags(tuple(Tag(opaque, bool(weak)) for weak, opaque in _TAG.findall(text)))


def is_known(lines: Sequence[str], tag: str) -> bool:
    """`If-None-Match`: the client has the content of `tag`. The comparison is weak, as RFC 9110 demands: a proxy that
    compresses a response weakens its tag. A header without tags is no condition."""
    condition = parse_tags(lines)
    if condition is None:
        return False
    return condition.anything or any(given.opaque == tag[1:-1] for given in condition.tags)


def versions(condition: Tags) -> frozenset[int] | None:
    """`If-Match`: the versions that may be changed; None = any. The comparison is strong: a weak tag never matches."""
    if condition.anything:
        return None
    return frozenset(tag.version for tag in condition.tags if not tag.weak and tag.version is not None)


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(dumps(value), status, headers, "application/json")


def run_response(run: RunJson, status: int = 200) -> Response:
    """A run with the tag of its version and of this text."""
    text = dumps(run)
    return Response(text, status, {"ETag": make_tag(run["version"], text)}, "application/json")


def unless_known(request: Request, text: str, media_type: str, headers: Mapping[str, str] = NO_HEADERS) -> Response:
    """The text with a tag of its own; 304 without a body where the client has it already."""
    tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
    if is_known(request.headers.getlist("if-none-match"), tag):
        return Response(None, 304, {"ETag": tag})
    return Response(text, 200, {**headers, "ETag": tag}, media_type)


def run_unless_known(request: Request, run: RunJson) -> Response:
    """304 without a body where the client has this text already."""
    response = run_response(run)
    if is_known(request.headers.getlist("if-none-match"), response.headers["etag"]):
        return Response(None, 304, {"ETag": response.headers["etag"]})
    return response


def key_of(request: Request) -> str | None:
    """Raises InvalidRequest where the header is given twice."""
    keys = request.headers.getlist(KEY_HEADER)
    if len(keys) > 1:
        raise InvalidRequest(f"{KEY_HEADER} is given twice.")
    return keys[0] if keys else None


def key_of_request(request: Request, payload: object) -> KeyedRequest | None:
    """None: the request has no key. `payload`: everything in its body, as JSON values. Raises InvalidRequest."""
    operation = f"{request.method} {request.url.path}"
    return keyed_request(key_of(request), scope_of(caller_of(request), operation), payload)


def kept_response(reply: Reply) -> Response:
    """The text of a run, made now or kept under a key."""
    version = json.loads(reply.body)["version"] if reply.version is None else reply.version
    headers = {"ETag": make_tag(version, reply.body)}
    if reply.location:
        headers["Location"] = reply.location
    if reply.replayed:
        headers["Idempotency-Replayed"] = "true"
    return Response(reply.body, reply.status, headers, "application/json")
