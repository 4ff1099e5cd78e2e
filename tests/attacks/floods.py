"""Many connections that ask for little or nothing, and how long others wait meanwhile."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.attacks.house import House
from tests.attacks.wire import HERE, JSON, ask, together

HALF_HEADS, SLOW_BODIES, DEAF = 300, 60, 8


def half_head(house: House) -> bytes:
    return b"GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


def slow_body(house: House) -> bytes:
    return ask("POST", f"/v1/runs/{house.mine}/heartbeat", JSON, "Content-Length: 9000") + b"{"


def deaf(house: House) -> bytes:
    """A stream of all events, and logs by the hundred, of which nothing is ever read."""
    stream = ask("GET", "/v1/events?after=0", "Accept: text/event-stream", token=house.tokens["reader"])
    logs = ask("GET", f"/v1/runs/{house.mine}/logs?attempt=1", token=house.tokens["reader"])
    return logs * 40 + stream


@contextmanager
def held(house: House, count: int, data: Callable[[House], bytes]) -> Iterator[list[socket.socket]]:
    """So many connections on which these bytes were sent, and nothing after them."""
    wires: list[socket.socket] = []
    try:
        for _ in range(count):
            wire = socket.create_connection((HERE, house.port), timeout=30)
            wires.append(wire)
            with suppress(OSError):
                wire.sendall(data(house))
        yield wires
    finally:
        for wire in wires:
            wire.close()


@contextmanager
def endless(house: House) -> Iterator[None]:
    """A body in chunks that never ends, as fast as it is taken; and again when the connection is closed."""
    over = threading.Event()

    def pour() -> None:
        head = ask("POST", "/v1/runs", JSON, "Transfer-Encoding: chunked", token=house.tokens["mallory"])
        while not over.is_set():
            with suppress(OSError), socket.create_connection((HERE, house.port), timeout=1) as wire:
                wire.sendall(head)
                while not over.is_set():
                    wire.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")

    thread = threading.Thread(target=pour)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)


def p99_s(house: House, count: int) -> float:
    """How long another client waits for the list of runs, each time on a connection of its own."""
    request, waits = ask("GET", "/v1/runs", token=house.admin), []
    for _ in range(count):
        began = time.perf_counter()
        [answer] = together(house.port, [request])
        assert answer.status == 200, answer
        waits.append(time.perf_counter() - began)
    return sorted(waits)[int(count * 0.99)]
