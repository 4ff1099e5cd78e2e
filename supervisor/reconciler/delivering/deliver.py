"""Send what the outbox holds: at least once, in order of writing, tried again with a backoff. Decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from supervisor.ports.notifier import DeliveryFailed, Notification, Notifier
from supervisor.ports.store import OutboxItem, Store
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics

log = logging.getLogger(__name__)

PAGE = 100
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 8 * 3600.0
MOST_TRIES = 10


def deliver(store: Store, notifiers: Mapping[str, Notifier], now: float) -> int:
    """Send what is due; how many were sent. Raises StoreDown; what was sent but not settled is sent again."""
    sent = 0
    for item in store.due_outbox(now, PAGE):
        notifier = notifiers.get(item.channel)
        if notifier is None:
            store.settle_outbox(item.id, False, None, f"no channel named {item.channel}", now)
            continue
        try:
            _send(notifier, item)
        except DeliveryFailed as error:
            next_at = _next_at(item, error, now)
            store.settle_outbox(item.id, False, next_at, str(error), now)
            metrics.DELIVERIES.add(item.channel, "given_up" if next_at is None else "failed")
            log.warning(
                "not delivered",
                extra={
                    telemetry.ACTION: "deliver",
                    telemetry.CHANNEL: item.channel,
                    telemetry.ERROR: str(error),
                },
            )
            continue
        store.settle_outbox(item.id, True, None, "", now)
        metrics.DELIVERIES.add(item.channel, "delivered")
        sent += 1
    return sent


def _send(notifier: Notifier, item: OutboxItem) -> None:
    try:
        notifier.send(_notification(item))
    except DeliveryFailed:
        raise
    except Exception as error:  # a notifier's bug must not hold back all that waits behind this item
        log.exception(
            "a notifier failed", extra={telemetry.ACTION: "deliver", telemetry.CHANNEL: item.channel}
        )
        raise DeliveryFailed(f"{type(error).__name__}: {error}") from error


def _next_at(item: OutboxItem, error: DeliveryFailed, now: float) -> float | None:
    """None = given up."""
    if error.permanent or item.tries + 1 >= MOST_TRIES:
        return None
    pause_s = min(FIRST_PAUSE_S * 4.0**item.tries, LONGEST_PAUSE_S)
    return now + (error.retry_after_s if error.retry_after_s is not None else pause_s)


def _notification(item: OutboxItem) -> Notification:
    stored = item.stored
    return Notification(
        event_id=stored.id,
        sequence=item.sequence,
        run_id=stored.run_id,
        kind=stored.event.kind,
        text=stored.event.text,
        at=stored.at,
        data=stored.event.data,
    )
