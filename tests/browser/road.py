"""The road between a browser and a supervisor, which can be cut and mended: connections on it end, and none begins."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Road:
    """`url`: where it begins, on this computer."""

    def __init__(self, to: str) -> None:
        self._to = ("127.0.0.1", urlsplit(to).port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_cut = False
        threading.Thread(target=self._take, daemon=True).start()

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            for one in self._open:
                _end(one)

    def mend(self) -> None:
        with self._lock:
            self._is_cut = False

    def close(self) -> None:
        self.cut()
        _end(self._listener)
        self._listener.close()

    def _take(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._lay, args=(near,), daemon=True).start()

    def _lay(self, near: socket.socket) -> None:
        with near, socket.create_connection(self._to) as far:
            with self._lock:
                if self._is_cut:
                    return
                self._open |= {near, far}
            back = threading.Thread(target=_carry, args=(far, near), daemon=True)
            back.start()
            _carry(near, far)
            back.join()
            with self._lock:
                self._open -= {near, far}


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    _end(target)
    _end(source)


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@contextmanager
def road(to: str) -> Iterator[Road]:
    found = Road(to)
    try:
        yield found
    finally:
        found.close()
