"""A route: its function declares what it needs, takes and returns, and no request reaches it without a check of its
token.

An endpoint is declared with its scope, its responses, the refusals beyond those of every route, and its headers. Its
arguments `query` and `body` are models: they are read strictly before it runs, and unknown parameters are refused.
It returns a value that is rendered as JSON without validation, and whose type is the declaration of the response 200;
or a Response, and then the decorator names the types by status. The OpenAPI document is made of the same declarations.

The right of the caller is checked here for every request, and nowhere else. A run of another owner is refused like a
run that does not exist.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_type_hints

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from pydantic import BaseModel
from typing_extensions import is_typeddict

from supervisor.api.errors import RateLimited, ScopeMissing, request_id_of
from supervisor.api.shapes.parameters import NoParameters
from supervisor.api.wire.deps import Services, services_of
from supervisor.api.wire.reading import JSON, read_body, read_query
from supervisor.api.wire.responses import json_response
from supervisor.domain.callers import Caller, Scope
from supervisor.domain.errors import Unauthorized
from supervisor.services.runs.changing import refuse_unknown
from supervisor.telemetry import logs as telemetry

Endpoint = Callable[..., Awaitable[object]]
F = TypeVar("F", bound=Endpoint)
Model = type[BaseModel]
Shape = type[Any]  # a TypedDict, declared beside the function that builds the response
# Shared by several operations.
KEYED = "IDEMPOTENCY_KEY_REUSED IDEMPOTENCY_KEY_IN_FLIGHT "
WITH_KEY: dict[str, Any] = {"takes": ("Idempotency-Key",), "sends": ("ETag", "Idempotency-Replayed")}
SPEC = (
    "INVALID_TIMEOUTS PRICE_UNKNOWN DATA_ELSEWHERE CODE_NOT_FOUND CODE_REFUSED CELL_FIXED RUN_COMPLETED RUN_STOPPING "
    "SPEC_DIFFERS STOP_NEWER PURGE_RUNNING TOO_MANY_ACTIVE_RUNS AFTER_UNKNOWN AFTER_CYCLE SPEND_UNBOUNDED OVER_DAY_CAP "
    "OVER_RUN_CAP PLAN_REQUIRED PLAN_REFUSED PLAN_PRICE_ABOVE "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`needs`: None = no token is needed. `responses`: status -> shape; a status whose response has no JSON is in
    `media` alone. `also`: another shape of the response 200. `media`: status -> media types of responses beside JSON;
    text/... is text, others are bytes.

    `query`, `body`: types of the endpoint's arguments of these names. `body_by_hand`: the endpoint has no argument
    `body` and reads the request by itself. `raw_body`: the media type of a body that is not JSON. `json_types`: the
    media types of a body that is.

    `refuses`: codes beyond those of every route, separated by blanks. `takes`, `sends`: request headers, and headers of
    the good responses, by their names in api/document/parameters. `hidden`: from the document. `by_pass`: the endpoint
    itself checks the pass of a run, which is no token."""

    needs: Scope | None
    responses: Mapping[int, Shape]
    query: Model | None
    body: Model | None
    body_by_hand: bool
    body_required: bool = True
    raw_body: str = ""
    json_types: tuple[str, ...] = (JSON,)
    also: Shape | None = None
    media: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    refuses: str = ""
    takes: tuple[str, ...] = ()
    sends: tuple[str, ...] = ()
    hidden: bool = False
    by_pass: bool = False

    @property
    def shapes(self) -> set[Shape]:
        """Of the body and the responses."""
        return {*self.responses.values(), *(part for part in (self.body, self.also) if part is not None)}


class Routes(list["Admitted"]):
    """The routes of one tag of the document."""

    def __init__(self, tag: str) -> None:
        super().__init__()
        self._tag = tag

    def on(
        self,
        address: str,
        needs: Scope | None,
        responses: Mapping[int, Shape] | None = None,
        *,
        tag: str = "",
        **more: Any,
    ) -> Callable[[F], F]:
        """`address`: a method and a path. `responses` None: the endpoint's return type is the shape of 200. `more`: as
        in Operation. Raises TypeError for an endpoint without a declared response, and with arguments other than the
        request, the texts in its path, a query and a body."""
        method, _, path = address.partition(" ")

        def declared(endpoint: F) -> F:
            types = get_type_hints(endpoint)
            if responses is None and not is_typeddict(types["return"]):
                raise TypeError(f"{endpoint.__name__} must return a TypedDict, or its route must declare the responses")
            operation = Operation(
                needs=needs,
                responses={200: types["return"]} if responses is None else responses,
                query=types.get("query"),
                **{"body": types.get("body"), "body_by_hand": "body" not in types, **more},
            )
            self.append(Admitted(method, path, endpoint, operation, tag or self._tag))
            return endpoint

        return declared


class Admitted(APIRoute):
    """A route that runs after `admit` only. The framework sees the texts in the path alone: its own reading of queries
    and bodies costs more and refuses less."""

    def __init__(self, method: str, path: str, endpoint: Endpoint, operation: Operation, tag: str) -> None:
        self.operation, self._endpoint = operation, endpoint
        super().__init__(
            path,
            _stand_in(endpoint, path),
            methods=[method],
            tags=[tag],
            name=endpoint.__name__,
            operation_id=endpoint.__name__,
            include_in_schema=not operation.hidden,
        )
        self.endpoint = endpoint

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return self._respond

    async def _respond(self, request: Request) -> Response:
        operation, arguments = self.operation, dict(request.path_params)
        await admit(request, self.name, operation.needs)
        if operation.query is not None:
            arguments["query"] = read_query(operation.query, request)
        elif request.scope["query_string"]:
            read_query(NoParameters, request)
        if operation.body is not None and not operation.body_by_hand:
            arguments["body"] = await read_body(operation.body, request, not operation.body_required)
        result = await self._endpoint(request, **arguments)
        return result if isinstance(result, Response) else json_response(result, min(operation.responses))


def _stand_in(endpoint: Endpoint, path: str) -> Endpoint:
    """For the framework, which reads the name and the docstring of an endpoint, and would make a model of each text in
    its path: a twentieth of a start. The document has these texts from the path."""
    texts = re.findall(r"{(\w+)[^}]*}", path)
    wanted = set(inspect.signature(endpoint).parameters) - {"query", "body"}
    if wanted != {"request", *texts}:
        raise TypeError(f"{endpoint.__name__} must take the request and the texts in its path, and nothing else")

    async def stand_in(request: Request) -> Response:
        raise NotImplementedError

    stand_in.__name__, stand_in.__doc__ = endpoint.__name__, endpoint.__doc__
    return stand_in


async def admit(request: Request, name: str, needed: Scope | None) -> None:
    """Sets the caller on the request. `name`: of the operation. Raises Unauthorized, RateLimited, ScopeMissing,
    NotFound, StoreDown."""
    if needed is None:
        return
    services = services_of(request)
    if name in services.open_operations:
        return
    caller = await _identified(request, services, needed)
    telemetry.set_caller(caller.actor, caller.token_id)
    if not caller.may(needed):
        raise ScopeMissing(f"This needs a token with the scope {needed}.", {"needed": str(needed)})
    run_id = request.path_params.get("run_id")
    if run_id is not None and not caller.admin:
        await run_in_threadpool(refuse_unknown, services.parts, run_id, caller)
    request.state.caller = caller


async def _identified(request: Request, services: Services, needed: Scope) -> Caller:
    """Raises Unauthorized, RateLimited, StoreDown."""
    header, rates, now = request.headers.get("authorization", ""), services.rates, services.parts.clock.monotonic
    peer = request.client.host if request.client is not None else ""
    if rates is not None:
        _wait(rates.before_asking(header, peer, now()), "Too many requests without a valid token came from here.")
    try:
        caller = services.recall(header, request_id_of(request))
        if caller is None:
            soon = services.identify_soon if needed is Scope.METRICS else None
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
