"""Tokens and webhooks: who may ask, and who is told, with what became of the messages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.shapes import access
from supervisor.api.shapes.bodies import epoch
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import caller_of, in_slow_thread, services_of
from supervisor.api.wire.route import Routes
from supervisor.domain.callers import Scope
from supervisor.domain.errors import DeliveryNotFound
from supervisor.ports.notifier import GIVEN_UP
from supervisor.services.access import tokens
from supervisor.services.access.tokens import TokenRequest
from supervisor.services.views.run_view import Json
from supervisor.services.webhooks import deliveries, webhooks
from supervisor.services.webhooks.webhooks import WebhookChange, WebhookRequest

token_routes, webhook_routes = Routes("tokens"), Routes("webhooks")
ONCE = {"Cache-Control": "no-store"}


@token_routes.on("POST /v1/tokens", Scope.ADMIN, {201: access.TokenMade}, refuses="CONFLICT", sends=("Cache-Control",))
async def create_token(request: Request, body: access.CreateTokenBody) -> Response:
    """Make a token. Its text is in this answer and is never told again."""
    wish = TokenRequest(body.name, body.owner or "", frozenset(body.scopes), body.expires_in_s, body.max_active_runs)
    services, caller = services_of(request), caller_of(request)
    made = await run_in_threadpool(tokens.create, services.parts, wish, caller)
    return json_answer(made, 201, ONCE)


@token_routes.on("GET /v1/tokens", Scope.ADMIN, access.TokenList)
async def list_tokens(request: Request) -> object:
    """List the tokens, those first that were not revoked."""
    return await run_in_threadpool(tokens.listing, services_of(request).parts)


@token_routes.on("DELETE /v1/tokens/{token_id}", Scope.ADMIN, access.TokenShown, refuses="TOKEN_NOT_FOUND")
async def revoke_token(request: Request, token_id: str) -> object:
    """Revoke a token. It counts no more, here at once and on other replicas within five seconds."""
    services, caller = services_of(request), caller_of(request)
    work = (services.parts, services.identity, token_id, caller)
    return await run_in_threadpool(tokens.revoke, *work)


@webhook_routes.on(
    "POST /v1/webhooks",
    Scope.WRITE,
    {201: access.WebhookMade},
    refuses="URL_REFUSED FORBIDDEN TOO_MANY_WEBHOOKS",
    sends=("Location",),
)
async def add_webhook(request: Request, body: access.AddWebhookBody) -> Response:
    """Add a webhook. The secret that signs its messages is in this answer and is never told again."""
    wish = WebhookRequest(body.url, body.form, tuple(body.kinds), body.everything, body.note)
    parts, caller = services_of(request).parts, caller_of(request)
    made = await run_in_threadpool(webhooks.add, parts, wish, caller)
    return json_answer(made, 201, {**ONCE, "Location": f"/v1/webhooks/{made['webhook_id']}"})


@webhook_routes.on("GET /v1/webhooks", Scope.READ, access.WebhookList)
async def list_webhooks(request: Request) -> object:
    """List one's own webhooks; an administrator's are all."""
    return await _own(request, webhooks.listing)


@webhook_routes.on("GET /v1/webhooks/{webhook_id}", Scope.READ, access.WebhookShown, refuses="WEBHOOK_NOT_FOUND")
async def show_webhook(request: Request, webhook_id: str) -> object:
    """Show one webhook."""
    return await _own(request, webhooks.show, webhook_id)


@webhook_routes.on(
    "PATCH /v1/webhooks/{webhook_id}",
    Scope.WRITE,
    access.WebhookShown,
    refuses="WEBHOOK_NOT_FOUND URL_REFUSED FORBIDDEN CONFLICT",
)
async def change_webhook(request: Request, webhook_id: str, body: access.ChangeWebhookBody) -> object:
    """Change where a webhook leads and what it hears of, or switch it off and on."""
    kinds = None if body.kinds is None else tuple(body.kinds)
    wish = WebhookChange(body.url, kinds, body.everything, body.note, body.enabled)
    return await _own(request, webhooks.change, webhook_id, wish)


@webhook_routes.on(
    "DELETE /v1/webhooks/{webhook_id}", Scope.WRITE, access.WebhookShown, refuses="WEBHOOK_NOT_FOUND CONFLICT"
)
async def remove_webhook(request: Request, webhook_id: str) -> object:
    """Remove a webhook, with what was and what is still to be sent to it."""
    return await _own(request, webhooks.remove, webhook_id)


@webhook_routes.on(
    "POST /v1/webhooks/{webhook_id}/test", Scope.WRITE, access.WebhookTested, refuses="WEBHOOK_NOT_FOUND CONFLICT"
)
async def test_webhook(request: Request, webhook_id: str) -> object:
    """Send one message that says that it is a test. Takes up to ten seconds."""
    parts, caller = services_of(request).parts, caller_of(request)
    return await in_slow_thread(webhooks.try_out, parts, webhook_id, caller)


@webhook_routes.on(
    "POST /v1/webhooks/{webhook_id}/rotate", Scope.WRITE, access.WebhookMade, refuses="WEBHOOK_NOT_FOUND CONFLICT"
)
async def rotate_webhook(request: Request, webhook_id: str) -> Response:
    """Make a new secret, told once. For a day the one before it signs too."""
    parts, caller = services_of(request).parts, caller_of(request)
    return json_answer(await run_in_threadpool(webhooks.rotate, parts, webhook_id, caller), 200, ONCE)


@webhook_routes.on(
    "GET /v1/webhooks/{webhook_id}/deliveries",
    Scope.READ,
    access.DeliveryList,
    refuses="WEBHOOK_NOT_FOUND CURSOR_INVALID",
)
async def list_deliveries(request: Request, webhook_id: str, query: access.DeliveryParameters) -> object:
    """List what was sent to a webhook and what became of it, newest first."""
    state = GIVEN_UP if query.failed else query.state or ""
    parts, caller = services_of(request).parts, caller_of(request)
    page = partial(deliveries.page, parts, webhook_id, query.page_size, cursor_text=query.cursor)
    return await run_in_threadpool(page, state=state, caller=caller)


@webhook_routes.on(
    "POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay",
    Scope.WRITE,
    {202: access.Replayed},
    refuses="WEBHOOK_NOT_FOUND DELIVERY_NOT_FOUND",
)
async def replay_delivery(request: Request, webhook_id: str, delivery_id: str) -> object:
    """Send one message again, with the id that it had."""
    if not delivery_id.isascii() or not delivery_id.isdigit() or len(delivery_id) > len(str(access.DELIVERY_MAX)):
        raise DeliveryNotFound("There is no delivery with this number.")
    wish = (webhook_id, int(delivery_id), caller_of(request))
    return await run_in_threadpool(deliveries.replay, services_of(request).parts, *wish)


@webhook_routes.on(
    "POST /v1/webhooks/{webhook_id}/replay",
    Scope.WRITE,
    {202: access.Replayed},
    refuses="WEBHOOK_NOT_FOUND",
    body_required=False,
)
async def replay_failed_deliveries(request: Request, webhook_id: str, body: access.ReplayBody) -> object:
    """Send again all that was given up, since a time or in the last week."""
    wish = (webhook_id, epoch(body.since), caller_of(request))
    return await run_in_threadpool(deliveries.replay_failed, services_of(request).parts, *wish)


async def _own(request: Request, deed: Callable[..., Json], *of: object) -> Json:
    """What is done to webhooks on behalf of who asks."""
    return await run_in_threadpool(deed, services_of(request).parts, *of, caller_of(request))
