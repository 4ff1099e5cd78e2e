"""A deadline for all of an HTTP request. httpx bounds each wait by itself, so who sends a byte now and then, or an
endless row of headers, would hold a thread for ever. When time is up the connection is shut, which wakes the reader.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

_OPENED = ("connection.connect_tcp.complete", "connection.start_tls.complete")


class Deadline:
    """`passed`: the time was up, and what the request raised comes from that. Looking up a name is not bounded."""

    def __init__(self, within_s: float) -> None:
        self.within_s = within_s
        self.passed = False
        self._guard = threading.Lock()
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(within_s, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """httpx's `trace` extension of the request."""
        if event not in _OPENED:
            return
        with self._guard:
            self._socket = info["return_value"].get_extra_info("socket")
            if self.passed:
                self._shut()

    def _cut(self) -> None:
        with self._guard:
            self.passed = True
            self._shut()

    def _shut(self) -> None:
        with suppress(OSError):  # it is closed already
            if self._socket is not None:
                socket.socket.shutdown(
                    self._socket, socket.SHUT_RDWR
                )  # not TLS's own, which a reader would miss
