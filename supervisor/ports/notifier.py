"""Where announcements go: the log, and the endpoints (webhooks) of users.

The outbox decides what is sent and when; a notifier only sends. The outbox row for all endpoints becomes one delivery
for each endpoint that wants the announcement. A delivery is retried until it succeeds or is given up, and stays as the
log of its tries. After a crash between sending and recording a message is sent again, with the same id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from supervisor.domain.events import Event

WEBHOOKS = "webhooks"  # the channel of the outbox rows for all endpoints
# The endpoint of the settings. The API cannot change it. Its address and secret are credentials and are not in the
# database: `url` there is only the part that may be shown.
SETTINGS_ID = "settings"
# Why an endpoint is off on purpose; any other reason is a failure.
BY_PERSON = "switched off by a person"
NOT_SET = "alert_url is no longer set"
PENDING, DELIVERED, GIVEN_UP = "pending", "delivered", "given_up"  # states of a delivery


class Form(StrEnum):
    STANDARD = "standard"  # Standard Webhooks 1.0
    SLACK = "slack"
    DISCORD = "discord"

    @property
    def chat(self) -> bool:
        """For people: only the usual kinds by default, and several announcements in one message."""
        return self is not Form.STANDARD


@dataclass(frozen=True, slots=True)
class Secret:
    """`until` None: the current secret; else the previous one, which also signs until then (epoch seconds)."""

    text: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`everything`: announcements of all owners and of the supervisor itself; else only of the owner's runs. `kinds`
    (): the default kinds of its form. Times are epoch seconds. `failing_since` None: its last delivery succeeded, or
    there was none. `disabled_at` None: it is enabled. `next_message_at`: not before, as the receiver asked."""

    id: str
    owner: str
    everything: bool
    form: Form
    url: str
    secrets: tuple[Secret, ...]
    kinds: tuple[str, ...]
    note: str
    created_at: float
    created_by: str
    failing_since: float | None = None
    disabled_at: float | None = None
    disabled_why: str = ""
    next_message_at: float = 0.0

    def secrets_at(self, now: float) -> tuple[str, ...]:
        """The secrets that sign now, the newest first."""
        return tuple(secret.text for secret in self.secrets if secret.until is None or secret.until > now)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One announcement for one endpoint. `kind`: of the announcement; from `event_id` on: fields of its event.
    `next_at` None: delivered, or given up. `status`: of the last HTTP response, None = there was none."""

    id: int
    endpoint_id: str
    kind: str
    tries: int
    next_at: float | None
    delivered_at: float | None
    last_at: float | None
    status: int | None
    detail: str
    event_id: int
    sequence: int
    run_id: str
    at: float
    text: str
    data: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The result of one try. `tries`: the number of tries before it. `next_at` None, not `delivered`: given up."""

    delivery_id: int
    tries: int
    delivered: bool
    next_at: float | None
    status: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class EndpointHealth:
    """What the tries show about an endpoint (fields of Endpoint)."""

    endpoint_id: str
    failing_since: float | None
    next_message_at: float


class Endpoints(Protocol):
    """Each change is one transaction with its event. All calls may raise StoreDown."""

    def find(self, endpoint_id: str) -> Endpoint | None: ...

    def of_owner(self, owner: str | None) -> list[Endpoint]:
        """In the order of their creation; None = of all owners."""

    def add(self, endpoint: Endpoint, event: Event, most: int, now: float) -> bool:
        """False: its owner has `most` endpoints already (without the one of the settings)."""

    def change(self, before: Endpoint, after: Endpoint, event: Event, now: float) -> bool:
        """Writes the fields that a person may change. False: another change came first, or it is gone. An endpoint that
        is enabled again starts without failures; without `everything` it keeps only the deliveries of its owner."""

    def remove(self, endpoint_id: str, event: Event, now: float) -> bool:
        """With its deliveries. False: it is gone."""

    def disable(self, endpoint_id: str, why: str, event: Event, now: float) -> bool:
        """False: it is disabled, or gone. Its pending deliveries stay, and are sent when it is enabled again."""

    def put_settings(self, endpoint: Endpoint | None, now: float) -> None:
        """The new endpoint of the settings, without the failures of the old one; None: they have none, and the old one
        is disabled."""


class Deliveries(Protocol):
    """All calls but `on_announced` may raise StoreDown."""

    def on_announced(self, wake: Callable[[], None]) -> None:
        """Calls `wake`, which must not block, after each commit with announcements, of this process and of others as
        far as notifications arrive: a reader also polls. A later call replaces `wake`."""

    def fan_out(self, now: float, limit: int) -> int:
        """Make a delivery for each endpoint that wants the announcement of an outbox row in the channel WEBHOOKS, for
        at most `limit` rows in one transaction; returns their number. Concurrent calls make nothing twice."""

    def fix_times(self, now: float) -> int:
        """Set to now each time that a wrong clock wrote: further ahead than the longest backoff of its kind, of a first
        try, or of a backoff after a try in the future. Returns the number of changes."""

    def due(self, now: float, limit: int) -> list[tuple[Endpoint, list[Delivery]]]:
        """At most `limit` for each enabled endpoint that accepts messages now, in the order of their times. Unreadable
        rows are given up, so they do not block the others."""

    def settle(self, results: Sequence[DeliveryResult], health: Sequence[EndpointHealth], now: float) -> None:
        """One transaction. The result of a later try stays, unless this try succeeded."""

    def page(self, endpoint_id: str, before_event: int | None, limit: int, state: str = "") -> list[Delivery]:
        """Newest event first, only before that event, and in that state ("" = any)."""

    def replay(self, endpoint_id: str, delivery_id: int | None, since: float, event: Event, now: float) -> int:
        """Make one delivery (in any final state), or all that were given up since then, due again with a full set of
        tries; returns their number. Pending ones are not changed."""


@dataclass(frozen=True, slots=True)
class Notification:
    """`event_id` is the same in each repeat, so a receiver can drop duplicates. `sequence` orders the events of a run.
    `kind`: for endpoints of the announcement (domain/events), for the log of the event."""

    event_id: int
    sequence: int
    run_id: str  # "" = of the supervisor itself
    kind: str
    text: str
    at: float  # epoch seconds
    data: Mapping[str, object]


class DeliveryFailed(Exception):
    """Not delivered. `retry_after_s`: as the receiver asks; None = our own backoff. `status`: of the response; None
    = none. `permanent`: a retry cannot help. `gone`: the receiver says that the address is no longer in use."""

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
        """Deliver once or raise DeliveryFailed. To send the same notification twice is harmless."""


@dataclass(frozen=True, slots=True)
class Target:
    """The address of an endpoint and the secrets that sign its messages. Both are credentials. `trusted`: the address
    is from the supervisor's settings, so it is not checked."""

    url: str = field(repr=False)
    form: Form
    secrets: tuple[str, ...] = field(default=(), repr=False)
    trusted: bool = False


class Courier(Protocol):
    """Thread-safe. Error texts have no address and no secret."""

    def form_of(self, url: str) -> Form:
        """The form that the receiver at this address accepts."""

    def why_refused(self, url: str) -> str:
        """Why messages may not go to this address, in words for its owner; "" = they may. Resolves its host."""

    def send(self, target: Target, batch: Sequence[Notification]) -> int:
        """Send one message for all of `batch` (one announcement for a standard endpoint), within 15 s; returns the HTTP
        status. Raises DeliveryFailed."""

    def send_test(self, target: Target, now: float, timeout_s: float) -> int:
        """Send one message that is marked as a test. Raises DeliveryFailed."""


class NoCourier:
    """Sends nothing."""

    def form_of(self, url: str) -> Form:
        return Form.STANDARD

    def why_refused(self, url: str) -> str:
        return "messages are not sent from here"

    def send(self, target: Target, batch: Sequence[Notification]) -> int:
        raise DeliveryFailed(self.why_refused(target.url))

    def send_test(self, target: Target, now: float, timeout_s: float) -> int:
        raise DeliveryFailed(self.why_refused(target.url))
