"""A real server in a thread, and listeners on plain sockets, which read or do not read."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from supervisor.api import server
from supervisor.api.streams.listeners import Limits, Streams
from supervisor.api.wire.deps import Services
from supervisor.domain.events import Event, EventKind
from tests.services.bed import Bed
from tests.waiting import wait_for

QUICK = Limits(ping_s=0.3, look_s=0.1, hang_s=0.5)


def patrol(bed: Bed, count: int = 1, text: str = "All is well.") -> None:
    """So many events of the supervisor itself, in one commit."""
    bed.store.add_events(None, [Event(EventKind.PATROL, text)] * count, bed.clock.now())


def listed(bed: Bed) -> list[int]:
    return [stored.id for stored in bed.store.events(None, 0, 10_000)]


@dataclass
class Told:
    """One block of a stream."""

    id: str = ""
    event: str = ""
    data: str = ""
    comment: str = ""
    retry: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.data)


@dataclass
class Serving:
    port: int
    streams: Streams

    opened: list[Listener] = field(default_factory=list)

    def listen(self, path: str = "/v1/events", **headers: str) -> Listener:
        """Closed with the server at the latest."""
        self.opened.append(Listener(self.port, path, headers))
        return self.opened[-1]


@contextmanager
def serving(services: Services, add: server.Add = server.nothing_more) -> Iterator[Serving]:
    """`add`: lays what else is served into the application."""
    started = threading.Event()
    with server.bind("127.0.0.1", 0) as listener:
        made = server.make(services, started.set, add=add)
        thread = threading.Thread(target=made.run, args=([listener],))
        thread.start()
        assert started.wait(30)
        application: Any = made.config.app
        served = Serving(listener.getsockname()[1], application.state.streams)
        try:
            yield served
        finally:
            made.should_exit = True
            thread.join(30)
            for listening in served.opened:
                listening.close()
    assert not thread.is_alive()


class Listener:
    """Reads in a thread of its own until the server ends the stream, or `close`. `status` and `headers` are there at
    once; `body`: of an answer that is no stream."""

    def __init__(self, port: int, path: str, headers: Mapping[str, str]) -> None:
        self.told: list[Told] = []
        self.over = False
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        told = {"Host": "localhost", "Accept": "text/event-stream", **headers}
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in told.items())
        self._socket.sendall(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
        self._got = self._socket.makefile("rb")
        self.status = int(self._got.readline().split()[1])
        self.headers = http.client.parse_headers(self._got)
        self._thread = threading.Thread(target=self._read, daemon=True)
        if self.status == 200:
            self._thread.start()

    @property
    def body(self) -> Any:
        return json.loads(self._got.read(int(self.headers["Content-Length"])))

    def _lines(self) -> Iterator[str]:
        """Of the chunks; a line may lie in two of them."""
        rest = b""
        while size := int(self._got.readline() or b"0", 16):
            rest += self._got.read(size)
            self._got.readline()
            *whole, rest = rest.split(b"\n")
            yield from (line.decode() for line in whole)

    def _read(self) -> None:
        block = Told()
        with contextlib.suppress(OSError, ValueError):
            for line in self._lines():
                name, _, value = line.partition(": ")
                if line:
                    before = f"{block.data}\n" if name == "data" and block.data else ""
                    setattr(block, name or "comment", before + value)
                else:
                    self.told.append(block)
                    block = Told()
        self.over = True

    @property
    def events(self) -> list[Told]:
        return [block for block in self.told if block.data]

    @property
    def ids(self) -> list[int]:
        return [int(block.id) for block in self.events if block.event != "reset"]

    @property
    def last_id(self) -> str:
        return next((block.id for block in reversed(self.told) if block.id), "")

    def wait(self, count: int) -> list[int]:
        """The ids of its events when so many are there."""
        wait_for(lambda: len(self.ids) >= count, 20, f"{count} events; there are {self.ids}")
        return self.ids

    def wait_told(self, count: int) -> list[Told]:
        """The same, whole."""
        self.wait(count)
        return self.events

    def wait_until_here(self) -> None:
        """It has everything, and what comes now comes live."""
        wait_for(lambda: self.last_id, 20, "the stream to say where it is")

    def wait_over(self) -> None:
        wait_for(lambda: self.over, 20, "the stream to end")

    def close(self) -> None:
        """Like a client that goes away; may be called again."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread.ident is not None:
            self._thread.join(20)
        self._got.close()
        self._socket.close()
