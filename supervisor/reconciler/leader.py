"""One leader per cell: a lease row compared with the database's clock, renewed by its own thread.

The holder stops acting on a monotonic deadline, so that a leader that was paused and wakes late does nothing; the
epoch in every guarded UPDATE catches the rest.

Runs that another cell of the same providers led before: theirs was the name of a supervisor with one provider.

A fleet is one cell, under the name of one of its providers. A run that was submitted while another provider gave the
name stands under that one's name. It is taken over under the lease of that cell, beside our own: who still leads there
goes on until it is gone, and two leaders never lead one run. A cell of machines that are none of ours (the data folder
of another computer) has another scope, and so another name: it is left alone.

The provider that gave the name may have left the settings while runs of the others go on. Then nothing here makes that
name any more. Where the data folder's lock proves that no other supervisor serves the database, such a cell is ours
too. Elsewhere it may be another supervisor's that is away for a moment, and it is left alone.
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
            found = self.store.take_lease(self.cell, self.owner, TTL_S, self.clock.monotonic(), self.alone)
        except StoreDown as error:
            log.warning("lease not renewed", extra={telemetry.ACTION: "lease", telemetry.ERROR: str(error)})
            return
        new = found is not None and (before is None or before.epoch != found.epoch)
        if new and found is not None:
            log.info(
                "leading", extra={telemetry.ACTION: "lease", telemetry.CELL: self.cell, telemetry.EPOCH: found.epoch}
            )
            self.elected()
        elif found is None and before is not None:
            log.warning("another one leads now", extra={telemetry.ACTION: "lease", telemetry.CELL: self.cell})
        self._lease = found
        if new:
            self.leading()


EVERY_S = 30.0
PAGE = 500


@dataclass
class Takeover:
    """`others`: the cells that the fleet's providers would have alone, but for our own. `providers`: their names."""

    store: Store
    leader: Leader
    others: tuple[str, ...]
    providers: frozenset[str] = frozenset()
    _due: float = field(default=0.0)  # monotonic
    _none_bereft: bool = False  # stays so while we are alone: nobody submits to such a cell

    def look(self) -> int:
        """After a look; how many runs have come over. The next look leads them."""
        ours, now = self.leader.lease(), self.leader.clock.monotonic()
        done = not self.others and (self._none_bereft or not self.leader.alone)
        if ours is None or done or now < self._due:
            return 0
        self._due = now + EVERY_S
        try:
            ever = self.store.lease_names()
            names = [name for name in self.others if name in ever]
            return sum(self._take(name, ours) for name in names + self._bereft(ever))
        except StoreDown as error:
            log.warning("no cell taken over", extra={telemetry.ACTION: "takeover", telemetry.ERROR: str(error)})
            return 0

    def _bereft(self, ever: Sequence[str]) -> list[str]:
        """Cells whose own provider is not in the settings, with runs of one that is."""
        if self._none_bereft or not self.leader.alone:
            return []
        gone = [name for name in ever if machines.from_other_provider(name, self.leader.cell, self.providers)]
        bereft = [name for name in gone if self._has_ours(name)]
        self._none_bereft = not bereft
        return bereft

    def _has_ours(self, name: str) -> bool:
        return any(_places(run) & self.providers for run in self.store.active(name, {})[0])

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


def _places(run: Run) -> set[str]:
    """The providers that have a machine of this run, or are to have one."""
    return {run.provider, *(item.ref.provider for item in run.retiring)}
