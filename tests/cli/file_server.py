"""A server of files for `spot pull`, good or hostile: it can cut responses, lie, and change its files."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from supervisor.contract.baton import FileEntry
from supervisor.contract.runfiles import manifest_sha256


@dataclass
class FileServer:
    """`files`: path -> content. `cut[path]`: bytes after which the next responses break off, one entry each.
    `away[path]`: how many answers are 503. `listed`: the list instead of the honest one.
    `sent`: (path, first byte, number of bytes) of each answer. `noted`: the pulls that were told."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cut: dict[str, list[int]] = field(default_factory=dict)
    away: dict[str, int] = field(default_factory=dict)
    served: dict[str, bytes] = field(default_factory=dict)  # what is given instead of the content
    listed: "list[dict[str, Any]] | None" = None
    older_lists: "list[list[dict[str, Any]]]" = field(default_factory=list)  # the next answers instead of the list
    sent: list[tuple[str, int, int]] = field(default_factory=list)
    noted: list[Any] = field(default_factory=list)
    refuse_note: bool = False
    verified: bool = True
    partial: Any = None

    def entries(self, kinds: list[str]) -> list[dict[str, Any]]:
        if self.older_lists:
            return self.older_lists.pop(0)
        if self.listed is not None:
            return self.listed
        return [
            {"path": path, "kind": path.split("/")[0], "size": len(data), "sha256": sha256(data), "updated": None}
            for path, data in sorted(self.files.items())
            if path.split("/")[0] in kinds
        ]

    @property
    def results_sha256(self) -> "str | None":
        results = {path: data for path, data in self.files.items() if path.startswith("results/")}
        return manifest_sha256(
            FileEntry(path.split("/", 2)[2], len(data), sha256(data)) for path, data in results.items()
        )

    def bytes_of(self, path: str) -> int:
        return sum(size for name, _, size in self.sent if name == path)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def asked_from(headers: Any, tag: str) -> int:
    """The first byte of the requested range, 0 when the range is of another content."""
    wanted_range = headers.get("Range", "")
    same = wanted_range and headers.get("If-Range") == tag
    return int(wanted_range.removeprefix("bytes=").rstrip("-")) if same else 0


class _Handler(BaseHTTPRequestHandler):
    """`server.house` is set by `serving_files`."""

    @property
    def house(self) -> FileServer:
        house: FileServer = self.server.house  # type: ignore[attr-defined]
        return house

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path.endswith("/files"):
            kinds = parse_qs(parts.query).get("kind", [])
            sha = self.house.results_sha256 if self.house.verified else None
            self._json(
                200,
                {
                    "files": self.house.entries(kinds),
                    "next_cursor": None,
                    "results_sha256": sha,
                    "partial_results": self.house.partial,
                },
            )
        else:
            self._file(unquote(parts.path.partition("/files/")[2]))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.house.refuse_note:
            self._json(409, {"title": "Conflict", "detail": "other results", "code": "PULL_MISMATCH"})
            return
        self.house.noted.append(body)
        self._json(200, {})

    def _json(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _file(self, path: str) -> None:
        if self.house.away.get(path, 0) > 0:
            self.house.away[path] -= 1
            self._json(503, {"title": "Away", "detail": "away", "code": "UNAVAILABLE"})
            return
        data = self.house.served.get(path, self.house.files.get(path, b"hostile"))
        tag = f'"{sha256(data)[:8]}"'
        begin = asked_from(self.headers, tag)
        if begin > 0 and begin >= len(data):
            self._json(416, {"title": "Range", "detail": "behind the end", "code": "RANGE_NOT_SATISFIABLE"})
            return
        self._send(path, data, tag, begin)

    def _send(self, path: str, data: bytes, tag: str, begin: int) -> None:
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(data) - begin))
        self.send_header("ETag", tag)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        self.send_header("Repr-Digest", f"sha-256=:{digest}:")
        self.end_headers()
        cuts = self.house.cut.get(path, [])
        end = min(len(data), begin + cuts.pop(0)) if cuts else len(data)
        self.house.sent.append((path, begin, end - begin))  # before the client can have ended
        self.wfile.write(data[begin:end])
        if end < len(data):
            self.close_connection = True

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving_files() -> Iterator[FileServer]:
    house = FileServer()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.house = house  # type: ignore[attr-defined]
    house.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield house
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
