"""Sends deliveries, and writes down what became of each.

One step settles what has come back, all in one transaction, reads what is due, and hands as much of it to the crew as
there is room (`turns`). What was sent and could not be settled (a crash, a lost lease) is sent again with the same id:
a receiver may hear twice, and never not at all.

A few threads for work that may hang for seconds, which nobody waits for when the process ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Protocol

from supervisor.domain.events import Event, EventKind
from supervisor.lifecycle.events.delivering import failed_too_long, next_try_at
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
from supervisor.reconciler.delivering.turns import Batch, Line, Turns
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics
from supervisor.telemetry.worker import Worker


class Crew:
    """The work raises nothing. Not started before its first work."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, work: Callable[[], None]) -> None:
        """From one thread only."""
        if len(self._threads) < self.size:
            number = len(self._threads)
            thread = threading.Thread(target=self._run, name=f"{self.name} {number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._work.put(work)

    def close(self) -> None:
        """Whoever is free goes home; what hangs is left behind."""
        for _ in self._threads:
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


log = logging.getLogger(__name__)

CREW = 16
PAGE = 200  # deliveries of one endpoint that are read at once
POLL_S = 1.0
LEAVE_S = 2.0  # how long the end of the process waits for what is being sent
DETAIL_MAX = 500


class Hands(Protocol):
    """Who does the sending: a crew, or a test's own hands."""

    def submit(self, work: Callable[[], None]) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Done:
    """`failed` None: taken. `was_failing`: as its turn has counted it."""

    line: Line
    was_failing: bool
    batch: Batch
    status: int | None
    failed: DeliveryFailed | None


@dataclass
class Delivering:
    """`leading`: the lease of the outbox while it may be acted on. `own`: where the endpoint of the settings leads; its
    address is not in the database."""

    store: Store
    courier: Courier
    clock: Clock
    leading: Callable[[], Lease | None]
    own: Target | None = None
    hands: Hands = field(default_factory=lambda: Crew("deliver", CREW))
    turns: Turns = field(default_factory=lambda: Turns(CREW))
    _flying: set[int] = field(default_factory=set)  # deliveries that are being sent, or not settled yet
    _done: SimpleQueue[_Done] = field(default_factory=SimpleQueue)
    _unsettled: list[_Done] = field(default_factory=list)
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
        """What hangs is left behind, and sent again by whoever leads next."""
        self._worker.stop(LEAVE_S + 1.0)
        self.hands.close()

    def step(self, now: float) -> None:
        """Raises StoreDown; nothing is lost then."""
        self._settle(now)
        if self.leading() is None:
            self.turns.clear()
            return
        if self.turns.run_dry or self.clock.monotonic() - self._read_at >= POLL_S:
            self._read_at = self.clock.monotonic()
            self.turns.refill(self.store.deliveries.due(now, PAGE), self._flying, PAGE, now)
        for line, batch in self.turns.take(now):
            self._send(line, batch, now)

    def _leave(self) -> None:
        """Settles what comes back in time. Raises StoreDown."""
        until = self.clock.monotonic() + LEAVE_S
        self._settle(self.clock.now())
        while self._flying and (left_s := until - self.clock.monotonic()) > 0:
            with suppress(Empty):
                self._unsettled.append(self._done.get(timeout=left_s))
            self._settle(self.clock.now())

    # --- sending --------------------------------------------------------------------------------------------------

    def _send(self, line: Line, batch: Batch, now: float) -> None:
        was_failing = self.turns.begin(line, now)
        self._flying.update(one.id for one in batch)
        target = target_of(line.endpoint, self.own, now)

        def work() -> None:
            status, failed = self._sent(target, batch)
            self._done.put(_Done(line, was_failing, batch, status, failed))
            self._worker.wake()

        self.hands.submit(work)

    def _sent(self, target: Target | None, batch: Sequence[Delivery]) -> tuple[int | None, DeliveryFailed | None]:
        if target is None:
            return None, DeliveryFailed("alert_url is not set here")
        try:
            return self.courier.send(target, [notification_of(one) for one in batch]), None
        except DeliveryFailed as error:
            return error.status, error
        except Exception as error:  # noqa: BLE001 - our own bug; it may name the address, so only its kind is kept
            log.error(
                "a message could not be made",
                extra={telemetry.ACTION: "deliver", telemetry.ERROR: type(error).__name__},
            )
            return None, DeliveryFailed(f"the message could not be made: {type(error).__name__}")

    # --- what became of it ----------------------------------------------------------------------------------------

    def _settle(self, now: float) -> None:
        while True:
            try:
                self._unsettled.append(self._done.get_nowait())
            except Empty:
                break
        if not self._unsettled:
            return
        after = {one.line.endpoint.id: one.line.endpoint for one in self._unsettled}
        before = dict(after)
        for one in self._unsettled:
            after[one.line.endpoint.id] = _stands(after[one.line.endpoint.id], one.failed, now)
        standing = [
            EndpointHealth(known.id, known.failing_since, known.next_message_at)
            for known in after.values()
            if known != before[known.id]
        ]
        settled = [_settled(one, delivery, now) for one in self._unsettled for delivery in one.batch]
        self.store.deliveries.settle(settled, standing, now)
        done, self._unsettled = self._unsettled, []
        for one in done:
            one.line.endpoint = after[one.line.endpoint.id]
            self.turns.end(one.line, one.was_failing, one.failed is None)
            self._flying.difference_update(delivery.id for delivery in one.batch)
        for one in done:
            self._tell(one, one.line, now)

    def _tell(self, done: _Done, line: Line, now: float) -> None:
        endpoint, failed = line.endpoint, done.failed
        for delivery in done.batch:
            last = failed is not None and next_try_at(delivery.id, delivery.tries, None, now) is None
            outcome = "delivered" if failed is None else "given_up" if last else "failed"
            metrics.DELIVERIES.add(str(endpoint.form), outcome)
        if failed is None:
            return
        log.warning(
            "not delivered",
            extra={telemetry.ACTION: "deliver", telemetry.CHANNEL: endpoint.id, telemetry.ERROR: str(failed)},
        )
        if failed.gone or failed_too_long(endpoint.failing_since, now):
            self._disable(line, failed, now)

    def _disable(self, line: Line, failed: DeliveryFailed, now: float) -> None:
        endpoint = line.endpoint
        why = str(failed)[:DETAIL_MAX]
        long = "" if failed.gone else "nothing was taken for 5 days; "
        named = f"{endpoint.id} ({endpoint.note})" if endpoint.note else endpoint.id
        text = f"The webhook {named} gets nothing any more: {long}{why}."
        data = {"webhook_id": endpoint.id, "owner": endpoint.owner, "why": why}
        event = Event(EventKind.WEBHOOK_DISABLED, text, data=data)
        if self.store.endpoints.disable(endpoint.id, long + why, event, now):
            line.waiting.clear()
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


def _settled(done: _Done, delivery: Delivery, now: float) -> DeliveryResult:
    failed = done.failed
    if failed is None:
        return DeliveryResult(delivery.id, delivery.tries, True, None, done.status, "")
    at = next_try_at(delivery.id, delivery.tries, failed.retry_after_s, now)
    return DeliveryResult(delivery.id, delivery.tries, False, at, done.status, str(failed)[:DETAIL_MAX])


def _stands(endpoint: Endpoint, failed: DeliveryFailed | None, now: float) -> Endpoint:
    if failed is None:
        return replace(endpoint, failing_since=None)
    since = now if endpoint.failing_since is None else min(now, endpoint.failing_since)
    rest_until = now + (failed.retry_after_s or 0.0)
    return replace(endpoint, failing_since=since, next_message_at=max(endpoint.next_message_at, rest_until))
