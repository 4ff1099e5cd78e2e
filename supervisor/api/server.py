"""The HTTP server: one uvicorn on a loopback socket that is bound before anything else starts.

Bound first, so that a port that is taken is known before the loop acts. A stop does not wait for readers: five
seconds after SIGTERM nothing of this process may be left.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection

import uvicorn
from fastapi import FastAPI

from supervisor.api.app import create_app
from supervisor.api.streams.listeners import Streams
from supervisor.api.wire.connection import HEAD_MAX_BYTES, Patience, protocol
from supervisor.api.wire.deps import Services
from supervisor.api.wire.door import LOOPBACK
from supervisor.domain.errors import SettingsRefused

BACKLOG = 512
GRACE_S = 2
PATIENCE = Patience()
Add = Callable[[FastAPI], None]


def nothing_more(app: FastAPI) -> None:
    """An `Add` of a server that has the API alone."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises SettingsRefused when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named TCP: else asyncio leaves Nagle's delay on, and every answer on a kept connection waits 40 ms for its body.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise SettingsRefused(
            f"Cannot listen on {host}:{port}: {error.strerror}. Choose another port with --port (0 = any free one).",
            {"host": host, "port": port},
        ) from None
    return listener


def url_of(listener: socket.socket) -> str:
    """Where this computer reaches it."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared with, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """Tells when it answers, and when it must end; signals end it (uvicorn's own handler)."""

    def __init__(
        self, config: uvicorn.Config, started: Callable[[], None], ending: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._tell_started, self._tell_ending = started, ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._tell_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._tell_ending()
        await super().shutdown(sockets)

    def cut(self, client: tuple[str, int] | None) -> None:
        """Break the connection of this peer off, with what is still to be sent on it."""
        for connection in list(self.server_state.connections):
            if client is not None and getattr(connection, "client", None) == client:
                connection.transport.abort()


def run(
    services: Services,
    listener: socket.socket,
    started: Callable[[], None],
    answering: Callable[[], None] = lambda: None,
    hosts: Collection[str] = (),
    add: Add = nothing_more,
) -> None:
    """Serve until SIGTERM or SIGINT; `started` is called when the first request can be answered, `answering` about
    once a second from then on, in the thread that answers. `hosts`: names to answer to, beside those of loopback.
    `add`: lays what else is served into the application."""
    make(services, started, answering, hosts, add=add).run(sockets=[listener])


def make(
    services: Services,
    started: Callable[[], None],
    answering: Callable[[], None] = lambda: None,
    hosts: Collection[str] = (),
    patience: Patience = PATIENCE,
    add: Add = nothing_more,
) -> uvicorn.Server:
    """The server of `run`, which also ends when its `should_exit` is set. `patience`: with its clients."""

    async def notify() -> None:
        answering()

    app = create_app(services, LOOPBACK.union(hosts))
    add(app)
    streams: Streams = app.state.streams

    def ending() -> None:
        services.parts.closing.set()
        streams.close()  # an open stream would keep the server for as long as its listener likes

    config = uvicorn.Config(
        app,
        http=protocol(patience),
        h11_max_incomplete_event_size=HEAD_MAX_BYTES,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who sends X-Forwarded-For would choose the address by which he is limited and cut off
        date_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=GRACE_S,
        backlog=BACKLOG,
        callback_notify=notify,
        timeout_notify=1,
    )
    server = _Server(config, started, ending)
    streams.cut = server.cut
    return server
