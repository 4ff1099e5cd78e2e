"""Leadership of cells: the lease of our own, and runs that are taken over from a cell without a leader.

One leader per cell: a lease row that is compared with the database's clock and renewed by its own thread. The holder
stops acting on a monotonic deadline, so a leader that was suspended and continues late does nothing. The epoch in every
guarded UPDATE catches the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from supervisor.domain import machines
from supervisor.domain.run import Run
from supervisor.ports.clock import Clock
from supervisor.ports.store import Lease, Store, StoreDown
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry.worker import Worker

log = logging.getLogger(__name__)

TTL_S = 8.0
RENEW_S = 2.0
TRY_S = 1.0  # between two tries of a supervisor that does not lead: a lease that has ended stays free for no longer
TAKEOVER_S = 30.0  # between two searches for cells without a leader
PAGE = 500


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
            self.turn,
            min(TRY_S, RENEW_S),
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

    def turn(self) -> None:
        """Renew the lease once RENEW_S have passed since the last time, or try to get it."""
        lease = self.lease()
        if lease is None or lease.deadline - self.clock.monotonic() <= TTL_S - RENEW_S:
            self.renew()

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


@dataclass
class Takeover:
    """Runs that another cell of the same providers led before: this cell takes them over.

    A fleet is one cell, under the name of one of its providers. A run that was submitted while another provider gave
    the name belongs to that one's cell. It is taken over under the lease of that cell, beside our own: two leaders
    never lead one run. A cell whose machines are not ours (the data folder of another computer) has another scope, and
    so another name: it stays as it is.

    The provider that gave the name may have left the settings while runs of the others continue. Then nothing here
    produces that name any more. If the data folder's lock proves that no other supervisor serves the database, such a
    cell is ours too. Otherwise it may belong to another supervisor that is down for a moment, and it stays as it is.

    `others`: the cells that each of the fleet's providers would have alone, without our own. `providers`: their names.
    """

    store: Store
    leader: Leader
    others: tuple[str, ...]
    providers: frozenset[str] = frozenset()
    _due: float = 0.0  # monotonic
    _none_orphaned: bool = False  # stays so while we are alone: no run is submitted to such a cell

    def run(self) -> int:
        """After a tick; how many runs were taken over. The next tick leads them."""
        ours, now = self.leader.lease(), self.leader.clock.monotonic()
        done = not self.others and (self._none_orphaned or not self.leader.alone)
        if ours is None or done or now < self._due:
            return 0
        self._due = now + TAKEOVER_S
        try:
            names = self.store.lease_names()
            others = [name for name in self.others if name in names]
            return sum(self._take(name, ours) for name in others + self._orphaned(names))
        except StoreDown as error:
            log.warning("no cell taken over", extra={telemetry.ACTION: "takeover", telemetry.ERROR: str(error)})
            return 0

    def _orphaned(self, names: Sequence[str]) -> list[str]:
        """Cells whose own provider is not in the settings, with runs of a provider that is."""
        if self._none_orphaned or not self.leader.alone:
            return []
        foreign = [name for name in names if machines.from_other_provider(name, self.leader.cell, self.providers)]
        orphaned = [name for name in foreign if self._has_ours(name)]
        self._none_orphaned = not orphaned
        return orphaned

    def _has_ours(self, name: str) -> bool:
        return any(_providers_of(run) & self.providers for run in self.store.active(name, {})[0])

    def _take(self, name: str, ours: Lease) -> int:
        leader = self.leader
        theirs = self.store.take_lease(name, leader.owner, TTL_S, leader.clock.monotonic(), leader.alone)
        if theirs is None:
            return 0
        taken = 0
        try:
            while leader.clock.monotonic() < min(theirs.deadline, ours.deadline):
                moved = self.store.take_over(theirs, ours, PAGE)
                taken += moved
                if moved < PAGE:
                    break
        finally:
            self.store.drop_lease(theirs)
        if taken:
            extra = {telemetry.ACTION: "takeover", telemetry.CELL: name, telemetry.COUNT: taken}
            log.info("runs of this cell are ours now", extra=extra)
        return taken


def _providers_of(run: Run) -> set[str]:
    """The providers that have a machine of this run, or will have one."""
    return {run.provider, *(item.ref.provider for item in run.retiring)}
