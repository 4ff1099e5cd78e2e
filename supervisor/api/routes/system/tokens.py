"""Tokens: made, listed, revoked. For administrators."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.shapes.bodies import NoParameters, read_body, read_query
from supervisor.api.shapes.system.tokens import CreateTokenBody
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import caller_of, services_of
from supervisor.services.access import tokens
from supervisor.services.access.tokens import TokenWish

router = APIRouter(prefix="/v1/tokens", tags=["tokens"], route_class=Admitted)


@router.post("", status_code=201)
async def create_token(request: Request) -> Response:
    """Make a token. Its text is in this answer and is never told again."""
    read_query(NoParameters, request)
    body = await read_body(CreateTokenBody, request)
    wish = TokenWish(
        body.name, body.owner or "", frozenset(body.scopes), body.expires_in_s, body.max_active_runs
    )
    services, caller = services_of(request), caller_of(request)
    made = await run_in_threadpool(tokens.create, services.parts, wish, caller)
    return json_answer(made, 201, {"Cache-Control": "no-store"})


@router.get("")
async def list_tokens(request: Request) -> Response:
    """List the tokens, those first that were not revoked."""
    read_query(NoParameters, request)
    return json_answer(await run_in_threadpool(tokens.listing, services_of(request).parts))


@router.delete("/{token_id}")
async def revoke_token(request: Request, token_id: str) -> Response:
    """Revoke a token. It counts no more, here at once and on other replicas within five seconds."""
    read_query(NoParameters, request)
    services, caller = services_of(request), caller_of(request)
    work = (services.parts, services.identity, token_id, caller)
    return json_answer(await run_in_threadpool(tokens.revoke, *work))
