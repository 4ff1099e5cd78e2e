"""A real server in a thread, and listeners on plain sockets: what they got, and when they have not read."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from supervisor.api import server
from supervisor.api.deps import Services
from supervisor.api.streams import Streams
from tests.waiting import wait_for


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
    server: uvicorn.Server
    streams: Streams

    def listen(self, path: str = "/v1/events", **headers: str) -> Listener:
        return Listener(self.port, path, headers)


@contextmanager
def serving(services: Services) -> Iterator[Serving]:
    started = threading.Event()
    with server.bind("127.0.0.1", 0) as listener:
        made = server.make(services, started.set)
        thread = threading.Thread(target=made.run, args=([listener],))
        thread.start()
        try:
            assert started.wait(30)
            application: Any = made.config.app
            yield Serving(listener.getsockname()[1], made, application.state.streams)
        finally:
            made.should_exit = True
            thread.join(30)
    assert not thread.is_alive()


@dataclass
class Listener:
    port: int
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 0
    told: list[Told] = field(default_factory=list)
    over: bool = False

    def __post_init__(self) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        names = {name.replace("_", "-"): value for name, value in self.headers.items()}
        self._connection.request("GET", self.path, headers={"Accept": "text/event-stream", **names})
        self.answer = self._connection.getresponse()
        self.status = self.answer.status
        if self.status == 200:
            threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        block = Told()
        try:
            while line := self.answer.readline().decode():
                name, _, value = line.rstrip("\n").partition(": ")
                if line == "\n":
                    self.told.append(block)
                    block = Told()
                else:
                    setattr(block, name or "comment", value)
        except (OSError, http.client.HTTPException, ValueError):
            pass
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

    def wait_until_here(self) -> None:
        """It has everything, and what comes now comes live."""
        wait_for(lambda: self.last_id, 20, "the stream to say where it is")

    def wait_over(self) -> None:
        wait_for(lambda: self.over, 20, "the stream to end")

    def close(self) -> None:
        if self._connection.sock is not None:
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._connection.close()
