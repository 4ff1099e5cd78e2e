"""One leader per cell: a lease row that is compared with the database's clock and renewed by a thread of its own.

The holder stops acting on a monotonic deadline, so a leader that was suspended and wakes late does nothing. The epoch
in every guarded UPDATE catches the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from supervisor.ports.clock import Clock
from supervisor.ports.store import Lease, Store, StoreDown
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry.worker import Worker

log = logging.getLogger(__name__)

TTL_S = 8.0
RENEW_S = 2.0


@dataclass
class Leader:
    """`alone`: an exclusive lock of the data folder proves that no other process can hold the lease."""

    store: Store
    cell: str
    owner: str
    clock: Clock
    alone: bool
    elected: Callable[[], None]  # called once for each new epoch, before its first tick
    leading: Callable[[], None] = lambda: None  # called after it, when a tick may begin
    _lease: Lease | None = None
    _worker: Worker = field(init=False)

    def __post_init__(self) -> None:
        self._worker = Worker(
            "lease",
            self.renew,
            RENEW_S,
            failed="lease not renewed",
            fields={telemetry.ACTION: "lease", telemetry.CELL: self.cell},
            expected=StoreDown,
        )

    def lease(self) -> Lease | None:
        """The lease while it may be acted on; None otherwise."""
        lease = self._lease
        return lease if lease is not None and self.clock.monotonic() < lease.deadline else None

    def start(self) -> None:
        self.renew()
        self._worker.start()

    def stop(self) -> None:
        """Give the lease back, so that the next leader need not wait for its end."""
        self._worker.stop(RENEW_S)
        lease, self._lease = self._lease, None
        if lease is not None:
            try:
                self.store.drop_lease(lease)
            except StoreDown as error:
                log.warning("lease not given back", extra={telemetry.ACTION: "lease", telemetry.ERROR: str(error)})

    def renew(self) -> None:
        before = self._lease
        try:
            lease = self.store.take_lease(self.cell, self.owner, TTL_S, self.clock.monotonic(), self.alone)
        except StoreDown as error:
            log.warning("lease not renewed", extra={telemetry.ACTION: "lease", telemetry.ERROR: str(error)})
            return
        extra = {telemetry.ACTION: "lease", telemetry.CELL: self.cell}
        new = lease is not None and (before is None or before.epoch != lease.epoch)
        if new and lease is not None:
            log.info("leading", extra={**extra, telemetry.EPOCH: lease.epoch})
            self.elected()
        elif lease is None and before is not None:
            log.warning("another one leads now", extra=extra)
        self._lease = lease
        if new:
            self.leading()
