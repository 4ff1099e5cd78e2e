"""Where announcements go: a log, later Slack and webhooks. The outbox decides what and when, a notifier only sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Notification:
    """`event_id` is the same at every repeat: a receiver can drop doubles. `sequence` orders one run's events."""

    event_id: int
    sequence: int
    run_id: str  # "" = of the supervisor itself
    kind: str
    text: str
    at: float  # epoch seconds
    data: Mapping[str, object]


class DeliveryFailed(Exception):
    """Not delivered. `retry_after_s`: what the receiver asked for; None = our own backoff. `status`: of the HTTP
    answer; None = there was none."""

    def __init__(
        self,
        detail: str,
        retry_after_s: float | None = None,
        permanent: bool = False,
        status: int | None = None,
    ):
        super().__init__(detail)
        self.status = status
        self.retry_after_s = retry_after_s
        self.permanent = permanent


class Notifier(Protocol):
    name: str

    def send(self, notification: Notification) -> None:
        """Deliver once or raise DeliveryFailed. Sending the same notification twice is allowed and harmless."""
        ...
