"""Webhooks: added, changed, tried, and what became of their messages."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.shapes.bodies import NoParameters, epoch, read_body, read_query
from supervisor.api.shapes.system.webhooks import (
    DELIVERY_MAX,
    AddWebhookBody,
    ChangeWebhookBody,
    DeliveryParameters,
    ReplayBody,
)
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import caller_of, services_of
from supervisor.api.wire.threads import in_slow_thread
from supervisor.domain.access.webhook_errors import DeliveryNotFound
from supervisor.ports.endpoints import GIVEN_UP
from supervisor.services.webhooks import deliveries as webhook_deliveries
from supervisor.services.webhooks import webhooks
from supervisor.services.webhooks.webhooks import WebhookChange, WebhookWish

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], route_class=Admitted)
ONCE = {"Cache-Control": "no-store"}


@router.post("", status_code=201)
async def add_webhook(request: Request) -> Response:
    """Add a webhook. The secret that signs its messages is in this answer and is never told again."""
    read_query(NoParameters, request)
    body = await read_body(AddWebhookBody, request)
    wish = WebhookWish(body.url, body.form, tuple(body.kinds), body.everything, body.note)
    parts, caller = services_of(request).parts, caller_of(request)
    made = await run_in_threadpool(webhooks.add, parts, wish, caller)
    return json_answer(made, 201, {**ONCE, "Location": f"/v1/webhooks/{made['webhook_id']}"})


@router.get("")
async def list_webhooks(request: Request) -> Response:
    """List one's own webhooks; an administrator's are all."""
    read_query(NoParameters, request)
    parts, caller = services_of(request).parts, caller_of(request)
    return json_answer(await run_in_threadpool(webhooks.listing, parts, caller))


@router.get("/{webhook_id}")
async def show_webhook(request: Request, webhook_id: str) -> Response:
    """Show one webhook."""
    read_query(NoParameters, request)
    parts, caller = services_of(request).parts, caller_of(request)
    return json_answer(await run_in_threadpool(webhooks.show, parts, webhook_id, caller))


@router.patch("/{webhook_id}")
async def change_webhook(request: Request, webhook_id: str) -> Response:
    """Change where a webhook leads and what it hears of, or switch it off and on."""
    read_query(NoParameters, request)
    body = await read_body(ChangeWebhookBody, request)
    kinds = None if body.kinds is None else tuple(body.kinds)
    wish = WebhookChange(body.url, kinds, body.everything, body.note, body.enabled)
    parts, caller = services_of(request).parts, caller_of(request)
    return json_answer(await run_in_threadpool(webhooks.change, parts, webhook_id, wish, caller))


@router.delete("/{webhook_id}")
async def remove_webhook(request: Request, webhook_id: str) -> Response:
    """Remove a webhook, with what was and what is still to be sent to it."""
    read_query(NoParameters, request)
    parts, caller = services_of(request).parts, caller_of(request)
    return json_answer(await run_in_threadpool(webhooks.remove, parts, webhook_id, caller))


@router.post("/{webhook_id}/test")
async def test_webhook(request: Request, webhook_id: str) -> Response:
    """Send one message that says that it is a test. Takes up to ten seconds."""
    read_query(NoParameters, request)
    parts, caller = services_of(request).parts, caller_of(request)
    return json_answer(await in_slow_thread(webhooks.try_out, parts, webhook_id, caller))


@router.post("/{webhook_id}/rotate")
async def rotate_webhook(request: Request, webhook_id: str) -> Response:
    """Make a new secret, told once. For a day the one before it signs too."""
    read_query(NoParameters, request)
    parts, caller = services_of(request).parts, caller_of(request)
    return json_answer(await run_in_threadpool(webhooks.rotate, parts, webhook_id, caller), 200, ONCE)


@router.get("/{webhook_id}/deliveries")
async def list_deliveries(request: Request, webhook_id: str) -> Response:
    """List what was sent to a webhook and what became of it, newest first."""
    query = read_query(DeliveryParameters, request)
    state = GIVEN_UP if query.failed else query.state or ""
    wish = (webhook_id, query.page_size, query.cursor, state, caller_of(request))
    return json_answer(await run_in_threadpool(webhook_deliveries.page, services_of(request).parts, *wish))


@router.post("/{webhook_id}/deliveries/{delivery_id}/replay", status_code=202)
async def replay_delivery(request: Request, webhook_id: str, delivery_id: str) -> Response:
    """Send one message again, with the id that it had."""
    read_query(NoParameters, request)
    if not delivery_id.isascii() or not delivery_id.isdigit() or len(delivery_id) > len(str(DELIVERY_MAX)):
        raise DeliveryNotFound("There is no delivery with this number.")
    wish = (webhook_id, int(delivery_id), caller_of(request))
    answer = await run_in_threadpool(webhook_deliveries.replay, services_of(request).parts, *wish)
    return json_answer(answer, 202)


@router.post("/{webhook_id}/replay", status_code=202)
async def replay_failed_deliveries(request: Request, webhook_id: str) -> Response:
    """Send again all that was given up, since a time or in the last week."""
    read_query(NoParameters, request)
    body = await read_body(ReplayBody, request, optional=True)
    wish = (webhook_id, epoch(body.since), caller_of(request))
    answer = await run_in_threadpool(webhook_deliveries.replay_failed, services_of(request).parts, *wish)
    return json_answer(answer, 202)
