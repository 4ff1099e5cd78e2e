"""A stream of events across kill -9 and across a clean end, with a supervisor as a process of its own."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from tests.acceptance.daemon import QUICK, Daemon, running
from tests.api.listening import Listener

# No zone has room: runs are placed as far as that goes, and start no process.
FULL = {**QUICK, "SPOT_LOCAL_CAPACITY": "local-a=0,local-b=0,local-c=0"}


def listen(daemon: Daemon, last_id: str) -> Listener:
    port = int(daemon.url.rpartition(":")[2])
    return Listener(port, "/v1/events", {"Authorization": f"Bearer {daemon.token}", "Last-Event-ID": last_id})


def submit_until_killed(daemon: Daemon, killed: threading.Event) -> None:
    number = 0
    while not killed.is_set():
        number += 1
        try:
            daemon.submit(f"run-{number}", command=["true"])
        except Exception:  # noqa: BLE001 - it was killed meanwhile
            return


def test_every_event_comes_once_and_in_order_across_a_kill(tmp_path: Path) -> None:
    with running(tmp_path / "data", FULL) as daemon:
        stream, killed = listen(daemon, "0"), threading.Event()
        writer = threading.Thread(target=submit_until_killed, args=(daemon, killed))
        writer.start()
        stream.wait(12)
        daemon.kill()  # in the middle of a stream and of a submit
        killed.set()
        writer.join()
        stream.wait_over()
        seen, last_id = stream.ids, stream.last_id
        stream.close()
        daemon.start()
        daemon.submit("last", command=["true"])
        stream = listen(daemon, last_id)
        stream.wait_until_here()

        def everything() -> list[int]:
            return [event["id"] for event in daemon.call("GET", "/v1/events?limit=1000")["events"]]

        known = everything()
        stream.wait(len(known) - len(seen))
        assert (seen + stream.ids)[: len(known)] == known

        assert daemon.kill(signal.SIGTERM) == 0  # it does not wait for the stream, which would never end
        stream.wait_over()
        assert stream.told[-1].comment == "the supervisor is stopping"
        stream.close()
