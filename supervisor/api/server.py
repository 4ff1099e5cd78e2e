"""The application and its HTTP server: routes, the form of every refusal, one uvicorn, and the file that names it.

The socket is bound before anything else starts, so that a port in use is found before the loop acts. A stop does not
wait for clients: five seconds after SIGTERM nothing of this process may be left. server.json tells the command line and
the agents how to reach this process. It is written as a whole, written again when it disappears, and removed at a clean
end.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType

import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from supervisor.api.errors import AddressUnknown, MethodNotAllowed, problem, request_id_of
from supervisor.api.routes import (
    access,
    actions,
    beats,
    commands,
    dev,
    door,
    events,
    files,
    health,
    incidents,
    machines,
    runs,
)
from supervisor.api.streams.listeners import Streams
from supervisor.api.wire.connection import HEAD_MAX_BYTES, Patience, protocol
from supervisor.api.wire.deps import Services, streams_of
from supervisor.api.wire.middleware import LOOPBACK, Admission, HeadAsGet, allow_header, methods_of
from supervisor.api.wire.route import Admitted
from supervisor.domain.errors import InvalidRequest, SettingsRefused, SpotError, Unavailable
from supervisor.ports.objectstore import StoreFull, StoreUnavailable
from supervisor.ports.provider import ProviderUnavailable
from supervisor.ports.store import RowUnreadable, StoreDown
from supervisor.services.reading.health import full_disk
from supervisor.settings.serving_process import this_process
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)
ROUTES = [
    *runs.routes, *files.routes, *actions.routes, *commands.routes, *events.routes, *beats.routes, *health.routes,
    *machines.routes, *incidents.routes, *dev.routes, *access.claim_routes, *door.routes,
    *access.token_routes, *access.webhook_routes,
]  # fmt: skip
BACKLOG = 512
GRACE_S = 2
PATIENCE = Patience()
_PARTS = {
    StoreDown: "database",
    StoreUnavailable: "object store",
    StoreFull: "object store",
    ProviderUnavailable: "provider",
}

Add = Callable[[FastAPI], None]


def create_app(services: Services | None, hosts: Collection[str] = LOOPBACK) -> FastAPI:
    """The ASGI application. `services` None: it serves only to make its document."""
    app = FastAPI(
        title="Spot Supervisor", version="1", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.state.services = services
    app.state.streams = None if services is None else streams_of(services)
    if not all(isinstance(route, Admitted) for route in ROUTES):
        raise TypeError("a route would be reached without a check of its token")
    app.router.routes += ROUTES
    methods = [(route.path_regex, route.methods) for route in ROUTES]

    async def refused_by_framework(request: Request, error: HTTPException) -> Response:
        """An unknown path or method."""
        if error.status_code == 405:
            allowed = allow_header(methods_of(methods, request.url.path))
            not_allowed = MethodNotAllowed(f"This address understands {allowed} only.", {"allowed": allowed})
            response = await _refused(request, not_allowed)
            response.headers["Allow"] = allowed
            return response
        if error.status_code == 404:
            return await _refused(request, AddressUnknown("There is nothing at this address."))
        return await _refused(request, InvalidRequest("The request is not understood."))

    app.add_exception_handler(HTTPException, refused_by_framework)  # type: ignore[arg-type]
    app.add_exception_handler(SpotError, _refused)  # type: ignore[arg-type]
    for kind in _PARTS:
        app.add_exception_handler(kind, _unavailable)
    app.add_middleware(HeadAsGet, paths=methods)
    if services is not None:
        app.add_middleware(beats.BeatsFirst, inbox=services.inbox)
    beat_host = services.beat_host if services is not None else ""
    app.add_middleware(Admission, hosts=hosts, beat_host=beat_host)
    return app


async def _refused(request: Request, error: SpotError) -> Response:
    return problem(error, request.url.path, request_id_of(request))


async def _unavailable(request: Request, error: Exception) -> Response:
    """The text of a driver's error stays in the log: it may name paths and addresses."""
    fields = {telemetry.ACTION: "unavailable", telemetry.DETAIL: type(error).__name__}
    LOG.warning("A part was unavailable: %s", error, extra=fields)
    if isinstance(error, RowUnreadable):
        return await _refused(request, Unavailable(_sentence(str(error)), {"part": "database"}))
    part = _PARTS[type(error)]
    full = "the object store is full" if isinstance(error, StoreFull) else ""
    if isinstance(error, StoreDown):
        full = full_disk(error)
    why = f"{_sentence(full)}. Free some space; the" if full else f"The {part} is unavailable. The"
    return await _refused(request, Unavailable(f"{why} request can be repeated.", {"part": part}))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def nothing_more(app: FastAPI) -> None:
    """An `Add` of a server that has the API alone."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises SettingsRefused when the address is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named TCP: else asyncio leaves Nagle's delay on, and every response on a kept connection waits 40 ms for its body.
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
    """The URL on this computer."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared with, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """Calls back when it is ready and when it ends. Signals end it (uvicorn's own handler)."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None], ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._started, self._ending = started, ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending()
        await super().shutdown(sockets)

    def cut(self, client: tuple[str, int] | None) -> None:
        """Abort the connection of this peer, with everything still to be sent on it."""
        for connection in list(self.server_state.connections):
            if client is not None and getattr(connection, "client", None) == client:
                connection.transport.abort()


def run(
    services: Services,
    listener: socket.socket,
    started: Callable[[], None],
    *,
    answering: Callable[[], None] = lambda: None,
    hosts: Collection[str] = (),
    add: Add = nothing_more,
) -> None:
    """Serve until SIGTERM or SIGINT. `started` is called when the server is ready, `answering` about once a second from
    then on, in the serving thread. `hosts`: names of this server, beside those of loopback. `add`: adds other routes to
    the application."""
    make(services, started, answering=answering, hosts=hosts, add=add).run(sockets=[listener])


def make(
    services: Services,
    started: Callable[[], None],
    *,
    answering: Callable[[], None] = lambda: None,
    hosts: Collection[str] = (),
    patience: Patience = PATIENCE,
    add: Add = nothing_more,
) -> uvicorn.Server:
    """The server of `run`, which also ends when its `should_exit` is set. `patience`: time limits of its clients."""

    async def notify() -> None:
        answering()

    app = create_app(services, LOOPBACK.union(hosts))
    add(app)
    streams: Streams = app.state.streams

    def ending() -> None:
        services.parts.closing.set()
        streams.close()  # an open stream would delay the end of the server until its listener leaves

    config = uvicorn.Config(
        app,
        http=protocol(patience),
        h11_max_incomplete_event_size=HEAD_MAX_BYTES,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # with X-Forwarded-For a client would choose the address of its rate limit
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


class ServerFile:
    """Exists while the `with` block runs. Raises OSError on entry only."""

    def __init__(self, path: Path, address: str) -> None:
        self._path = path
        self._text = json.dumps({"url": address, **this_process().as_record()})

    def __enter__(self) -> ServerFile:
        self._write()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._path.unlink(missing_ok=True)

    def keep(self) -> None:
        """Write it again where it is missing. A write that fails is repeated at the next call."""
        if self._path.exists():
            return
        try:
            self._write()
        except OSError as error:
            LOG.warning(
                "The server file could not be written.", extra={telemetry.ACTION: "serve", telemetry.ERROR: str(error)}
            )

    def _write(self) -> None:
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(self._text)
        os.replace(draft, self._path)
