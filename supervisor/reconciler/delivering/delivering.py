"""Send deliveries to webhooks and chats, and write down the result of each.

One step settles what has returned, all in one transaction, reads what is due, and starts sends in parallel. A delivery
that was sent and could not be settled (a crash, a lost lease) is sent again with the same id: a receiver may get it
twice, and never not at all. Each send is a thread that may hang for seconds; the end of the process does not wait for
it.

Each endpoint has a queue. It gets more than one message at a time only after it has accepted one, a chat never.
Endpoints that fail share half of the parallel sends: however many receivers hang, the others go on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue

from supervisor.domain.events import Event, EventKind
from supervisor.ports.clock import Clock
from supervisor.ports.notifier import (
    SETTINGS_ID,
    Courier,
    Delivery,
    DeliveryFailed,
    DeliveryResult,
    Endpoint,
    EndpointHealth,
    Notification,
    Target,
)
from supervisor.ports.store import Lease, Store, StoreDown
from supervisor.reconciler.delivering.timing import failed_too_long, next_message, next_try_at
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics
from supervisor.telemetry.worker import Daemons, Worker

log = logging.getLogger(__name__)

PARALLEL = 16
EACH = 4  # messages at once to an endpoint that accepts them
CHAT_MEMORY_S = 120.0
REMEMBERED_S = 600.0  # how long an endpoint without deliveries keeps its state
PAGE = 200  # deliveries of one endpoint that are read at once
POLL_S = 1.0
LEAVE_S = 2.0  # how long the end of the process waits for what is being sent
DETAIL_MAX = 500

Batch = tuple[Delivery, ...]


@dataclass(frozen=True, slots=True)
class _Sent:
    """`failed` None: accepted. `was_failing`: as its queue has counted it."""

    queue: EndpointQueue
    was_failing: bool
    batch: Batch
    status: int | None
    failed: DeliveryFailed | None


@dataclass
class Delivering:
    """`leading`: the lease of the outbox while it may be acted on. `own`: the target of the endpoint in the settings,
    whose address is not in the database."""

    store: Store
    courier: Courier
    clock: Clock
    leading: Callable[[], Lease | None]
    own: Target | None = None
    threads: Executor = field(default_factory=lambda: Daemons("deliver"))
    queues: SendQueues = field(default_factory=lambda: SendQueues(PARALLEL))
    _in_flight: set[int] = field(default_factory=set)  # deliveries that are being sent, or not settled yet
    _returned: SimpleQueue[_Sent] = field(default_factory=SimpleQueue)
    _unsettled: list[_Sent] = field(default_factory=list)
    _worker: Worker = field(init=False)
    _read_at: float = float("-inf")

    def __post_init__(self) -> None:
        self._worker = Worker(
            "delivering",
            lambda: self.step(self.clock.now()),
            POLL_S,
            failed="nothing settled",
            fields={telemetry.ACTION: "deliver"},
            expected=StoreDown,
            at_end=self._leave,
        )

    def start(self) -> None:
        self._worker.start()

    def wake(self) -> None:
        """There is something new in the database."""
        self._read_at = float("-inf")
        self._worker.wake()

    def stop(self) -> None:
        """A send that hangs is left behind; the next leader sends it again."""
        self._worker.stop(LEAVE_S + 1.0)

    def step(self, now: float) -> None:
        """Raises StoreDown; nothing is lost then."""
        self._settle(now)
        if self.leading() is None:
            self.queues.clear()
            return
        if self.queues.run_dry or self.clock.monotonic() - self._read_at >= POLL_S:
            self._read_at = self.clock.monotonic()
            self.queues.refill(self.store.deliveries.due(now, PAGE), self._in_flight, PAGE, now)
        for queue, batch in self.queues.take(now):
            self._send(queue, batch, now)

    def _leave(self) -> None:
        """Settles what returns in time. Raises StoreDown."""
        until = self.clock.monotonic() + LEAVE_S
        self._settle(self.clock.now())
        while self._in_flight and (left_s := until - self.clock.monotonic()) > 0:
            with suppress(Empty):
                self._unsettled.append(self._returned.get(timeout=left_s))
            self._settle(self.clock.now())

    # --- sending ------------------------------------------------------------------------------------------------------

    def _send(self, queue: EndpointQueue, batch: Batch, now: float) -> None:
        was_failing = self.queues.begin(queue, now)
        self._in_flight.update(delivery.id for delivery in batch)
        target = target_of(queue.endpoint, self.own, now)

        def work() -> None:
            status, failed = self._try(target, batch)
            self._returned.put(_Sent(queue, was_failing, batch, status, failed))
            self._worker.wake()

        self.threads.submit(work)

    def _try(self, target: Target | None, batch: Sequence[Delivery]) -> tuple[int | None, DeliveryFailed | None]:
        if target is None:
            return None, DeliveryFailed("alert_url is not set here")
        try:
            return self.courier.send(target, [notification_of(delivery) for delivery in batch]), None
        except DeliveryFailed as error:
            return error.status, error
        except Exception as error:  # noqa: BLE001 - our own bug; it may contain the address, so only its kind is kept
            name = type(error).__name__
            log.error("a message could not be made", extra={telemetry.ACTION: "deliver", telemetry.ERROR: name})
            return None, DeliveryFailed(f"the message could not be made: {name}")

    # --- settling -----------------------------------------------------------------------------------------------------

    def _settle(self, now: float) -> None:
        with suppress(Empty):
            while True:
                self._unsettled.append(self._returned.get_nowait())
        if not self._unsettled:
            return
        before = {sent.queue.endpoint.id: sent.queue.endpoint for sent in self._unsettled}
        after = dict(before)
        for sent in self._unsettled:
            after[sent.queue.endpoint.id] = _with_health(after[sent.queue.endpoint.id], sent.failed, now)
        health = [
            EndpointHealth(endpoint.id, endpoint.failing_since, endpoint.next_message_at)
            for endpoint in after.values()
            if endpoint != before[endpoint.id]
        ]
        results = [_result(sent, delivery, now) for sent in self._unsettled for delivery in sent.batch]
        self.store.deliveries.settle(results, health, now)
        settled, self._unsettled = self._unsettled, []
        for sent in settled:
            sent.queue.endpoint = after[sent.queue.endpoint.id]
            self.queues.end(sent.queue, sent.was_failing, sent.failed is None)
            self._in_flight.difference_update(delivery.id for delivery in sent.batch)
        for sent in settled:
            self._report(sent, now)

    def _report(self, sent: _Sent, now: float) -> None:
        endpoint, failed = sent.queue.endpoint, sent.failed
        for delivery in sent.batch:
            last = failed is not None and next_try_at(delivery.id, delivery.tries, None, now) is None
            outcome = "delivered" if failed is None else "given_up" if last else "failed"
            metrics.DELIVERIES.add(str(endpoint.form), outcome)
        if failed is None:
            return
        extra = {telemetry.ACTION: "deliver", telemetry.CHANNEL: endpoint.id, telemetry.ERROR: str(failed)}
        log.warning("not delivered", extra=extra)
        if failed.gone or failed_too_long(endpoint.failing_since, now):
            self._disable(sent.queue, failed, now)

    def _disable(self, queue: EndpointQueue, failed: DeliveryFailed, now: float) -> None:
        endpoint = queue.endpoint
        why = str(failed)[:DETAIL_MAX]
        long = "" if failed.gone else "it accepted nothing for 5 days; "
        name = f"{endpoint.id} ({endpoint.note})" if endpoint.note else endpoint.id
        text = f"The webhook {name} is disabled: {long}{why}."
        data = {"webhook_id": endpoint.id, "owner": endpoint.owner, "why": why}
        event = Event(EventKind.WEBHOOK_DISABLED, text, data=data)
        if self.store.endpoints.disable(endpoint.id, long + why, event, now):
            queue.waiting.clear()
            self._read_at = float("-inf")


def target_of(endpoint: Endpoint, own: Target | None, now: float) -> Target | None:
    """None: it is the endpoint of the settings, and these settings name none."""
    if endpoint.id == SETTINGS_ID:
        return own
    return Target(endpoint.url, endpoint.form, endpoint.secrets_at(now))


def notification_of(delivery: Delivery) -> Notification:
    return Notification(
        delivery.event_id, delivery.sequence, delivery.run_id, delivery.kind, delivery.text, delivery.at, delivery.data
    )


def _result(sent: _Sent, delivery: Delivery, now: float) -> DeliveryResult:
    failed = sent.failed
    if failed is None:
        return DeliveryResult(delivery.id, delivery.tries, True, None, sent.status, "")
    at = next_try_at(delivery.id, delivery.tries, failed.retry_after_s, now)
    return DeliveryResult(delivery.id, delivery.tries, False, at, sent.status, str(failed)[:DETAIL_MAX])


def _with_health(endpoint: Endpoint, failed: DeliveryFailed | None, now: float) -> Endpoint:
    if failed is None:
        return replace(endpoint, failing_since=None)
    since = now if endpoint.failing_since is None else min(now, endpoint.failing_since)
    rest_until = now + (failed.retry_after_s or 0.0)
    return replace(endpoint, failing_since=since, next_message_at=max(endpoint.next_message_at, rest_until))


# --- which delivery is sent next --------------------------------------------------------------------------------------


@dataclass
class EndpointQueue:
    """What waits for one endpoint. `accepts`: it accepted its last message; None = this process has sent none yet.
    `more`: the database has more. `sent_at`: of a chat, the times of its last messages."""

    endpoint: Endpoint
    waiting: deque[Delivery] = field(default_factory=deque)
    more: bool = False
    in_flight: int = 0
    accepts: bool | None = None
    sent_at: list[float] = field(default_factory=list)
    used_at: float = 0.0

    @property
    def may_send(self) -> bool:
        return self.in_flight < (1 if self.endpoint.form.chat or not self.accepts else EACH)


@dataclass
class SendQueues:
    """`limit`: messages in parallel."""

    limit: int
    queues: dict[str, EndpointQueue] = field(default_factory=dict)
    in_flight: int = 0
    in_flight_failing: int = 0

    @property
    def run_dry(self) -> bool:
        """An endpoint has more in the database, and none of it here."""
        return any(queue.more and not queue.waiting for queue in self.queues.values())

    def refill(
        self, due: Sequence[tuple[Endpoint, Sequence[Delivery]]], in_flight: Collection[int], full: int, now: float
    ) -> None:
        """`due`: everything that is due now, of each endpoint the first `full` deliveries. `in_flight`: their ids."""
        named = {endpoint.id for endpoint, _ in due}
        for endpoint_id, queue in list(self.queues.items()):
            if endpoint_id not in named:
                queue.waiting.clear()
                queue.more = False
                if not queue.in_flight and now - queue.used_at > REMEMBERED_S:
                    del self.queues[endpoint_id]
        for endpoint, deliveries in due:
            queue = self.queues.setdefault(endpoint.id, EndpointQueue(endpoint, used_at=now))
            queue.endpoint = endpoint
            if queue.accepts is None and endpoint.failing_since is not None:
                queue.accepts = False
            queue.more = len(deliveries) >= full
            queue.waiting = deque(delivery for delivery in deliveries if delivery.id not in in_flight)

    def clear(self) -> None:
        for queue in self.queues.values():
            queue.waiting.clear()

    def take(self, now: float) -> Iterator[tuple[EndpointQueue, Batch]]:
        """One message of each endpoint in rotation, until none may be sent now. The caller calls `begin` for each
        before it takes the next."""
        again = True
        while again:
            again = False
            for queue in self.queues.values():
                batch = self._next(queue, now)
                if batch:
                    again = True
                    yield queue, batch

    def begin(self, queue: EndpointQueue, now: float) -> bool:
        """Whether it counts as failing until it has ended."""
        failing = queue.accepts is False
        queue.in_flight += 1
        self.in_flight += 1
        self.in_flight_failing += failing
        queue.used_at = now
        if queue.endpoint.form.chat:
            queue.sent_at = [at for at in queue.sent_at if now - at < CHAT_MEMORY_S] + [now]
        return failing

    def end(self, queue: EndpointQueue, failing: bool, accepted: bool) -> None:
        queue.in_flight -= 1
        self.in_flight -= 1
        self.in_flight_failing -= failing
        queue.accepts = accepted

    def _next(self, queue: EndpointQueue, now: float) -> Batch:
        if not queue.waiting or not queue.may_send or queue.endpoint.next_message_at > now:
            return ()
        if self.in_flight >= self.limit or (queue.accepts is False and self.in_flight_failing >= self.limit // 2):
            return ()
        if not queue.endpoint.form.chat:
            return (queue.waiting.popleft(),)
        batch = tuple(next_message(queue.waiting, queue.sent_at, now))
        chosen = {delivery.id for delivery in batch}
        queue.waiting = deque(delivery for delivery in queue.waiting if delivery.id not in chosen)
        return batch
