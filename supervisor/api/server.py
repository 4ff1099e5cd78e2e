"""The application and its HTTP server: routes, the shape of every refusal, and the outer door in front.

One uvicorn on a loopback socket that is bound before anything else starts, so that a port that is taken is known before
the loop acts. A stop does not wait for readers: five seconds after SIGTERM nothing of this process may be left.
server.json tells the command line and the agents how to find this process. It is written whole, written again when
somebody has taken it away, and gone after a clean end.

HEAD works wherever GET does: the same headers, and no body (RFC 9110, section 9.3.2). The framework knows HEAD only
where a route names it. Here such a request is routed as its GET, and what it would send after its headers is dropped;
an answer without an end, such as a stream of events, is told that its client has left.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType

import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.api.errors import problem, problem_of, request_id_of
from supervisor.api.routes import access, actions, beats, dev, events, files, health, machines, runs
from supervisor.api.streams.listeners import Streams
from supervisor.api.wire.connection import HEAD_MAX_BYTES, Patience, protocol
from supervisor.api.wire.deps import Services, streams_of
from supervisor.api.wire.door import LOOPBACK, Door
from supervisor.api.wire.route import Admitted
from supervisor.domain.errors import SettingsRefused, SpotError, Unavailable
from supervisor.ports.objectstore import StoreFull, StoreUnavailable
from supervisor.ports.provider import ProviderUnavailable
from supervisor.ports.store import RowUnreadable, StoreDown
from supervisor.services.reading.health import full_disk
from supervisor.settings.serving_process import this_process
from supervisor.telemetry import logs as telemetry

Paths = Collection[tuple[re.Pattern[str], Collection[str]]]  # of each route: its path and its methods


class HeadAsGet:
    """`paths`: of all routes."""

    def __init__(self, app: ASGIApp, paths: Paths) -> None:
        self._app, self._paths = app, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or "HEAD" in methods_of(self._paths, scope["path"]):
            await self._app(scope, receive, send)
            return
        started = False

        async def without_body(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                await send(message)
                await send({"type": "http.response.body", "body": b""})

        async def until_started() -> Message:
            return {"type": "http.disconnect"} if started else await receive()

        as_get = {**scope, "method": "GET"}
        try:
            await self._app(as_get, until_started, without_body)
        finally:
            if "route" in as_get:
                scope["route"] = as_get["route"]  # by which requests are counted


def methods_of(paths: Paths, path: str) -> set[str]:
    """The methods that routes name for this path."""
    return {name for regex, names in paths if regex.match(path) for name in names}


def shown(names: Collection[str]) -> str:
    """For the header Allow."""
    return ", ".join(sorted({*names, *(("HEAD",) if "GET" in names else ())}))


LOG = logging.getLogger(__name__)
ROUTES = [
    *runs.routes, *files.routes, *actions.routes, *events.routes, *beats.routes, *health.routes, *machines.routes,
    *dev.routes, *access.token_routes, *access.webhook_routes,
]  # fmt: skip


def create_app(services: Services | None, hosts: Collection[str] = LOOPBACK) -> FastAPI:
    """The ASGI application. `services` None: only its document can be made from it."""
    app = FastAPI(
        title="Spot Supervisor", version="1", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.state.services = services
    app.state.streams = None if services is None else streams_of(services)
    if not all(isinstance(route, Admitted) for route in ROUTES):
        raise TypeError("a route would be reached without asking who calls it")
    app.router.routes += ROUTES
    methods = [(route.path_regex, route.methods) for route in ROUTES]

    async def routing(request: Request, error: HTTPException) -> Response:
        """What the framework refuses by itself: an unknown path or method."""
        path, request_id = request.url.path, request_id_of(request)
        if error.status_code == 405:
            allowed = shown(methods_of(methods, path))
            text = f"This address understands {allowed} only."
            response = problem("METHOD_NOT_ALLOWED", text, path, request_id, meta={"allowed": allowed})
            response.headers["Allow"] = allowed
            return response
        if error.status_code == 404:
            return problem("NOT_FOUND", "There is nothing at this address.", path, request_id)
        return problem("INVALID_REQUEST", "The request cannot be understood.", path, request_id)

    app.add_exception_handler(HTTPException, routing)  # type: ignore[arg-type]
    app.add_exception_handler(SpotError, _refused)  # type: ignore[arg-type]
    for kind in _PARTS:
        app.add_exception_handler(kind, _away)
    app.add_middleware(HeadAsGet, paths=methods)
    beat_host = services.beat_host if services is not None else ""
    app.add_middleware(Door, hosts=hosts, beat_host=beat_host)
    return app


async def _refused(request: Request, error: SpotError) -> Response:
    return problem_of(error, request.url.path, request_id_of(request))


async def _away(request: Request, error: Exception) -> Response:
    """The text of a driver's error stays in the log: it may name paths and addresses."""
    LOG.warning(
        "A part was away: %s", error, extra={telemetry.ACTION: "unavailable", telemetry.DETAIL: type(error).__name__}
    )
    if isinstance(error, RowUnreadable):
        text = str(error)
        return await _refused(request, Unavailable(text[0].upper() + text[1:], {"part": "database"}))
    full = "the object store is full" if isinstance(error, StoreFull) else ""
    if isinstance(error, StoreDown):
        full = full_disk(error)
    what = f"{full[0].upper()}{full[1:]}. Free some space; the" if full else "A part that this needs is away. The"
    away = Unavailable(f"{what} request can be repeated.", {"part": _PARTS[type(error)]})
    return await _refused(request, away)


_PARTS = {
    StoreDown: "database",
    StoreUnavailable: "object store",
    StoreFull: "object store",
    ProviderUnavailable: "provider",
}


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

    def __init__(self, config: uvicorn.Config, started: Callable[[], None], ending: Callable[[], None]) -> None:
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
    *,
    answering: Callable[[], None] = lambda: None,
    hosts: Collection[str] = (),
    add: Add = nothing_more,
) -> None:
    """Serve until SIGTERM or SIGINT; `started` is called when the first request can be answered, `answering` about
    once a second from then on, in the thread that answers. `hosts`: names to answer to, beside those of loopback.
    `add`: lays what else is served into the application."""
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


log = logging.getLogger(__name__)


class ServerFile:
    """There while the `with` block runs. Raises OSError on entry only."""

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
        """Write it again where it is missing; a file that cannot be written now is tried at the next call."""
        if self._path.exists():
            return
        try:
            self._write()
        except OSError as error:
            log.warning("no server file", extra={telemetry.ACTION: "serve", telemetry.ERROR: str(error)})

    def _write(self) -> None:
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(self._text)
        os.replace(draft, self._path)
