"""Uploads to the fake Cloud Storage: in one piece, with metadata in the same body, or in resumable pieces.

A resumable upload is a session: POST opens it, PUT sends bytes `Content-Range: bytes a-b/total`, and a broken one is
asked with `bytes */total`: 308 with the Range that has arrived, which is all of it in steps of 256 KiB. The object
appears with the last byte, and conditions count then.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.cloud.storage_objects import Conditions, Refusal, crc32c_of, md5_of
from tests.cloud.web import Request, Reset, Response

STEP = 256 * 1024
_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


@dataclass
class Upload:
    """The future object. `about`: the resource that came with it."""

    bucket: str
    name: str
    conditions: Conditions
    about: Mapping[str, Any]
    content_type: str
    data: bytes = b""

    def check_hashes(self, header: str = "") -> None:
        """Refusal 400 when the content is not what its sender says it is."""
        said = {"md5": self.about.get("md5Hash"), "crc32c": self.about.get("crc32c")}
        said |= dict(part.strip().split("=", 1) for part in header.split(",") if "=" in part)
        for kind, real in (("md5", md5_of(self.data)), ("crc32c", crc32c_of(self.data))):
            if said.get(kind) not in {None, real}:
                text = f'Provided {kind.upper()} hash "{said[kind]}" doesn\'t match calculated "{real}".'
                raise Refusal(400, "invalid", text)


@dataclass
class Session:
    upload: Upload
    size: int | None = None  # what its opener has announced
    arrived: bytearray = field(default_factory=bytearray)
    done: Any = None  # the object, once the last byte is here


class Sessions:
    """The resumable uploads under way. `break_after`: so many bytes of the next piece arrive, then the line breaks."""

    def __init__(self) -> None:
        self.open: dict[str, Session] = {}
        self.break_after: int | None = None
        self._numbers = itertools.count(1)

    def begin(self, upload: Upload, announced: str | None) -> str:
        name = f"upload-{next(self._numbers)}"
        self.open[name] = Session(upload, None if announced is None else int(announced))
        return name

    def session(self, request: Request) -> Session:
        found = self.open.get(request.one("upload_id") or "")
        if found is None:
            raise Refusal(404, "notFound", "The upload session does not exist.")
        return found

    def receive(self, session: Session, request: Request) -> Response | None:
        """Take a piece; returns its response, None for the last piece. Reset when the connection must break."""
        begin, total = _range(request)
        if None not in (total, session.size) and total != session.size:
            raise Refusal(400, "badRequest", f"The upload was begun for {session.size} bytes.")
        if begin is None:
            return None if total == len(session.arrived) else _so_far(session)
        if begin > len(session.arrived):
            raise Refusal(400, "badRequest", "Bytes between what has arrived and what was sent are missing.")
        piece = request.body[len(session.arrived) - begin :]
        if self.break_after is not None:
            keep = len(session.arrived) + min(self.break_after, len(piece))
            self.break_after = None
            session.arrived += piece[: max(0, keep // STEP * STEP - len(session.arrived))]
            raise Reset
        session.arrived += piece
        if total == len(session.arrived):
            return None
        if len(session.arrived) % STEP:
            raise Refusal(400, "badRequest", f"A piece that is not the last has a multiple of {STEP} bytes.")
        return _so_far(session)


def _range(request: Request) -> tuple[int | None, int | None]:
    """Where a piece begins (None: it is a question) and how long the whole is (None: not known yet)."""
    header = request.headers.get("content-range")
    if header is None:
        return 0, len(request.body)
    found = _RANGE.fullmatch(header)
    if found is None:
        raise Refusal(400, "badRequest", "Failed to parse Content-Range header.")
    return (None if found[1] is None else int(found[1])), (None if found[3] == "*" else int(found[3]))


def _so_far(session: Session) -> Response:
    """308 without a Range: nothing has arrived."""
    headers = {"Range": f"bytes=0-{len(session.arrived) - 1}"} if session.arrived else {}
    return Response(308, headers=headers)


def parts(request: Request) -> tuple[dict[str, Any], str, bytes]:
    """A multipart/related body: the resource, the content's type, the content. Refusal 400 for any other body."""
    found = re.search(r'boundary="?([^";]+)"?', request.headers.get("content-type", ""))
    pieces = request.body.split(b"--" + found[1].encode()) if found else []
    if len(pieces) < 4 or not pieces[-1].startswith(b"--"):
        raise Refusal(400, "badRequest", "Malformed multipart body.")
    about, _ = _part(pieces[1])
    content, content_type = _part((b"--" + found[1].encode()).join(pieces[2:-1]))
    return json.loads(about), content_type, content


def _part(raw: bytes) -> tuple[bytes, str]:
    lines, _, content = raw.removeprefix(b"\r\n").partition(b"\r\n\r\n")
    found = re.search(rb"(?im)^content-type: *(.*?)\r?$", lines)
    return content.removesuffix(b"\r\n"), found[1].decode() if found else "application/octet-stream"
