"""Empty the outbox: each announcement is logged, and becomes a delivery for each endpoint that subscribes to it.

One of the processes that share the database does this: the one that holds the lease of the outbox. An announcement may
be logged twice after a crash; deliveries are created once. What cannot be sent is retried with a backoff, and delays
nothing behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor.ports.clock import Clock
from supervisor.ports.notifier import DeliveryFailed, Endpoint, Notification, Notifier
from supervisor.ports.store import OutboxItem, Store, StoreDown
from supervisor.reconciler.delivering.delivering import Delivering
from supervisor.reconciler.delivering.timing import next_try_at
from supervisor.reconciler.leader import Leader
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics
from supervisor.telemetry.worker import Worker

log = logging.getLogger(__name__)

LEASE = "outbox"
PAGE = 100
FAN_OUT_PAGE = 500
POLL_S = 1.0  # without a wake
REST_S = 0.05  # between two passes, however often it is woken
FIX_TIMES_S = 60.0


@dataclass
class Announcer:
    """`leader`: of the outbox. `shared`: another part starts and stops it. `own`: the endpoint in the settings; None =
    they contain none."""

    store: Store
    notifiers: Mapping[str, Notifier]
    clock: Clock
    leader: Leader
    delivering: Delivering
    shared: bool
    own: Endpoint | None = None
    _worker: Worker = field(init=False)
    _fixed_at: float = float("-inf")  # monotonic

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
        """The outbox has a new announcement."""
        self._worker.wake()

    def stop(self) -> None:
        self._worker.stop(POLL_S)
        self.delivering.stop()
        if not self.shared:
            self.leader.stop()

    def empty(self) -> None:
        """Everything that is due. Raises StoreDown."""
        while self.leader.lease() is not None and not self._worker.stopping:
            now = self.clock.now()
            if self.clock.monotonic() - self._fixed_at >= FIX_TIMES_S:
                self._fixed_at = self.clock.monotonic()
                if self.store.deliveries.fix_times(now):
                    self.delivering.wake()
            created = self.store.deliveries.fan_out(now, FAN_OUT_PAGE)
            if created:
                self.delivering.wake()
            if deliver(self.store, self.notifiers, now) < PAGE and created < FAN_OUT_PAGE:
                return


def deliver(store: Store, notifiers: Mapping[str, Notifier], now: float) -> int:
    """Send what is due through its channel; how many were sent. Raises StoreDown; what was sent but not settled is sent
    again."""
    sent = 0
    for item in store.due_outbox(now, PAGE):
        notifier = notifiers.get(item.channel)
        if notifier is None:
            store.settle_outbox(item.id, False, None, f"no channel named {item.channel}", now)
            continue
        try:
            _send(notifier, item)
        except DeliveryFailed as error:
            next_at = None if error.permanent else next_try_at(item.id, item.tries, error.retry_after_s, now)
            store.settle_outbox(item.id, False, next_at, str(error), now)
            metrics.DELIVERIES.add(item.channel, "given_up" if next_at is None else "failed")
            extra = {telemetry.ACTION: "deliver", telemetry.CHANNEL: item.channel, telemetry.ERROR: str(error)}
            log.warning("not delivered", extra=extra)
            continue
        store.settle_outbox(item.id, True, None, "", now)
        metrics.DELIVERIES.add(item.channel, "delivered")
        sent += 1
    return sent


def _send(notifier: Notifier, item: OutboxItem) -> None:
    stored = item.stored
    notification = Notification(
        event_id=stored.id,
        sequence=item.sequence,
        run_id=stored.run_id,
        kind=stored.event.kind,
        text=stored.event.text,
        at=stored.at,
        data=stored.event.data,
    )
    try:
        notifier.send(notification)
    except DeliveryFailed:
        raise
    except Exception as error:  # a notifier's bug must not delay everything behind this item
        log.exception("a notifier failed", extra={telemetry.ACTION: "deliver", telemetry.CHANNEL: item.channel})
        raise DeliveryFailed(f"{type(error).__name__}: {error}") from error
