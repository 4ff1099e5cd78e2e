"""Commands that run beside a training, and the files of its code that the machine has changed.

A command is an order to the agent: the response to the request names it, and a later read shows what became of it.
"""

from __future__ import annotations

import re

from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from supervisor.api.shapes import bodies
from supervisor.api.wire.deps import caller_of, in_slow_thread, services_of
from supervisor.api.wire.responses import SNIFFED, json_response
from supervisor.api.wire.route import Routes
from supervisor.domain.callers import Scope
from supervisor.domain.errors import CommandNotFound
from supervisor.services.runs.orders import (
    COLLECT,
    EXEC,
    RUNNING,
    WAITING,
    CommandRequest,
    CommandShown,
    command,
    command_files,
    show_command,
)

routes = Routes("commands")
COLLECT_S = 300.0
_COMMAND_ID = re.compile(r"[0-9a-f]{16}")


@routes.on(
    "POST /v1/runs/{run_id}/commands",
    Scope.EXEC,
    {201: CommandShown},
    refuses="RUN_NOT_FOUND RUN_ENDED COMMAND_REFUSED FORBIDDEN NOT_SUPPORTED",
)
async def send_command(request: Request, run_id: str, body: bodies.CommandBody) -> Response:
    """Run a command beside the training, on the machine of a running run. It runs once at most. Its text stands in the
    history."""
    wanted = CommandRequest(EXEC, tuple(body.command), body.folder, body.timeout_s)
    return json_response(await in_slow_thread(_ordered, request, run_id, wanted), 201)


@routes.on(
    "POST /v1/runs/{run_id}/code/collected",
    Scope.WRITE,
    {201: CommandShown},
    refuses="RUN_NOT_FOUND RUN_ENDED COMMAND_REFUSED NOT_SUPPORTED",
)
async def collect_run_code(request: Request, run_id: str, body: bodies.CollectCodeBody) -> Response:
    """Collect the files of a running run's code that its machine has changed."""
    wanted = CommandRequest(COLLECT, timeout_s=COLLECT_S, paths=tuple(body.paths))
    return json_response(await in_slow_thread(_ordered, request, run_id, wanted), 201)


def _ordered(request: Request, run_id: str, wanted: CommandRequest) -> CommandShown:
    services = services_of(request)
    shown, ordered = command(services.parts, run_id, wanted, caller_of(request), services.exec_for_others)
    services.inbox.order(run_id, ordered.number)
    return shown


@routes.on(
    "GET /v1/runs/{run_id}/commands/{command_id}", Scope.READ, refuses="RUN_NOT_FOUND COMMAND_NOT_FOUND FORBIDDEN"
)
async def show_sent_command(request: Request, run_id: str, command_id: str) -> CommandShown:
    """Show what became of a command, with what it has printed so far."""
    services = services_of(request)

    def work() -> CommandShown:
        name = _command_id(run_id, command_id)
        shown, ordered = show_command(services.parts, run_id, name, caller_of(request), services.exec_for_others)
        if shown["state"] in (WAITING, RUNNING):
            services.inbox.order(run_id, ordered.number)
        return shown

    return await in_slow_thread(work)


@routes.on(
    "GET /v1/runs/{run_id}/commands/{command_id}/files",
    Scope.READ,
    {},
    refuses="RUN_NOT_FOUND COMMAND_NOT_FOUND",
    media={200: ("application/gzip",)},
)
async def read_command_files(request: Request, run_id: str, command_id: str) -> Response:
    """Read the files that were collected: a tar inside a gzip."""
    parts = services_of(request).parts
    size, pieces = await in_slow_thread(command_files, parts, run_id, _command_id(run_id, command_id))
    headers = {"Content-Length": str(size), "Cache-Control": "no-store", **SNIFFED}
    return StreamingResponse(pieces, 200, headers, "application/gzip")


def _command_id(run_id: str, text: str) -> str:
    if not _COMMAND_ID.fullmatch(text):
        raise CommandNotFound(f"{run_id} has no such command.", {"run_id": run_id})
    return text
