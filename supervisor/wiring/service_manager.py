"""What systemd is told of this process: it serves, its loop ticks, it ends (sd_notify(3)).

One datagram each to the socket that NOTIFY_SOCKET names; without it nobody asked and nothing is sent. The watchdog is
fed from the thread that answers requests, and only while the scheduler loop ticks too: what hangs in either of them is
started anew. A database that is away stops neither.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping

FEED_SHARE = 0.4  # of the watchdog's time: one datagram may be lost


class ServiceManager:
    """`fresh()`: does the loop tick as it should? Every method may be called wherever the process was started."""

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        monotonic: Callable[[], float] = time.monotonic,
        pid: int | None = None,
    ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._monotonic = monotonic
        self._every_s = FEED_SHARE * _watchdog_s(environ, os.getpid() if pid is None else pid)
        self._fed_at = -float("inf")

    def ready(self, url: str) -> None:
        self._send(f"READY=1\nSTATUS=Serving at {url}\nMAINPID={os.getpid()}")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=Closing; trainings go on")

    def feed(self, fresh: Callable[[], bool]) -> None:
        """To be called again and again; sends as often as the watchdog needs it."""
        now = self._monotonic()
        if self._every_s and now - self._fed_at >= self._every_s and fresh():
            self._fed_at = now
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address.startswith(("/", "@")):
            return
        # "@" stands for the zero byte that an abstract address begins with.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        # Nobody listens any more, or its queue is full: that must not end a supervisor.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(text.encode(), address)


def _watchdog_s(environ: Mapping[str, str], pid: int) -> float:
    """0 = none is wanted, or of another process (sd_watchdog_enabled(3))."""
    usec, wanted = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(pid))
    return int(usec) / 1e6 if usec.isdigit() and wanted == str(pid) else 0.0
