"""The recording: every exchange with a cloud as one JSON line, for a person or for `make replay` (`record_file`).

It is made in the HTTP adapter that each of our sessions mounts. Only headers from a list are kept, so a credential
cannot get in. JSON bodies are redacted like the log; values of metadata, which hold jobs and programs, and all other
bodies (checkpoints, logs) are recorded by their size only. When the file cannot be written the recording stops; no
exchange fails because of it.
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

from supervisor.telemetry import logs as telemetry
from supervisor.telemetry.redaction import DOTS, hidden, hidden_field

log = logging.getLogger(__name__)

BODY_MAX = 4 * 1024 * 1024  # bytes of JSON that are kept; a larger body is recorded by its size
REQUEST_HEADERS = (
    "content-type", "content-range", "range", "x-goog-api-version", "x-goog-user-project", "x-upload-content-length",
)  # fmt: skip
ANSWER_HEADERS = (
    "content-type", "content-length", "content-range", "date", "location", "range", "retry-after", "x-goog-generation",
    "x-goog-hash", "x-goog-metageneration", "x-goog-stored-content-encoding", "x-goog-stored-content-length",
)  # fmt: skip
# Page tokens are not secret, and a recording without them cannot be read.
_PLAIN = ("pageToken", "nextPageToken")
# The address of an upload in pieces lets anyone write that object for a week, without a credential.
_UPLOAD = "upload_id"
_UPLOAD_IN_ADDRESS = re.compile(rf"({_UPLOAD}=)[^&\s\"]+", re.IGNORECASE)


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
                    "The recording stops: its file cannot be written.",
                    extra={telemetry.ACTION: "record", telemetry.ERROR: str(error)},
                )


_recorder: Recorder | None = None


def begin(path: Path) -> None:
    """Record all sessions that are made from now on. Raises OSError."""
    global _recorder  # noqa: PLW0603 - a process has one recording
    if _recorder is None or _recorder.path != path:
        _recorder = Recorder(path)


def adapter(**pool: Any) -> Any:
    """What a session of requests mounts, with this pool of connections."""
    from requests.adapters import HTTPAdapter

    return HTTPAdapter(**pool) if _recorder is None else _recording(_recorder, HTTPAdapter)(**pool)


def _recording(recorder: Recorder, plain: Any) -> Any:
    class RecordingAdapter(plain):  # type: ignore[misc]
        def send(self, request: Any, stream: bool = False, **options: Any) -> Any:
            began, at = time.monotonic(), time.time()
            try:
                response = super().send(request, stream=stream, **options)
                line = _response_fields(response, stream)
            except Exception as error:
                recorder.write({**_request_fields(request, at), "error": _text(f"{type(error).__name__}: {error}")})
                raise
            recorder.write({**_request_fields(request, at), "took_s": round(time.monotonic() - began, 3), **line})
            return response

    return RecordingAdapter


def _request_fields(request: Any, at: float) -> dict[str, Any]:
    parts, headers = urlsplit(request.url), {name.lower(): value for name, value in request.headers.items()}
    query = parse_qs(parts.query, keep_blank_values=True)
    return {
        "at": round(at, 3),
        "host": parts.netloc,
        "method": request.method,
        "path": parts.path,
        "query": {name: [_named(name, value) for value in values] for name, values in query.items()},
        "request_headers": _kept(headers, REQUEST_HEADERS),
        "request": _body(request.body, _text(headers.get("content-type", ""))),
    }


def _response_fields(response: Any, stream: bool) -> dict[str, Any]:
    """A streamed body is left to the caller. Reading any other body here changes nothing: requests does it next, and
    raises the same errors."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    body = (
        {"bytes": headers.get("content-length")} if stream else _body(response.content, headers.get("content-type", ""))
    )
    return {"status": response.status_code, "headers": _kept(headers, ANSWER_HEADERS), "answer": body}


def _kept(headers: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    return {name: _text(headers[name]) for name in names if name in headers}


def _body(content: Any, kind: str) -> object:
    """JSON without its secrets; any other body by its size; None where there is none."""
    if not content:
        return None
    data = content.encode() if isinstance(content, str) else content
    if not isinstance(data, bytes | bytearray):
        return {"bytes": None}  # a file, which is sent in pieces
    if "json" in kind and len(data) <= BODY_MAX:
        try:
            return _redacted(json.loads(data))
        except (ValueError, RecursionError):
            pass
    if kind.startswith("multipart/related"):
        return {"bytes": len(data), "json": _first_part(bytes(data), kind)}
    return {"bytes": len(data)}


def _first_part(data: bytes, kind: str) -> object:
    """The description of the object in an upload; None where it cannot be read."""
    boundary = kind.partition("boundary=")[2].strip("\"'").encode()
    part = data.split(b"--" + boundary, 2)[1:2] if boundary else []
    try:
        return _redacted(json.loads(part[0].partition(b"\r\n\r\n")[2]))
    except (IndexError, ValueError, RecursionError):
        return None


def _redacted(value: object, name: str = "") -> object:
    if isinstance(value, Mapping):
        if set(value) == {"key", "value"}:  # an item of a machine's metadata
            return {"key": value["key"], "value": f"{DOTS} {len(str(value['value']))}"}
        return {str(key): _redacted(item, str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_redacted(item, name) for item in value]
    return _named(name, value)


def _named(name: str, value: object) -> object:
    if name.lower() == _UPLOAD:
        return DOTS
    return value if name in _PLAIN else hidden_field(name, value)


def _text(value: str | bytes) -> str:
    """A vendor's own client may give headers as bytes."""
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    return hidden(_UPLOAD_IN_ADDRESS.sub(rf"\1{DOTS}", text))
