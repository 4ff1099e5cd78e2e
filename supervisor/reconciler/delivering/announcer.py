"""Empties the outbox: each announcement goes to the log, and becomes a delivery for each endpoint that wants it.

One process of all that share the database does so, the one that holds the lease of the outbox. What it sends through
the log may come twice after a crash; deliveries are made once.

Send what the outbox holds: at least once, in order of writing, tried again with a backoff. Decides nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor.ports.clock import Clock
from supervisor.ports.notifier import DeliveryFailed, Endpoint, Notification, Notifier
from supervisor.ports.store import OutboxItem, Store, StoreDown
from supervisor.reconciler.delivering.delivering import Delivering
from supervisor.reconciler.leader import Leader
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics
from supervisor.telemetry.worker import Worker

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
                extra={telemetry.ACTION: "deliver", telemetry.CHANNEL: item.channel, telemetry.ERROR: str(error)},
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
        log.exception("a notifier failed", extra={telemetry.ACTION: "deliver", telemetry.CHANNEL: item.channel})
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


log = logging.getLogger(__name__)

LEASE = "outbox"
POLL_S = 1.0  # without a wake
RIGHT_S = 60.0
REST_S = 0.05  # however often it is woken
SPREAD_PAGE = 500


@dataclass
class Announcer:
    """`leader`: of the outbox. `shared`: somebody else starts and stops it. `own`: the endpoint that the settings name;
    None = they name none."""

    store: Store
    notifiers: Mapping[str, Notifier]
    clock: Clock
    leader: Leader
    delivering: Delivering
    shared: bool
    own: Endpoint | None = None
    _worker: Worker = field(init=False)
    _righted_at: float = float("-inf")  # monotonic

    def __post_init__(self) -> None:
        self._worker = Worker(
            "announcer",
            self.empty,
            POLL_S,
            failed="outbox not emptied",
            fields={telemetry.ACTION: "deliver"},
            expected=StoreDown,
            rest_s=REST_S,
        )

    def start(self) -> None:
        """Raises StoreDown."""
        self.store.endpoints.put_settings(self.own, self.clock.now())
        self.store.deliveries.on_announced(self.wake)
        if not self.shared:
            self.leader.start()
        self.delivering.start()
        self._worker.start()

    def wake(self) -> None:
        """Something was announced."""
        self._worker.wake()

    def stop(self) -> None:
        self._worker.stop(POLL_S)
        self.delivering.stop()
        if not self.shared:
            self.leader.stop()

    def empty(self) -> None:
        """All that is due. Raises StoreDown."""
        while self.leader.lease() is not None and not self._worker.stopping:
            now = self.clock.now()
            if self.clock.monotonic() - self._righted_at >= RIGHT_S:
                self._righted_at = self.clock.monotonic()
                if self.store.deliveries.fix_times(now):
                    self.delivering.wake()
            spread = self.store.deliveries.fan_out(now, SPREAD_PAGE)
            if spread:
                self.delivering.wake()
            if deliver(self.store, self.notifiers, now) < PAGE and spread < SPREAD_PAGE:
                return
