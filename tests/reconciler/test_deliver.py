"""Announcements: one that cannot be sent is retried and delays none of the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.domain.events import Event, EventKind
from supervisor.ports.history import StoredEvent
from supervisor.ports.notifier import DeliveryFailed, Notification
from supervisor.ports.store import OutboxItem
from supervisor.reconciler.delivering.announcer import deliver
from supervisor.reconciler.delivering.timing import next_try_at

NOW = 1_000.0


def item(number: int) -> OutboxItem:
    event = Event(EventKind.STARTED, f"event {number}")
    return OutboxItem(number, "chat", 0, number, StoredEvent(number, 1, "digits-7", NOW, 1, 1, event))


@pytest.mark.parametrize("error", [DeliveryFailed("away"), KeyError("a bug")])
def test_what_cannot_be_sent_is_tried_later_and_the_next_one_goes_out(error: Exception) -> None:
    sent: list[int] = []
    settled: dict[int, tuple[bool, float | None]] = {}

    def send(notification: Notification) -> None:
        if notification.event_id == 1:
            raise error
        sent.append(notification.event_id)

    def settle(number: int, delivered: bool, next_at: float | None, detail: str, now: float) -> None:
        settled[number] = (delivered, next_at)

    store: Any = SimpleNamespace(due_outbox=lambda now, limit: [item(1), item(2)], settle_outbox=settle)
    chat: Any = SimpleNamespace(name="chat", send=send)
    assert deliver(store, {"chat": chat}, NOW) == 1
    assert sent == [2]
    assert settled == {1: (False, next_try_at(1, 0, None, NOW)), 2: (True, None)}
