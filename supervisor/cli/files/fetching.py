"""One file over HTTP into its part: the rest of a content that was begun, or the whole of a new one.

A connection that is lost is no reason to begin again: the next request asks for what is missing, and the server gives
the whole file where its content is another one meanwhile.
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

# Between tries that bring nothing new: two minutes in all, as a computer that boots again takes.
PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 30.0, 30.0)
ROUNDS = 2  # a file that does not compare is fetched once again
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/=]{44}):")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/\d+\Z")


class Interrupted(Exception):
    """The person at the terminal has left."""


@dataclass(frozen=True)
class Fetcher:
    """Brings files of one run into one folder. Safe to use from several threads. `tell(n)`: n bytes more are here."""

    client: Client
    run_id: str
    into: Destination
    stop: threading.Event
    tell: Callable[[int], None]

    def fetch(self, file: Wanted) -> FileEntry:
        """The file as it is on the disk now. Raises FileRefused, OSError, CliError (the server), Interrupted."""
        if self.into.has(file):
            self.tell(file.size)
            return FileEntry(file.path, file.size, str(file.sha256))
        for round_ in range(1, ROUNDS + 1):
            part = self.into.part(file)
            try:
                self.tell(part.size)
                digest = self._complete(part)
                _compare(part, digest)
                part.finish()
                self.into.settle(part)
            except Mismatch:
                self.tell(-part.size)
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
        """Until all bytes are here. The checksum that the server told with them, if it did."""
        idle = 0
        while True:
            before = part.size
            try:
                return self._ask(part)
            except (Unreachable, Problem) as error:
                if isinstance(error, Problem) and error.status == 416 and part.size:
                    self.tell(-part.size)  # the content is shorter than what we have of it
                    part.restart("")
                    continue
                passing = isinstance(error, Unreachable) or error.status == 503 or error.code == "FILE_CHANGED"
                idle = 0 if part.size > before else idle + 1
                if not passing or idle > len(PAUSES_S):
                    raise
                if self.stop.wait(PAUSES_S[max(0, idle - 1)]):
                    raise Interrupted from None

    def _ask(self, part: Part) -> str | None:
        file = part.file
        if part.tag and part.size == file.size > 0 and file.sha256 is not None:
            return None  # it was cut off after its last byte
        headers = {"Accept": "*/*"}
        if part.tag and part.size:
            headers |= {"Range": f"bytes={part.size}-", "If-Range": part.tag}
        address = run_path(self.run_id, "files", quote(file.path, safe="/"))
        local: OSError | None = None
        with self.client.stream(address, headers) as answer:
            try:
                missing = self._begin(part, answer)
            except OSError as error:
                missing, local = 0, error
            while missing > 0:
                if self.stop.is_set():
                    raise Interrupted
                chunk = answer.read(min(CHUNK_BYTES, missing))
                if not chunk:
                    raise ConnectionError("the connection was closed in the middle of a file")
                try:
                    part.write(chunk)
                except OSError as error:  # of this disk: it must not be taken for one of the connection
                    local = error
                    break
                missing -= len(chunk)
                self.tell(len(chunk))
            digest = _DIGEST.search(answer.headers.get("Repr-Digest", ""))
        if local is not None:
            raise local
        return None if digest is None else _hex(digest.group(1))

    def _begin(self, part: Part, answer: HTTPResponse) -> int:
        """How many bytes this answer brings; the part is where they belong. Raises Mismatch."""
        length = answer.headers.get("Content-Length", "")
        if not length.isdigit() or len(length) > 15:
            raise Mismatch("the server does not tell its length")
        begins = _CONTENT_RANGE.match(answer.headers.get("Content-Range", ""))
        goes_on = answer.status == 206 and begins is not None and int(begins.group(1)) == part.size
        if not goes_on:
            if answer.status == 206:
                raise Mismatch("the server gives another range than was asked for")
            self.tell(-part.size)
            part.restart(answer.headers.get("ETag", ""))
        if part.file.sha256 is not None and part.size + int(length) != part.file.size:
            raise Mismatch(f"it has {part.size + int(length)} bytes where the list says {part.file.size}")
        return int(length)


def _compare(part: Part, digest: str | None) -> None:
    """Raises Mismatch. A log that still grows has no checksum in the list and may be longer by now."""
    promised = part.file.sha256 or digest
    if part.file.sha256 is not None and part.size != part.file.size:
        raise Mismatch(f"it has {part.size} bytes where the list says {part.file.size}")
    if promised is not None and part.digest.hexdigest() != promised:
        raise Mismatch("its sha256 is not the one that the server tells")


def _hex(text: str) -> str | None:
    try:
        return base64.b64decode(text, validate=True).hex()
    except (binascii.Error, ValueError):
        return None


def reason(error: BaseException) -> str:
    """Why one file is not here, for its line."""
    if isinstance(error, (FileRefused, CliError)):
        return str(error)
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"{type(error).__name__}: {error}"
