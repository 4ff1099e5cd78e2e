"""Who may do what: the scope that each operation needs, and whose run it touches.

Asked here for every request, before its route runs, and nowhere else. Another owner's run is answered like one that
does not exist. An operation that is not in the table cannot be called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute

from supervisor.api.errors import RateLimited, ScopeMissing, request_id_of
from supervisor.api.wire.deps import Services, services_of
from supervisor.domain.access.callers import Caller, Scope
from supervisor.domain.errors import Unauthorized
from supervisor.services.runs.changing import refuse_unknown
from supervisor.telemetry import logs as telemetry

# None: anybody; a beat carries the nonce of its launch instead.
NEEDED: Mapping[str, Scope | None] = {
    "live": None,
    "ready": None,
    "push_beat": None,
    "show_document": Scope.READ,
    "show_meta": Scope.READ,
    "show_loop": Scope.READ,
    "show_asker": Scope.READ,
    "show_metrics": Scope.METRICS,
    "doctor": Scope.ADMIN,
    "submit_run": Scope.WRITE,
    "import_old_run": Scope.WRITE,
    "list_runs": Scope.READ,
    "show_run": Scope.READ,
    "change_run": Scope.WRITE,
    "show_evidence": Scope.READ,
    "show_console": Scope.READ,
    "show_facts": Scope.READ,
    "show_spec": Scope.READ,
    "show_launch": Scope.READ,
    "list_attempts": Scope.READ,
    "list_beats": Scope.READ,
    "list_zones": Scope.READ,
    "list_run_events": Scope.READ,
    "list_events": Scope.READ,
    "read_log": Scope.READ,
    "download_log": Scope.READ,
    "show_code": Scope.READ,
    "store_code": Scope.WRITE,
    "list_costs": Scope.READ,
    "show_cost": Scope.READ,
    "purge_run": Scope.WRITE,
    "stop_run": Scope.WRITE,
    "retry_run": Scope.WRITE,
    "resume_run": Scope.WRITE,
    "stop_runs": Scope.WRITE,
    "resume_runs": Scope.WRITE,
    "approve_run": Scope.WRITE,
    "list_run_files": Scope.READ,
    "read_file": Scope.READ,
    "look_at_file": Scope.READ,
    "note_results_pulled": Scope.WRITE,
    "list_machines": Scope.ADMIN,
    "collect_machines": Scope.ADMIN,
    "list_gpus": Scope.ADMIN,
    "bring_gpu_back": Scope.ADMIN,
    "list_prices": Scope.READ,
    "refresh_prices": Scope.ADMIN,
    "preempt": Scope.ADMIN,
    "kill": Scope.ADMIN,
    "freeze": Scope.ADMIN,
    "stockout": Scope.ADMIN,
    "create_token": Scope.ADMIN,
    "list_tokens": Scope.ADMIN,
    "revoke_token": Scope.ADMIN,
    "add_webhook": Scope.WRITE,
    "list_webhooks": Scope.READ,
    "show_webhook": Scope.READ,
    "change_webhook": Scope.WRITE,
    "remove_webhook": Scope.WRITE,
    "test_webhook": Scope.WRITE,
    "rotate_webhook": Scope.WRITE,
    "list_deliveries": Scope.READ,
    "replay_delivery": Scope.WRITE,
    "replay_failed_deliveries": Scope.WRITE,
}


class Admitted(APIRoute):
    """A route that is reached past `admit` only. Its endpoint takes the request and the texts in its path, reads the
    rest by itself and returns the answer: the framework's own reading and asking cost more than all that is asked."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Raises TypeError for an endpoint that wants more."""
        endpoint, wants = self.endpoint, self.dependant
        more = wants.query_params or wants.header_params or wants.cookie_params or wants.body_params
        texts = {found.name for found in wants.path_params if found.field_info.annotation is str}
        if (
            more
            or wants.dependencies
            or wants.request_param_name != "request"
            or texts != {*self.param_convertors}
        ):
            raise TypeError(f"{self.name} must take the request and the texts in its path, and nothing else")

        async def admitted(request: Request) -> Response:
            await admit(request)
            answer: Response = await endpoint(request, **request.path_params)
            return answer

        return admitted


async def admit(request: Request) -> None:
    """Leaves the caller on the request. Raises Unauthorized, RateLimited, ScopeMissing, NotFound, StoreDown."""
    name = request.scope["route"].name
    needed = NEEDED[name]
    if needed is None:
        return
    services = services_of(request)
    if name in services.open_operations:
        return
    caller = await _identified(request, services)
    telemetry.asked_by(caller.actor, caller.token_id)
    if not caller.may(needed):
        raise ScopeMissing(f"This needs a token with the scope {needed}.", {"needed": str(needed)})
    run_id = request.path_params.get("run_id")
    if run_id is not None and not caller.admin:
        await run_in_threadpool(refuse_unknown, services.parts, run_id, caller)
    request.state.caller = caller


async def _identified(request: Request, services: Services) -> Caller:
    """Raises Unauthorized, RateLimited, StoreDown."""
    header, rates, now = (
        request.headers.get("authorization", ""),
        services.rates,
        services.parts.clock.monotonic,
    )
    peer = request.client.host if request.client is not None else ""
    if rates is not None:
        _wait(
            rates.before_asking(header, peer, now()),
            "Too many requests without a valid token came from here.",
        )
    try:
        caller = services.recall(header, request_id_of(request))
        if caller is None:
            soon = services.identify_soon if NEEDED[request.scope["route"].name] is Scope.METRICS else None
            caller = await run_in_threadpool(soon or services.identify, header, request_id_of(request))
    except Unauthorized:
        if rates is not None:
            rates.refused(header, peer, now())
        raise
    if rates is not None:
        _wait(rates.request(header, caller.token_id, now()), "Too many requests came with this token.")
    return caller


def _wait(wait_s: float, why: str) -> None:
    if wait_s > 0:
        after_s = math.ceil(wait_s)
        raise RateLimited(f"{why} Repeat this one in {after_s} s.", {"retry_after_s": after_s})
