"""Empties the outbox: each announcement goes to the log, and becomes a delivery for each endpoint that wants it.

One process of all that share the database does so, the one that holds the lease of the outbox. What it sends through
the log may come twice after a crash; deliveries are made once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor.ports.clock import Clock
from supervisor.ports.endpoints import Endpoint
from supervisor.ports.notifier import Notifier
from supervisor.ports.store import Store, StoreDown
from supervisor.reconciler.delivering.deliver import PAGE, deliver
from supervisor.reconciler.delivering.delivering import Delivering
from supervisor.reconciler.leader import Leader
from supervisor.telemetry import logs as telemetry

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
    _news: threading.Event = field(default_factory=threading.Event)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _righted_at: float = float("-inf")  # monotonic

    def start(self) -> None:
        """Raises StoreDown."""
        self.store.endpoints.put_settings(self.own, self.clock.now())
        self.store.deliveries.on_announced(self.wake)
        if not self.shared:
            self.leader.start()
        self.delivering.start()
        self._thread = threading.Thread(target=self._run, name="announcer", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Something was announced."""
        self._news.set()

    def stop(self) -> None:
        self._stopping.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(timeout=POLL_S)
        self.delivering.stop()
        if not self.shared:
            self.leader.stop()

    def empty(self) -> None:
        """All that is due. Raises StoreDown."""
        while self.leader.lease() is not None and not self._stopping.is_set():
            now = self.clock.now()
            if self.clock.monotonic() - self._righted_at >= RIGHT_S:
                self._righted_at = self.clock.monotonic()
                if self.store.deliveries.right(now):
                    self.delivering.wake()
            spread = self.store.deliveries.spread(now, SPREAD_PAGE)
            if spread:
                self.delivering.wake()
            if deliver(self.store, self.notifiers, now) < PAGE and spread < SPREAD_PAGE:
                return

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._news.wait(POLL_S)
            self._news.clear()
            try:
                self.empty()
            except StoreDown as error:
                log.error(
                    "outbox not emptied", extra={telemetry.ACTION: "deliver", telemetry.ERROR: str(error)}
                )
            except Exception:  # a thread that died here would leave everybody without announcements
                log.exception("outbox not emptied", extra={telemetry.ACTION: "deliver"})
            self._stopping.wait(REST_S)
