"""Five hundred open streams of events: how soon each hears of what is committed, what they cost in memory, and what
other requests feel of them.

Twenty runs a second are submitted; each stream asks for their events alone. An event's time is taken before its
commit, so what is measured holds the commit too, as listeners would feel it.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

from tests.benchmarks import house, scene
from tests.benchmarks.client import TOKEN
from tests.benchmarks.row import Bench, Figure, Row, Size, percentile

STREAMS = 500
EVENTS_PER_S = 20
_AT = re.compile(rb'"at":"([^"]+)"')
MANY = {"SPOT_STREAMS_MAX": "1000", "SPOT_STREAMS_PER_TOKEN": "1000", "SPOT_RATE_PER_S": "0", **scene.FULL_UP}


def streaming(size: Size) -> Mapping[str, Figure]:
    seconds = 3 * size.seconds
    with scene.folder() as folder, house.plain(folder, MANY) as daemon:
        daemon.submit("warm", command=["true"])
        _traffic(daemon, 2.0, "before")
        rss_before = house.rss_kib(daemon.pid)
        with _listeners(daemon) as child:
            began, cpu = time.monotonic(), house.cpu_s(daemon.pid)
            gets = _traffic(daemon, seconds, "run")
            cores = (house.cpu_s(daemon.pid) - cpu) / (time.monotonic() - began)
            rss = house.rss_kib(daemon.pid) - rss_before
            heard = json.loads(child.communicate("done", timeout=120)[0])
    told = EVENTS_PER_S * seconds
    assert heard["events"] >= STREAMS * told * 0.95, f"{heard['events']} of {STREAMS * told:.0f} were heard"
    note = {"streams": STREAMS, "events_per_s": EVENTS_PER_S, "median_ms": heard["median_ms"], "cores": round(cores, 2)}
    return {
        "events_500_p99_ms": Figure(heard["p99_ms"], note=note),
        "events_500_rss_mb": Figure(rss / 1024),
        "events_500_get_p99_ms": Figure(
            percentile(gets, 0.99) * 1000, note={"median_ms": round(percentile(gets, 0.5) * 1000, 1)}
        ),
    }


def _traffic(daemon: house.TimedDaemon, seconds: float, name: str) -> list[float]:
    """Submits at their pace, each followed by a GET of a run; how long the GETs took."""
    port = int(daemon.url.rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {daemon.token}", "Content-Type": "application/json"}
    took, began = [], time.monotonic()
    for number in range(int(seconds * EVENTS_PER_S)):
        time.sleep(max(0.0, began + number / EVENTS_PER_S - time.monotonic()))
        body = json.dumps({"run_id": f"{name}-{number}", "spec": scene.SPEC})
        connection.request("POST", "/v1/runs", body, headers)
        assert connection.getresponse().read()
        asked = time.monotonic()
        connection.request("GET", "/v1/runs/warm", headers=headers)
        assert connection.getresponse().read()
        took.append(time.monotonic() - asked)
    connection.close()
    return took


@contextmanager
def _listeners(daemon: house.TimedDaemon) -> Iterator[subprocess.Popen[str]]:
    """A process with all the streams, once each of them is open."""
    command = [sys.executable, "-m", "tests.benchmarks.streaming", daemon.url.rpartition(":")[2]]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, TOKEN: daemon.token}
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "open\n"
            yield child
        finally:
            child.kill()


# --- the process ------------------------------------------------------------------------------------------------------


def listen(port: int) -> None:
    """Until something comes on standard input; then what was heard, as JSON."""
    heard: list[tuple[float, bytes]] = []
    with selectors.DefaultSelector() as selector:
        for _ in range(STREAMS):
            selector.register(_open(port), selectors.EVENT_READ)
        print("open", flush=True)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    print(json.dumps(_summary(heard)), flush=True)
                    return
                assert isinstance(key.fileobj, socket.socket)
                got = key.fileobj.recv(1 << 16)
                assert got, "a stream ended"
                now = time.time()
                heard.extend((now, at) for at in _AT.findall(got))


def _open(port: int) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port))
    one.sendall(
        b"GET /v1/events?kind=submitted HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
        + f"Authorization: Bearer {os.environ[TOKEN]}\r\n\r\n".encode()
    )
    got = b""
    while b"\nid: " not in got:
        chunk = one.recv(4096)
        assert chunk, got
        got += chunk
    return one


def _summary(heard: list[tuple[float, bytes]]) -> Mapping[str, float]:
    delays = [now - datetime.fromisoformat(at.decode()).timestamp() for now, at in heard]
    return {
        "events": len(delays),
        "p99_ms": percentile(delays, 0.99) * 1000,
        "median_ms": round(percentile(delays, 0.5) * 1000, 1),
    }


BENCHES = (
    Bench(
        streaming,
        (
            Row("events_500_p99_ms", "ms", target=500.0),
            Row("events_500_rss_mb", "MB", target=80.0),
            Row("events_500_get_p99_ms", "ms", target=100.0),
        ),
    ),
)

if __name__ == "__main__":
    listen(int(sys.argv[1]))
