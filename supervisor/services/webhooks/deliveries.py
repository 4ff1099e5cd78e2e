"""Deliveries to a webhook: list them, and repeat them on a user's request."""

from __future__ import annotations

from typing_extensions import TypedDict

from supervisor.domain.callers import Caller
from supervisor.domain.errors import DeliveryNotFound
from supervisor.domain.events import EventKind
from supervisor.ports.notifier import DELIVERED, GIVEN_UP, PENDING, Delivery
from supervisor.ports.store import RunFilter
from supervisor.services.parts import Parts
from supervisor.services.views import formats
from supervisor.services.webhooks.webhooks import find

PAGE, PAGE_MAX = 50, 1000
REPLAY_S = 7 * 86_400.0  # how far back failed deliveries are repeated if no time is given


class DeliveryShown(TypedDict):
    """`kind`: of the announced event. `sequence`: orders the messages of one run. `state`: pending, delivered or
    given_up. `status`: of the receiver's last response, null = there was none."""

    delivery_id: int
    event_id: int
    run_id: str | None
    sequence: int
    kind: str
    text: str
    at: str
    state: str
    tries: int
    next_try_at: str | None
    last_try_at: str | None
    delivered_at: str | None
    status: int | None
    detail: str


class DeliveryList(TypedDict):
    """Newest first."""

    deliveries: list[DeliveryShown]
    next_cursor: str | None


class Replayed(TypedDict):
    """How many messages are sent again."""

    replayed: int


def page(
    parts: Parts, webhook_id: str, size: int, *, cursor_text: str | None, state: str, caller: Caller
) -> DeliveryList:
    """Newest first; `state` "" = any. Raises WebhookNotFound, CursorInvalid, StoreDown."""
    endpoint, key = find(parts, webhook_id, caller), parts.store.secret
    where = RunFilter(text=f"deliveries {endpoint.id} {state}")
    before = None if cursor_text is None else formats.read_cursor(key, cursor_text, where)
    size = min(size or PAGE, PAGE_MAX)
    rows = parts.store.deliveries.page(endpoint.id, before, size + 1, state=state)
    shown = rows[:size]
    more = formats.make_cursor(key, shown[-1].event_id, where) if len(rows) > size else None
    return {"deliveries": [delivery_json(delivery) for delivery in shown], "next_cursor": more}


def replay(parts: Parts, webhook_id: str, delivery_id: int, caller: Caller) -> Replayed:
    """Make one ended delivery due again. Raises WebhookNotFound, DeliveryNotFound, StoreDown."""
    count = _replay(parts, webhook_id, delivery_id, 0.0, caller)
    if not count:
        raise DeliveryNotFound("There is no ended delivery with this number. Deliveries in progress continue.")
    return {"replayed": count}


def replay_failed(parts: Parts, webhook_id: str, since: float | None, caller: Caller) -> Replayed:
    """Make all deliveries due again that were given up since then (None: in the last week). Raises WebhookNotFound,
    StoreDown."""
    after = parts.clock.now() - REPLAY_S if since is None else since
    return {"replayed": _replay(parts, webhook_id, None, after, caller)}


def _replay(parts: Parts, webhook_id: str, delivery_id: int | None, since: float, caller: Caller) -> int:
    endpoint = find(parts, webhook_id, caller)
    what = "failed deliveries" if delivery_id is None else f"delivery {delivery_id}"
    facts = {"webhook_id": endpoint.id, "owner": endpoint.owner, "delivery_id": delivery_id}
    event = caller.event(
        EventKind.WEBHOOK_CHANGED, f"{what.capitalize()} of webhook {endpoint.id} repeated by {caller.actor}.", facts
    )
    return parts.store.deliveries.replay(endpoint.id, delivery_id, since, event, parts.clock.now())


def delivery_json(delivery: Delivery) -> DeliveryShown:
    over = DELIVERED if delivery.delivered_at else GIVEN_UP
    state = PENDING if delivery.next_at is not None else over
    return {
        "delivery_id": delivery.id,
        "event_id": delivery.event_id,
        "run_id": delivery.run_id or None,
        "sequence": delivery.sequence,
        "kind": delivery.kind,
        "text": delivery.text,
        "at": formats.time_text(delivery.at),
        "state": state,
        "tries": delivery.tries,
        "next_try_at": formats.maybe_time(delivery.next_at),
        "last_try_at": formats.maybe_time(delivery.last_at),
        "delivered_at": formats.maybe_time(delivery.delivered_at),
        "status": delivery.status,
        "detail": delivery.detail,
    }
