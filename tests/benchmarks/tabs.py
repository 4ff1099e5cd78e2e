"""Open pages without a browser, as a process of their own: each hears its stream and asks its page again at the pace of
static/source.js and static/live.js.

    python -m tests.benchmarks.tabs PORT COUNT PATH STREAM     tokens, a line each, on standard input

`open` is printed when all streams are; at the end of standard input one JSON line: how often pages were asked, how
long that took, how many bytes came, and what the streams told.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from dataclasses import dataclass, field

from tests.benchmarks.row import percentile

PACE_S, POLL_S, POLL_REST_S = 1.0, 15.0, 12.0


@dataclass
class Told:
    took: list[float] = field(default_factory=list)
    bytes: int = 0
    looks: int = 0
    rows: int = 0


@dataclass
class Tab:
    port: int
    path: str
    stream: str
    cookie: str
    told: Told
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    _looked: float = -PACE_S
    _due: asyncio.Task[None] | None = None
    _asking: asyncio.Task[None] | None = None
    _again: bool = False

    async def live(self) -> None:
        reader, writer = await self._connect(self.stream, "Accept: text/event-stream\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head.split(b"\r\n", 1)[0], head
        polling = asyncio.create_task(self._poll())
        event = ""
        while line := await reader.readline():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                event = value
                self.told.rows += event.startswith("run-")
            elif name == "id":
                self.opened.set()
            elif name == "data" and event == "refresh" and self._due is None:
                self.told.looks += 1
                self._due = asyncio.create_task(self._look(float(value) / 1000))
        polling.cancel()
        writer.close()

    async def _look(self, spread_s: float) -> None:
        wait_s = self._looked + max(PACE_S, spread_s) - time.monotonic()
        await asyncio.sleep(max(0.0, wait_s) + random.random() * spread_s)
        self._due = None
        self._begin()

    async def _poll(self) -> None:
        await asyncio.sleep(random.random() * POLL_S)
        while True:
            if time.monotonic() - self._looked >= POLL_REST_S:
                self._begin()
            await asyncio.sleep(POLL_S)

    def _begin(self) -> None:
        """One request at a time; of those that come meanwhile one is sent afterwards."""
        self._again = self._asking is not None
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        began = self._looked = time.monotonic()
        more = "Accept-Encoding: gzip\r\nHX-Request: true\r\nConnection: close\r\n"
        reader, writer = await self._connect(self.path, more)
        answer = await reader.read()
        writer.close()
        assert b" 200 " in answer.split(b"\r\n", 1)[0], answer[:300]
        self.told.took.append(time.monotonic() - began)
        self.told.bytes += len(answer)
        self._asking = None
        if self._again:
            self._begin()

    async def _connect(self, path: str, more: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nCookie: {self.cookie}\r\n{more}\r\n"
        writer.write(head.encode())
        return reader, writer


async def main(port: int, count: int, path: str, stream: str) -> None:
    loop, told = asyncio.get_running_loop(), Told()
    tokens = sys.stdin.readline().split()
    tabs = [Tab(port, path, stream, f"spot-{port}={tokens[n % len(tokens)]}", told) for n in range(count)]
    living = []
    for tab in tabs:
        living.append(loop.create_task(tab.live()))
        await asyncio.wait([living[-1], loop.create_task(tab.opened.wait())], return_when=asyncio.FIRST_COMPLETED)
        assert tab.opened.is_set(), living[-1].exception()
    print("open", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    ended = [task.exception() for task in living if task.done()]
    summary = {
        "asked": len(told.took),
        "asked_p95_ms": round(percentile(told.took, 0.95) * 1000, 1) if told.took else None,
        "mb": round(told.bytes / 1e6, 1),
        "looks": told.looks,
        "rows": told.rows,
        "ended": [repr(error) for error in ended],
    }
    print(json.dumps(summary), flush=True)
    for task in living:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]))
