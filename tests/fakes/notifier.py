"""A notifier that keeps what it was given, and fails when the test says so."""

from __future__ import annotations

from supervisor.ports.notifier import DeliveryFailed, Notification


class FakeNotifier:
    name = "fake"

    def __init__(self) -> None:
        self.sent: list[Notification] = []
        self.attempts = 0
        self._failures: list[DeliveryFailed] = []

    def fail(self, times: int = 1, retry_after_s: float | None = None, permanent: bool = False) -> None:
        """Let the next `times` deliveries fail."""
        self._failures += [DeliveryFailed("the receiver answered 503", retry_after_s, permanent) for _ in range(times)]

    def send(self, notification: Notification) -> None:
        self.attempts += 1
        if self._failures:
            raise self._failures.pop(0)
        self.sent.append(notification)
