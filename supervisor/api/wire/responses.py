"""Answers: JSON from values made by hand, the tags of runs, and answers that were kept under an Idempotency-Key.

No model is validated on the way out.

The entity tag of a run (RFC 9110, sections 8.8.3 and 13.1) is `"VERSION-DIGEST"`. The version is the row's: it moves
with every change of the run, and a PATCH is made only to the one that its sender has seen. The digest is of what is
shown: beats, ages and costs move that without changing the row. So `If-None-Match` compares the whole tag, and
`If-Match` the version in it.
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
from supervisor.services.views.run_view import RunJson, dumps

MOST = 64  # tags in one header; more are not looked at
_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_BETWEEN = re.compile(r"[ \t]*(?:,[ \t]*)+")
_VERSION = re.compile(r"([0-9]{1,18})-[0-9a-f]{16}\Z")


@dataclass(frozen=True, slots=True)
class Tag:
    """`opaque`: what stands between the quotes."""

    opaque: str
    weak: bool = False

    @property
    def version(self) -> int | None:
        """None: not a tag of a run."""
        found = _VERSION.match(self.opaque)
        return int(found.group(1)) if found else None


@dataclass(frozen=True, slots=True)
class Tags:
    """`anything`: the header said `*`."""

    tags: tuple[Tag, ...] = ()
    anything: bool = False


def make_tag(version: int, shown: str) -> str:
    """The tag of a run's row version and the text of the answer that shows it."""
    return f'"{version}-{hashlib.sha256(shown.encode()).hexdigest()[:16]}"'


def tag_of(shown: str) -> str:
    """The same, from the text of the run alone: an answer that was kept comes as text."""
    return make_tag(json.loads(shown)["version"], shown)


def parse_tags(lines: Sequence[str]) -> Tags | None:
    """The lines of one If-Match or If-None-Match header: a list of tags, or `*` alone. None: neither of them."""
    text = ", ".join(lines).strip(" \t")
    if text == "*":
        return Tags(anything=True)
    found: list[Tag] = []
    at = 0
    while at < len(text) and len(found) < MOST:
        match = _TAG.match(text, at)
        if match is None:
            return None
        found.append(Tag(match.group(2), match.group(1) is not None))
        at = match.end()
        if at < len(text):
            comma = _BETWEEN.match(text, at)
            if comma is None:
                return None
            at = comma.end()
    return Tags(tuple(found)) if found else None


def is_known(lines: Sequence[str], tag: str) -> bool:
    """`If-None-Match`: the client has what `tag` stands for. Compared weakly, as RFC 9110 asks: a proxy that packs an
    answer weakens its tag. What cannot be read as tags is no condition."""
    wanted = parse_tags(lines)
    if wanted is None:
        return False
    return wanted.anything or any(one.opaque == tag[1:-1] for one in wanted.tags)


def versions(wanted: Tags) -> frozenset[int] | None:
    """`If-Match`: the versions that may be changed; None = any. Compared strongly: a weak tag never matches."""
    if wanted.anything:
        return None
    return frozenset(tag.version for tag in wanted.tags if not tag.weak and tag.version is not None)


def json_response(answer: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(dumps(answer), status, headers, "application/json")


def run_response(run: RunJson, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A run as it is shown, with the tag of its version and of this text."""
    text = dumps(run)
    tag = make_tag(run["version"], text)
    return Response(text, status, {**(headers or {}), "ETag": tag}, "application/json")


def run_unless_known(request: Request, run: RunJson) -> Response:
    """304 without a body where the client has this text already."""
    response = run_response(run)
    if is_known(request.headers.getlist("if-none-match"), response.headers["etag"]):
        return Response(None, 304, {"ETag": response.headers["etag"]})
    return response


HEADER = "Idempotency-Key"


def key_of(request: Request) -> str | None:
    """Raises InvalidRequest where it is given twice."""
    given = request.headers.getlist(HEADER)
    if len(given) > 1:
        raise InvalidRequest(f"{HEADER} is given twice.")
    return given[0] if given else None


def key_of_request(request: Request, payload: object) -> KeyedRequest | None:
    """None: the request has no key. `payload`: all that its body asks for, as JSON values. Raises InvalidRequest."""
    operation = f"{request.method} {request.url.path}"
    return keyed_request(key_of(request), scope_of(caller_of(request), operation), payload)


def kept_response(reply: Reply) -> Response:
    """An answer that is kept: the text of a run."""
    tag = tag_of(reply.body) if reply.version is None else make_tag(reply.version, reply.body)
    headers = {"ETag": tag}
    if reply.location:
        headers["Location"] = reply.location
    if reply.replayed:
        headers["Idempotency-Replayed"] = "true"
    return Response(reply.body, reply.status, headers, "application/json")
