"""A courier that keeps what it was given and answers as the test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from supervisor.notifiers.guard import NOT_PUBLIC
from supervisor.ports.notifier import DeliveryFailed, Form, Notification, Target

Answer = Callable[[Target, Sequence[Notification]], None]  # raises DeliveryFailed


def takes(target: Target, batch: Sequence[Notification]) -> None:
    """An `Answer`: everything is taken."""


class FakeCourier:
    """`sent`: what was taken, by address, a list for each message."""

    def __init__(self, answer: Answer = takes) -> None:
        self.answer = answer
        self.sent: dict[str, list[list[Notification]]] = {}
        self.targets: list[Target] = []
        self.tried = 0
        self._guard = threading.Lock()

    def form_of(self, url: str) -> Form:
        return Form.SLACK if "slack" in url else Form.STANDARD

    def why_refused(self, url: str) -> str:
        return NOT_PUBLIC if "inside" in url else ""

    def send(self, target: Target, batch: Sequence[Notification]) -> int:
        with self._guard:
            self.tried += 1
            self.targets.append(target)
        self.answer(target, batch)
        with self._guard:
            self.sent.setdefault(target.url, []).append(list(batch))
        return 204

    def send_test(self, target: Target, now: float, timeout_s: float) -> int:
        return self.send(target, [Notification(0, 0, "", "test", "a test", now, {})])

    def events(self, url: str) -> list[int]:
        """Their ids, in the order in which they were taken."""
        return [one.event_id for batch in self.sent.get(url, []) for one in batch]


def failing(status: int | None, **more: object) -> Answer:
    """An `Answer` that takes nothing."""

    def answer(target: Target, batch: Sequence[Notification]) -> None:
        raise DeliveryFailed(f"HTTP {status}", status=status, **more)  # type: ignore[arg-type]

    return answer
