"""One leader per cell: a lease row compared with the database's clock, renewed by its own thread.

The holder stops acting on a monotonic deadline, so that a leader that was paused and wakes late does nothing; the
epoch in every guarded UPDATE catches the rest.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from supervisor.ports.clock import Clock
from supervisor.ports.store import Lease, Store, StoreDown
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

TTL_S = 8.0
RENEW_S = 2.0


@dataclass
class Leader:
    """`alone`: an exclusive lock of the data folder proves that nobody else can hold the lease."""

    store: Store
    cell: str
    owner: str
    clock: Clock
    alone: bool
    elected: Callable[[], None]  # called once for each new epoch, before its first tick
    leading: Callable[[], None] = lambda: None  # called after it, when a tick may begin
    _lease: Lease | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def lease(self) -> Lease | None:
        """The lease while it may be acted on; None otherwise."""
        lease = self._lease
        return lease if lease is not None and self.clock.monotonic() < lease.deadline else None

    def start(self) -> None:
        self.renew()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give the lease back, so that the next leader need not wait for its end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=RENEW_S)
        lease, self._lease = self._lease, None
        if lease is not None:
            try:
                self.store.drop_lease(lease)
            except StoreDown as error:
                log.warning(
                    "lease not given back", extra={telemetry.ACTION: "lease", telemetry.ERROR: str(error)}
                )

    def renew(self) -> None:
        before = self._lease
        try:
            found = self.store.take_lease(self.cell, self.owner, TTL_S, self.clock.monotonic(), self.alone)
        except StoreDown as error:
            log.warning("lease not renewed", extra={telemetry.ACTION: "lease", telemetry.ERROR: str(error)})
            return
        new = found is not None and (before is None or before.epoch != found.epoch)
        if new and found is not None:
            log.info(
                "leading",
                extra={telemetry.ACTION: "lease", telemetry.CELL: self.cell, telemetry.EPOCH: found.epoch},
            )
            self.elected()
        elif found is None and before is not None:
            log.warning("another one leads now", extra={telemetry.ACTION: "lease", telemetry.CELL: self.cell})
        self._lease = found
        if new:
            self.leading()

    def _keep(self) -> None:
        while not self._stop.wait(RENEW_S):
            try:
                self.renew()
            except Exception:  # a thread that died here would leave its cell without a leader for good
                log.exception(
                    "lease not renewed", extra={telemetry.ACTION: "lease", telemetry.CELL: self.cell}
                )
