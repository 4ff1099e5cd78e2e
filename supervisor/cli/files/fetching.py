"""One file over HTTP into its part: the rest of a content that was begun, or the whole of a new one.

After a lost connection the next request asks for the missing bytes only; the server sends the whole file where its
content has changed.
"""

from __future__ import annotations

import base64
import binascii
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPResponse
from urllib.parse import quote

from supervisor.cli.client import Client, run_path
from supervisor.cli.exits import CliError, Problem, Unreachable
from supervisor.cli.files.pulling import CHUNK_BYTES, Destination, FileRefused, Mismatch, Part, Wanted
from supervisor.contract.baton import FileEntry

# Between tries that bring no new bytes: two minutes in all, as long as a computer takes to boot.
BACKOFFS_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 30.0, 30.0)
ROUNDS = 2  # a file with a wrong checksum is fetched again, once
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/=]{44}):")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/\d+\Z")


class Interrupted(Exception):
    """Ctrl-C in the main thread."""


@dataclass(frozen=True)
class Fetcher:
    """Fetches files of one run into one folder. Safe to use from several threads. `count(n)`: n more bytes are here."""

    client: Client
    run_id: str
    into: Destination
    stop: threading.Event
    count: Callable[[int], None]

    def fetch(self, file: Wanted) -> FileEntry:
        """The file as it is on the disk now. Raises FileRefused, OSError, CliError (the server), Interrupted."""
        if self.into.has(file):
            self.count(file.size)
            return FileEntry(file.path, file.size, str(file.sha256))
        for round_ in range(1, ROUNDS + 1):
            part = self.into.part(file)
            try:
                self.count(part.size)
                digest = self._complete(part)
                _compare(part, digest)
                part.finish()
                self.into.settle(part)
            except Mismatch:
                self.count(-part.size)
                part.drop()
                if round_ == ROUNDS:
                    raise
            else:
                part.drop()
                return FileEntry(file.path, part.size, part.digest.hexdigest())
            finally:
                part.close()
        raise AssertionError("the last round returns or raises")

    def _complete(self, part: Part) -> str | None:
        """Fetch all bytes. The checksum that the server sent with them; None = it sent none."""
        idle = 0
        while True:
            before = part.size
            try:
                return self._fetch_rest(part)
            except (Unreachable, Problem) as error:
                if isinstance(error, Problem) and error.status == 416 and part.size:
                    self.count(-part.size)  # the content is shorter than the part
                    part.restart("")
                    continue
                passing = isinstance(error, Unreachable) or error.status == 503 or error.code == "FILE_CHANGED"
                idle = 0 if part.size > before else idle + 1
                if not passing or idle > len(BACKOFFS_S):
                    raise
                if self.stop.wait(BACKOFFS_S[max(0, idle - 1)]):
                    raise Interrupted from None

    def _fetch_rest(self, part: Part) -> str | None:
        file = part.file
        if part.tag and part.size == file.size > 0 and file.sha256 is not None:
            return None  # it was cut off after its last byte
        headers = {"Accept": "*/*"}
        if part.tag and part.size:
            headers |= {"Range": f"bytes={part.size}-", "If-Range": part.tag}
        path = run_path(self.run_id, "files", quote(file.path, safe="/"))
        local: OSError | None = None
        with self.client.stream(path, headers) as response:
            try:
                missing = self._begin(part, response)
            except OSError as error:
                missing, local = 0, error
            while missing > 0:
                if self.stop.is_set():
                    raise Interrupted
                chunk = response.read(min(CHUNK_BYTES, missing))
                if not chunk:
                    raise ConnectionError("the connection was closed in the middle of a file")
                try:
                    part.write(chunk)
                except OSError as error:  # of this disk; it must not look like an error of the connection
                    local = error
                    break
                missing -= len(chunk)
                self.count(len(chunk))
            digest = _DIGEST.search(response.headers.get("Repr-Digest", ""))
        if local is not None:
            raise local
        return None if digest is None else _hex(digest.group(1))

    def _begin(self, part: Part, response: HTTPResponse) -> int:
        """The number of bytes in this response; the part is positioned for them. Raises Mismatch."""
        length = response.headers.get("Content-Length", "")
        if not length.isdigit() or len(length) > 15:
            raise Mismatch("the server sends no length")
        begins = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
        continues = response.status == 206 and begins is not None and int(begins.group(1)) == part.size
        if not continues:
            if response.status == 206:
                raise Mismatch("the server sends another range than the requested one")
            self.count(-part.size)
            part.restart(response.headers.get("ETag", ""))
        if part.file.sha256 is not None and part.size + int(length) != part.file.size:
            raise Mismatch(f"it has {part.size + int(length)} bytes where the list says {part.file.size}")
        return int(length)


def _compare(part: Part, digest: str | None) -> None:
    """Raises Mismatch. A growing log has no checksum in the list and may be longer by now."""
    promised = part.file.sha256 or digest
    if part.file.sha256 is not None and part.size != part.file.size:
        raise Mismatch(f"it has {part.size} bytes where the list says {part.file.size}")
    if promised is not None and part.digest.hexdigest() != promised:
        raise Mismatch("its sha256 differs from the server's")


def _hex(text: str) -> str | None:
    try:
        return base64.b64decode(text, validate=True).hex()
    except (binascii.Error, ValueError):
        return None


def reason(error: BaseException) -> str:
    """Why a file is missing, in a few words."""
    if isinstance(error, (FileRefused, CliError)):
        return str(error)
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"{type(error).__name__}: {error}"
