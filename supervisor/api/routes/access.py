"""Tokens, webhooks and claims: who may call the API, which receivers get announcements, and which session of a notebook
gets the job of a launch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from supervisor.api.shapes import bodies, parameters
from supervisor.api.shapes.parameters import epoch
from supervisor.api.wire.deps import caller_of, door_of, in_door_thread, in_slow_thread, services_of, transfers_of
from supervisor.api.wire.responses import json_response
from supervisor.api.wire.route import Routes
from supervisor.domain.callers import Caps, Scope
from supervisor.domain.errors import DeliveryNotFound
from supervisor.ports.notifier import GIVEN_UP
from supervisor.services.access import tokens
from supervisor.services.access.claims import ClaimAnswer
from supervisor.services.access.passes import read_ticket
from supervisor.services.access.tokens import TokenList, TokenMade, TokenRequest, TokenShown
from supervisor.services.webhooks import deliveries, webhooks
from supervisor.services.webhooks.deliveries import DeliveryList, Replayed
from supervisor.services.webhooks.webhooks import (
    WebhookChange,
    WebhookList,
    WebhookMade,
    WebhookRequest,
    WebhookShown,
    WebhookTested,
)

token_routes, webhook_routes, claim_routes = Routes("tokens"), Routes("webhooks"), Routes("agent")
NOT_STORED = {"Cache-Control": "no-store"}
PIECE_BYTES = 1 << 16
DELIVERY_DIGITS = len(str(2**62))

Result = TypeVar("Result")


@token_routes.on("POST /v1/tokens", Scope.ADMIN, {201: TokenMade}, refuses="CONFLICT", sends=("Cache-Control",))
async def create_token(request: Request, body: bodies.CreateTokenBody) -> Response:
    """Create a token. Only this response contains its text."""
    caps = Caps(usd_per_day=body.max_usd_per_day, usd_per_run=body.max_usd_per_run, plans_only=body.plans_only)
    scopes, owner = frozenset(body.scopes), body.owner or ""
    new_token = TokenRequest(body.name, owner, scopes, body.expires_in_s, body.max_active_runs, caps)
    made = await run_in_threadpool(tokens.create, services_of(request).parts, new_token, caller_of(request))
    return json_response(made, 201, NOT_STORED)


@token_routes.on("GET /v1/tokens", Scope.ADMIN)
async def list_tokens(request: Request) -> TokenList:
    """List the tokens. Tokens that are not revoked come first."""
    return await run_in_threadpool(tokens.listing, services_of(request).parts)


@token_routes.on("DELETE /v1/tokens/{token_id}", Scope.ADMIN, refuses="TOKEN_NOT_FOUND")
async def revoke_token(request: Request, token_id: str) -> TokenShown:
    """Revoke a token. It is invalid here at once, and on other replicas within five seconds."""
    services, caller = services_of(request), caller_of(request)
    return await run_in_threadpool(tokens.revoke, services.parts, services.identity, token_id, caller)


@webhook_routes.on(
    "POST /v1/webhooks",
    Scope.WRITE,
    {201: WebhookMade},
    refuses="URL_REFUSED FORBIDDEN TOO_MANY_WEBHOOKS",
    sends=("Location",),
)
async def add_webhook(request: Request, body: bodies.AddWebhookBody) -> Response:
    """Add a webhook. Only this response contains the secret that signs its messages."""
    new_webhook = WebhookRequest(body.url, body.form, tuple(body.kinds), body.everything, body.note)
    made = await run_in_threadpool(webhooks.add, services_of(request).parts, new_webhook, caller_of(request))
    return json_response(made, 201, {**NOT_STORED, "Location": f"/v1/webhooks/{made['webhook_id']}"})


@webhook_routes.on("GET /v1/webhooks", Scope.READ)
async def list_webhooks(request: Request) -> WebhookList:
    """List your own webhooks; an administrator sees all."""
    return await run_in_threadpool(webhooks.listing, services_of(request).parts, caller_of(request))


@webhook_routes.on("GET /v1/webhooks/{webhook_id}", Scope.READ, refuses="WEBHOOK_NOT_FOUND")
async def show_webhook(request: Request, webhook_id: str) -> WebhookShown:
    """Show one webhook."""
    return await _own(webhooks.show, request, webhook_id)


@webhook_routes.on(
    "PATCH /v1/webhooks/{webhook_id}", Scope.WRITE, refuses="WEBHOOK_NOT_FOUND URL_REFUSED FORBIDDEN CONFLICT"
)
async def change_webhook(request: Request, webhook_id: str, body: bodies.ChangeWebhookBody) -> WebhookShown:
    """Change the address of a webhook and its kinds of events, or switch it off and on."""
    kinds = None if body.kinds is None else tuple(body.kinds)
    change = WebhookChange(body.url, kinds, body.everything, body.note, body.enabled)
    return await _own(webhooks.change, request, webhook_id, change)


@webhook_routes.on("DELETE /v1/webhooks/{webhook_id}", Scope.WRITE, refuses="WEBHOOK_NOT_FOUND CONFLICT")
async def remove_webhook(request: Request, webhook_id: str) -> WebhookShown:
    """Remove a webhook with all its deliveries."""
    return await _own(webhooks.remove, request, webhook_id)


@webhook_routes.on("POST /v1/webhooks/{webhook_id}/test", Scope.WRITE, refuses="WEBHOOK_NOT_FOUND CONFLICT")
async def test_webhook(request: Request, webhook_id: str) -> WebhookTested:
    """Send one message that says that it is a test. Takes up to ten seconds."""
    return await in_slow_thread(webhooks.try_out, services_of(request).parts, webhook_id, caller_of(request))


@webhook_routes.on(
    "POST /v1/webhooks/{webhook_id}/rotate", Scope.WRITE, {200: WebhookMade}, refuses="WEBHOOK_NOT_FOUND CONFLICT"
)
async def rotate_webhook(request: Request, webhook_id: str) -> Response:
    """Make a new secret, which only this response contains. For a day the previous one signs too."""
    made = await run_in_threadpool(webhooks.rotate, services_of(request).parts, webhook_id, caller_of(request))
    return json_response(made, 200, NOT_STORED)


@webhook_routes.on("GET /v1/webhooks/{webhook_id}/deliveries", Scope.READ, refuses="WEBHOOK_NOT_FOUND CURSOR_INVALID")
async def list_deliveries(request: Request, webhook_id: str, query: parameters.DeliveryParameters) -> DeliveryList:
    """List the messages to a webhook with their results, newest first."""
    page = partial(deliveries.page, cursor_text=query.cursor, state=GIVEN_UP if query.failed else query.state or "")
    parts, caller = services_of(request).parts, caller_of(request)
    return await run_in_threadpool(page, parts, webhook_id, query.page_size, caller=caller)


@webhook_routes.on(
    "POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay",
    Scope.WRITE,
    {202: Replayed},
    refuses="WEBHOOK_NOT_FOUND DELIVERY_NOT_FOUND",
)
async def replay_delivery(request: Request, webhook_id: str, delivery_id: str) -> Replayed:
    """Send one message again, with its old id."""
    if not delivery_id.isascii() or not delivery_id.isdigit() or len(delivery_id) > DELIVERY_DIGITS:
        raise DeliveryNotFound("There is no delivery with this number.")
    return await _own(deliveries.replay, request, webhook_id, int(delivery_id))


@webhook_routes.on(
    "POST /v1/webhooks/{webhook_id}/replay",
    Scope.WRITE,
    {202: Replayed},
    refuses="WEBHOOK_NOT_FOUND",
    body_required=False,
)
async def replay_failed_deliveries(request: Request, webhook_id: str, body: bodies.ReplayBody) -> Replayed:
    """Send all messages again that were given up, since a time or in the last week."""
    return await _own(deliveries.replay_failed, request, webhook_id, epoch(body.since))


async def _own(action: Callable[..., Result], request: Request, *values: object) -> Result:
    """`action(parts, *values, caller)` in a thread."""
    return await run_in_threadpool(action, services_of(request).parts, *values, caller_of(request))


# --- machines that hold no token --------------------------------------------------------------------------------------


@claim_routes.on(
    "POST /v1/claims",
    None,
    {200: ClaimAnswer},
    refuses="TICKET_REFUSED TICKET_EXPIRED TICKET_USED LAUNCH_OVER HANDOVER_REFUSED NOT_FOUND STORE_UNAVAILABLE",
    sends=("Cache-Control",),
)
async def claim_job(request: Request, body: bodies.ClaimBody) -> Response:
    """Exchange a ticket for the job of its launch, its secrets, and a pass for the objects of its run. The same
    claimant may repeat it."""
    door = door_of(request)
    grant = read_ticket(door.book.signer, body.ticket, door.parts.clock.now())  # else it takes nobody's place
    with transfers_of(request).transfer(grant.run_id):  # whoever has seen one notebook keeps no other one waiting
        answer = await in_door_thread(door.claim, body.ticket, body.claimant, body.session)
    return json_response(answer, 200, NOT_STORED)


@claim_routes.on("GET /v1/door/agent.pyz", None, {}, media={200: ("application/octet-stream",)}, refuses="NOT_FOUND")
async def read_agent(request: Request) -> Response:
    """Read the agent's archive. It contains no secret."""
    agent = door_of(request).agent
    size = (await in_door_thread(agent.stat)).st_size
    return StreamingResponse(archive_pieces(agent), 200, {"Content-Length": str(size)}, "application/octet-stream")


async def archive_pieces(agent: Path) -> AsyncIterator[bytes]:
    """Anybody may ask, so a client that takes its time must not hold the whole archive in our memory."""
    with await in_door_thread(open, agent, "rb") as file:
        while piece := await in_door_thread(file.read, PIECE_BYTES):
            yield piece
