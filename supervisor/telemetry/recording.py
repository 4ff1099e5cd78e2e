"""Every exchange with a cloud as one JSON line, for a person or for `make replay`: the setting `record_file`.

The one place is the HTTP adapter that each of our sessions mounts. Headers are kept by a list of names, so no
credential can get in. Bodies that are JSON pass the redaction of the log; the values of metadata, which hold jobs and
programs, and every body that is no JSON (checkpoints, logs) are told by their size alone. A recording that cannot be
written stops being written, and costs no exchange.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from supervisor.telemetry import logs as redaction
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

BODY_MAX = 4 * 1024 * 1024  # bytes of JSON that are kept; more is told by its size
REQUEST_HEADERS = (
    "content-type", "content-range", "range", "x-goog-api-version", "x-goog-user-project", "x-upload-content-length",
)  # fmt: skip
ANSWER_HEADERS = (
    "content-type", "content-length", "content-range", "date", "location", "range", "retry-after", "x-goog-generation",
    "x-goog-hash", "x-goog-metageneration", "x-goog-stored-content-encoding", "x-goog-stored-content-length",
)  # fmt: skip


class Recorder:
    """Appends to a file that only its owner can read. Safe for many threads, and for several processes."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self.path = path
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file: int | None = os.open(path, flags, 0o600)
        self._lock = threading.Lock()

    def write(self, line: Mapping[str, Any]) -> None:
        data = (json.dumps(line, ensure_ascii=False) + "\n").encode(errors="replace")
        with self._lock:
            if self._file is None:
                return
            try:
                os.write(self._file, data)
            except OSError as error:
                os.close(self._file)
                self._file = None
                log.warning(
                    "the recording stops here: it cannot be written",
                    extra={telemetry.ACTION: "record", telemetry.ERROR: str(error)},
                )


_recorder: Recorder | None = None


def begin(path: Path) -> None:
    """Sessions that are made from now on are recorded. Raises OSError."""
    global _recorder  # noqa: PLW0603 - a process has one recording
    if _recorder is None or _recorder.path != path:
        _recorder = Recorder(path)


def adapter(**pool: Any) -> Any:
    """What a session of requests mounts, with this pool of connections."""
    from requests.adapters import HTTPAdapter

    return HTTPAdapter(**pool) if _recorder is None else _recording(_recorder, HTTPAdapter)(**pool)


def _recording(recorder: Recorder, plain: Any) -> Any:
    class RecordingAdapter(plain):  # type: ignore[misc]
        def send(self, request: Any, stream: bool = False, **how: Any) -> Any:
            began, at = time.monotonic(), time.time()
            try:
                answer = super().send(request, stream=stream, **how)
                line = _answered(answer, stream)
            except Exception as error:
                recorder.write({**_asked(request, at), "error": _text(f"{type(error).__name__}: {error}")})
                raise
            recorder.write({**_asked(request, at), "took_s": round(time.monotonic() - began, 3), **line})
            return answer

    return RecordingAdapter


def _asked(request: Any, at: float) -> dict[str, Any]:
    parts, headers = urlsplit(request.url), {name.lower(): value for name, value in request.headers.items()}
    query = parse_qs(parts.query, keep_blank_values=True)
    return {
        "at": round(at, 3),
        "host": parts.netloc,
        "method": request.method,
        "path": parts.path,
        "query": {name: [_named(name, value) for value in values] for name, values in query.items()},
        "request_headers": {name: _text(headers[name]) for name in REQUEST_HEADERS if name in headers},
        "request": _body(request.body, _text(headers.get("content-type", ""))),
    }


def _answered(answer: Any, stream: bool) -> dict[str, Any]:
    """A streamed body is left for whoever asked for it. Reading the others here changes nothing: requests does it
    next, and raises the same errors."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    body: object = {"bytes": headers.get("content-length")} if stream else None
    if not stream:
        body = _body(answer.content, headers.get("content-type", ""))
    return {
        "status": answer.status_code,
        "headers": {name: _text(headers[name]) for name in ANSWER_HEADERS if name in headers},
        "answer": body,
    }


def _body(content: Any, kind: str) -> object:
    """JSON as it is, without secrets; anything else by its size; None where there is nothing."""
    if not content:
        return None
    data = content.encode() if isinstance(content, str) else content
    if not isinstance(data, bytes | bytearray):
        return {"bytes": None}  # a file, which is sent piece by piece
    if "json" in kind and len(data) <= BODY_MAX:
        try:
            return _hidden(json.loads(data))
        except (ValueError, RecursionError):
            pass
    if kind.startswith("multipart/related"):
        return {"bytes": len(data), "json": _first_part(bytes(data), kind)}
    return {"bytes": len(data)}


def _first_part(data: bytes, kind: str) -> object:
    """What an upload says of its object."""
    boundary = kind.partition("boundary=")[2].strip("\"'").encode()
    part = data.split(b"--" + boundary, 2)[1:2] if boundary else []
    try:
        return _hidden(json.loads(part[0].partition(b"\r\n\r\n")[2]))
    except (IndexError, ValueError, RecursionError):
        return None


def _hidden(value: object, name: str = "") -> object:
    if isinstance(value, Mapping):
        if set(value) == {"key", "value"}:  # an item of a machine's metadata
            return {"key": value["key"], "value": f"{redaction.DOTS} {len(str(value['value']))}"}
        return {str(key): _hidden(item, str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_hidden(item, name) for item in value]
    return _named(name, value)


# What lists are read on with: no secret, and a recording without them could not be read either.
_PLAIN = ("pageToken", "nextPageToken")
# The address of an upload in pieces lets anybody write that object, without a credential, for a week.
_UPLOAD = "upload_id"
_UPLOAD_IN_ADDRESS = re.compile(rf"({_UPLOAD}=)[^&\s\"]+", re.IGNORECASE)


def _named(name: str, value: object) -> object:
    if name.lower() == _UPLOAD:
        return redaction.DOTS
    return value if name in _PLAIN else redaction.hidden_field(name, value)


def _text(value: str | bytes) -> str:
    """A vendor's own client may give headers as bytes."""
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    return redaction.hidden(_UPLOAD_IN_ADDRESS.sub(rf"\1{redaction.DOTS}", text))
