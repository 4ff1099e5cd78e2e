"""Where announcements go: the log, and the endpoints that people have named. The outbox decides what and when; who
sends only sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from supervisor.ports.endpoints import Form


@dataclass(frozen=True, slots=True)
class Notification:
    """`event_id` is the same at every repeat: a receiver can drop doubles. `sequence` orders one run's events. `kind`:
    to endpoints the announced word (domain/announcements), in the log the kind of the event."""

    event_id: int
    sequence: int
    run_id: str  # "" = of the supervisor itself
    kind: str
    text: str
    at: float  # epoch seconds
    data: Mapping[str, object]


class DeliveryFailed(Exception):
    """Not delivered. `retry_after_s`: what the receiver asked for; None = our own backoff. `status`: of the HTTP
    answer; None = there was none. `permanent`: as it stands, repeating will not help. `gone`: the receiver has said
    that nobody takes messages there any more."""

    def __init__(
        self,
        detail: str,
        retry_after_s: float | None = None,
        permanent: bool = False,
        status: int | None = None,
        gone: bool = False,
    ):
        super().__init__(detail)
        self.status = status
        self.retry_after_s = retry_after_s
        self.permanent = permanent
        self.gone = gone


class Notifier(Protocol):
    name: str

    def send(self, notification: Notification) -> None:
        """Deliver once or raise DeliveryFailed. Sending the same notification twice is allowed and harmless."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """Where one endpoint's messages go, and the secrets that sign them. Both are credentials. `trusted`: whoever runs
    the supervisor has named this address in its settings; nobody looks at where it leads."""

    url: str = field(repr=False)
    form: Form
    secrets: tuple[str, ...] = field(default=(), repr=False)
    trusted: bool = False


class Courier(Protocol):
    """Safe to use from any thread. No error's text holds an address or a secret."""

    def form_of(self, url: str) -> Form:
        """What the receiver at this address understands."""
        ...

    def why_refused(self, url: str) -> str:
        """Why nothing may be sent to this address, in words for who has named it; "" = it may. Looks its host up."""
        ...

    def send(self, target: Target, batch: Sequence[Notification]) -> int:
        """One message for all of `batch` (of a standard endpoint always one), within 15 s: the status that it was taken
        with. Raises DeliveryFailed."""
        ...

    def send_test(self, target: Target, now: float, timeout_s: float) -> int:
        """One message that says that it is a test. Raises DeliveryFailed."""
        ...


class NoCourier:
    """A courier where nothing may be sent."""

    def form_of(self, url: str) -> Form:
        return Form.STANDARD

    def why_refused(self, url: str) -> str:
        return "messages are not sent from here"

    def send(self, target: Target, batch: Sequence[Notification]) -> int:
        raise DeliveryFailed(self.why_refused(target.url))

    def send_test(self, target: Target, now: float, timeout_s: float) -> int:
        raise DeliveryFailed(self.why_refused(target.url))
