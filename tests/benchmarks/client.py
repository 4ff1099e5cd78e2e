"""Clients as a process of their own, so that their work is not the server's: closed loops over kept connections.

    python -m tests.benchmarks.client submit|beat|get|look PORT CONNECTIONS SECONDS FIRST COUNT PATH PER_S

Every connection sends its next request when its answer has come; with PER_S above 0 the process sends at most so many a
second. FIRST and COUNT are the runs that `beat` speaks for, FIRST also keeps the keys of two clients apart. One JSON
line tells what came of it: `statuses`, and of each request `[began, seconds]` on the monotonic clock, which all
processes of a machine share.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from supervisor.contract import heartbeat
from tests.benchmarks import scene
from tests.benchmarks.row import percentile

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
STARTUP_S = 60.0
TOKEN = "BENCH_TOKEN"


@dataclass(frozen=True, slots=True)
class Answers:
    """What all clients together have seen."""

    statuses: Counter[str]
    spans: list[tuple[float, float]]  # (began, seconds)

    def per_s(self) -> float:
        began = min(at for at, _ in self.spans)
        return len(self.spans) / (max(at + took for at, took in self.spans) - began)

    def p95_ms(self) -> float:
        return percentile([took for _, took in self.spans], 0.95) * 1000

    def only(self, status: str) -> Answers:
        """Itself; AssertionError when any answer was another."""
        assert set(self.statuses) == {status}, f"answers other than {status}: {dict(self.statuses)}"
        return self


def clients(
    kind: str,
    url: str,
    seconds: float,
    processes: int = 2,
    connections: int = 4,
    runs: int = 1,
    path: str = "/",
    token: str = "",
    *,
    per_s: float = 0.0,
) -> Answers:
    """`processes` of them with `connections` each, side by side, for so many seconds. `token` "": they send none.
    `per_s`: how many requests they send together; 0 = as many as they can."""
    command = [sys.executable, "-m", "tests.benchmarks.client", kind, url.rpartition(":")[2]]
    share = runs // processes
    started = [
        subprocess.Popen(
            [*command, str(connections), str(seconds), str(n * share), str(share), path, str(per_s / processes)],
            stdout=subprocess.PIPE,
            env={**os.environ, TOKEN: token},
        )
        for n in range(processes)
    ]
    statuses: Counter[str] = Counter()
    spans: list[tuple[float, float]] = []
    try:
        for process in started:
            told = json.loads(process.communicate(timeout=seconds + STARTUP_S)[0])
            statuses.update(told["statuses"])
            spans += [(at, took) for at, took in told["spans"]]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return Answers(statuses, spans)


# --- the process ------------------------------------------------------------------------------------------------------


def submits(first: int, _count: int, _path: str) -> Iterator[bytes]:
    """As `spot submit` sends them."""
    number = 0
    while True:
        number += 1
        labels = {"team": f"t{number % 10}"}
        body = json.dumps({"spec": {**scene.SPEC, "labels": labels}, "replace_spec": False, "rerun": False})
        yield _request("POST", "/v1/runs", body.encode(), f"Idempotency-Key: bench-{first}-{number}\r\n")


def beats(first: int, count: int, _path: str) -> Iterator[bytes]:
    names = scene.names(first + count)[first:]
    sequence = 1_000
    while True:
        sequence += 1
        for name in names:
            raw = heartbeat.encode(scene.beat(name, sequence))
            yield _request("POST", f"/v1/runs/{name}/heartbeat", raw)


def gets(_first: int, _count: int, path: str) -> Iterator[bytes]:
    while True:
        yield _request("GET", path)


def looks(_first: int, _count: int, path: str) -> Iterator[bytes]:
    """As a browser asks for a page, with the token in its cookie (the plain one of an address without a port)."""
    cookie = f"Cookie: spot-80={os.environ[TOKEN]}\r\nAccept-Encoding: gzip\r\n"
    while True:
        yield f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{cookie}\r\n".encode()


REQUESTS: dict[str, Callable[[int, int, str], Iterator[bytes]]] = {
    "submit": submits,
    "beat": beats,
    "get": gets,
    "look": looks,
}


def _request(method: str, path: str, body: bytes = b"", more: str = "") -> bytes:
    token = os.environ.get(TOKEN)
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}"
    if token:
        head += f"Authorization: Bearer {token}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


class Connection:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._got = b""
        self.began = 0.0

    def send(self, request: bytes) -> None:
        self.began = time.monotonic()
        self.socket.sendall(request)

    def answer(self) -> str | None:
        """The status of the answer, when all of it is here."""
        chunk = self.socket.recv(1 << 20)
        if not chunk:
            raise ConnectionError("the server closed the connection")
        self._got += chunk
        head, found, body = self._got.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or (length is not None and len(body) < int(length.group(1))):
            return None
        self._got = b""
        return head[9:12].decode()


def drive(requests: Iterator[bytes], port: int, connections: int, seconds: float, per_s: float = 0.0) -> dict[str, Any]:
    statuses: Counter[str] = Counter()
    spans: list[tuple[float, float]] = []
    with selectors.DefaultSelector() as selector:
        opened = [Connection(port) for _ in range(connections)]
        for one in opened:
            selector.register(one.socket, selectors.EVENT_READ, one)
        free, gap_s = list(opened), 1.0 / per_s if per_s else 0.0
        due = time.monotonic()
        end = due + seconds
        while (now := time.monotonic()) < end or len(free) < connections:
            while free and now < end and due <= now:
                free.pop(0).send(next(requests))  # the one that waits longest: the server closes an idle one
                due += gap_s
            for key, _ in selector.select(max(0.0, min(due, end) - now) if free and now < end else None):
                one = key.data
                status = one.answer()
                if status is None:
                    continue
                statuses[status] += 1
                spans.append((round(one.began, 5), round(time.monotonic() - one.began, 5)))
                free.append(one)
        for one in opened:
            one.socket.close()
    return {"statuses": statuses, "spans": spans}


def _main(kind: str, port: str, connections: str, seconds: str, first: str, count: str, path: str, per_s: str) -> None:
    requests = REQUESTS[kind](int(first), int(count), path)
    print(json.dumps(drive(requests, int(port), int(connections), float(seconds), float(per_s))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
