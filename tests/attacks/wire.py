"""Bytes to a port of this computer, and what comes back: below any HTTP client, which would correct what it sends."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

HERE = "127.0.0.1"
TIMEOUT_S = 120.0  # a busy computer may answer late; nothing here waits for silence
JSON = "Content-Type: application/json"


@dataclass(frozen=True)
class Answer:
    """`status` 0: the connection ended without an answer. Header names in lower case."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def told(self) -> str:
        """As the tables write it: `422 INVALID_REQUEST`, `200`, or `closed`."""
        if self.status == 0:
            return "closed"
        code = ""
        if self.headers.get("content-type") == "application/problem+json":
            code = " " + json.loads(self.body or b'{"code": ""}')["code"]
        return f"{self.status}{code}"


def ask(method: str, target: str, *lines: str, token: str = "", body: bytes = b"", host: str = HERE) -> bytes:
    """One request. `lines`: more headers, as they are."""
    head = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
    head += [f"Authorization: Bearer {token}"] if token else []
    if body:
        head += [f"Content-Length: {len(body)}"]
        head += [] if any(line.lower().startswith("content-type") for line in lines) else [JSON]
    return "\r\n".join([*head, *lines, "", ""]).encode("utf-8", "surrogateescape") + body


def send(port: int, data: bytes) -> list[Answer]:
    """The answer to these bytes; where it says that the connection ends, all that came before its end."""
    with socket.create_connection((HERE, port), timeout=TIMEOUT_S) as wire:
        found: list[Answer] = []
        with suppress(OSError):  # it has closed already; what it said may still be there
            wire.sendall(data)
        try:
            for answer in _answers(wire, 100):
                found.append(answer)
                if answer.headers.get("connection") != "close" and len(found) == 1:
                    break
        except ConnectionResetError:
            return found or [Answer(0)]
        return found or [Answer(0)]


def together(port: int, requests: Sequence[bytes]) -> list[Answer]:
    """The answers to requests that are sent at once on one connection, in their order."""
    with socket.create_connection((HERE, port), timeout=TIMEOUT_S) as wire:
        wire.sendall(b"".join(requests))
        found = list(_answers(wire, len(requests)))
    assert len(found) == len(requests), f"{len(found)} of {len(requests)} answers came"
    return found


def _answers(wire: socket.socket, most: int) -> Iterator[Answer]:
    with wire.makefile("rb") as got:
        for _ in range(most):
            line = got.readline()
            if not line:
                return
            status, headers = int(line.split()[1]), {}
            while (line := got.readline().strip()) != b"":
                name, _, value = line.decode("latin-1").partition(":")
                headers[name.lower()] = value.strip()
            yield Answer(status, headers, got.read(int(headers.get("content-length", "0"))))
