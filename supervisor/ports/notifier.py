"""Where announcements go: the log, and the endpoints that people have named.

The outbox decides what is sent and when; a notifier only sends. An endpoint is a receiver that a person has named. An
announcement's outbox row for all of them becomes one delivery for each endpoint that wants it; a delivery is tried
until it is taken or given up, and stays as the log of that. A message may arrive twice (a crash between its sending and
its settling): it carries the same id each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from supervisor.domain.events import Event

WEBHOOKS = "webhooks"  # the channel of the outbox rows that stand for all endpoints
# The endpoint that the settings name. It cannot be changed through the API, and its address and secret, which are
# credentials of whoever runs the supervisor, are not in the database: `url` there is what may be shown of it.
SETTINGS_ID = "settings"
# Why somebody wanted an endpoint to be off; any other reason is that it failed.
BY_PERSON = "switched off by a person"
NOT_SET = "alert_url is no longer set"
PENDING, DELIVERED, GIVEN_UP = "pending", "delivered", "given_up"  # what becomes of a delivery


class Form(StrEnum):
    STANDARD = "standard"  # Standard Webhooks 1.0
    SLACK = "slack"
    DISCORD = "discord"

    @property
    def chat(self) -> bool:
        """People read it: only what is usual by default, and many announcements in one message."""
        return self is not Form.STANDARD


@dataclass(frozen=True, slots=True)
class Secret:
    """`until` None: the one that holds; else the one before it, which also signs until then (epoch seconds)."""

    text: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`everything`: of all owners, and of the supervisor itself; else only of the owner's runs. `kinds` (): the usual
    ones of its form. Times are epoch seconds. `failing_since` None: its last delivery was taken, or none was tried.
    `disabled_at` None: deliveries go on. `next_message_at`: the receiver wants nothing before."""

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
        """What signs now, the newest first."""
        return tuple(secret.text for secret in self.secrets if secret.until is None or secret.until > now)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One announcement on its way to one endpoint. `kind`: the announced word; the event's own fields follow.
    `next_at` None: delivered, or given up. `status`: of the last HTTP answer, None = there was none."""

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
    """What became of one try. `tries`: how many there had been before it. `next_at` None with `delivered` False: given
    up."""

    delivery_id: int
    tries: int
    delivered: bool
    next_at: float | None
    status: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class EndpointHealth:
    """What tries have taught about their endpoint (the fields of Endpoint)."""

    endpoint_id: str
    failing_since: float | None
    next_message_at: float


class Endpoints(Protocol):
    """Each change is one transaction with the event that tells of it. Every call may raise StoreDown."""

    def find(self, endpoint_id: str) -> Endpoint | None: ...

    def of_owner(self, owner: str | None) -> list[Endpoint]:
        """In the order in which they were made; None = of all owners."""
        ...

    def add(self, endpoint: Endpoint, event: Event, most: int, now: float) -> bool:
        """False: its owner has `most` endpoints already (that of the settings is not counted)."""
        ...

    def change(self, before: Endpoint, after: Endpoint, event: Event, now: float) -> bool:
        """What a person may change. False: somebody was faster, or it is gone. An endpoint that is enabled again
        begins without failures; one that hears no longer of everything keeps only what was its owner's."""
        ...

    def remove(self, endpoint_id: str, event: Event, now: float) -> bool:
        """With its deliveries. False: it is gone."""
        ...

    def disable(self, endpoint_id: str, why: str, event: Event, now: float) -> bool:
        """False: it is disabled, or gone. What waits for it stays, and goes out when it is enabled again."""
        ...

    def put_settings(self, endpoint: Endpoint | None, now: float) -> None:
        """The endpoint that the settings name, as it is from now on, without what was held against it; None: they name
        none, and what there was is disabled."""
        ...


class Deliveries(Protocol):
    """Every call but `on_announced` may raise StoreDown."""

    def on_announced(self, wake: Callable[[], None]) -> None:
        """`wake` is called after each commit that wrote announcements, of this process, and now and then for those of
        one that is heard; it must not block. The last one given counts. What it misses is found by looking."""
        ...

    def fan_out(self, now: float, limit: int) -> int:
        """Take at most `limit` outbox rows of the channel WEBHOOKS and make a delivery for each endpoint that wants
        their announcement; one transaction. How many rows were taken. Two at once make nothing twice."""
        ...

    def fix_times(self, now: float) -> int:
        """Make due what a wrong clock has put off: a time further ahead than the longest pause of its kind, a first try
        that is not due yet, a pause whose try lies ahead of now. How many times were changed."""
        ...

    def due(self, now: float, limit: int) -> list[tuple[Endpoint, list[Delivery]]]:
        """At most `limit` for each enabled endpoint that wants messages now, in the order of their times. Rows that
        cannot be read are given up, and hold back none behind them."""
        ...

    def settle(self, settled: Sequence[DeliveryResult], standing: Sequence[EndpointHealth], now: float) -> None:
        """One transaction. A delivery that was tried again meanwhile stays as that try left it, unless this one was
        taken."""
        ...

    def page(self, endpoint_id: str, before_event: int | None, limit: int, state: str = "") -> list[Delivery]:
        """Newest event first, only those before that event, and of that state ("" = any)."""
        ...

    def replay(self, endpoint_id: str, delivery_id: int | None, since: float, event: Event, now: float) -> int:
        """Make one delivery (whatever became of it) or all that were given up since then due again, with all its tries;
        how many. What is still under way is left alone."""
        ...


@dataclass(frozen=True, slots=True)
class Notification:
    """`event_id` is the same at every repeat: a receiver can drop doubles. `sequence` orders one run's events. `kind`:
    to endpoints the announced word (domain/events), in the log the kind of the event."""

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
