"""Runs that another cell of the same providers led before: this cell takes them over.

A fleet is one cell, under the name of one of its providers. A run that was submitted while another provider gave the
name belongs to that one's cell. It is taken over under the lease of that cell, beside our own: a leader that still
works there goes on until it ends, and two leaders never lead one run. A cell whose machines are not ours (the data
folder of another computer) has another scope, and so another name: it is left alone.

The provider that gave the name may have left the settings while runs of the others go on. Then nothing here produces
that name any more. Where the data folder's lock proves that no other supervisor serves the database, such a cell is
ours too. Elsewhere it may belong to another supervisor that is down for a moment, and it is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.domain import machines
from supervisor.domain.run import Run
from supervisor.ports.store import Lease, Store, StoreDown
from supervisor.reconciler.leader import TTL_S, Leader
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

EVERY_S = 30.0
PAGE = 500


@dataclass
class Takeover:
    """`others`: the cells that each of the fleet's providers would have alone, without our own. `providers`: their
    names."""

    store: Store
    leader: Leader
    others: tuple[str, ...]
    providers: frozenset[str] = frozenset()
    _due: float = 0.0  # monotonic
    _none_orphaned: bool = False  # stays so while we are alone: nobody submits to such a cell

    def run(self) -> int:
        """After a tick; how many runs were taken over. The next tick leads them."""
        ours, now = self.leader.lease(), self.leader.clock.monotonic()
        done = not self.others and (self._none_orphaned or not self.leader.alone)
        if ours is None or done or now < self._due:
            return 0
        self._due = now + EVERY_S
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
