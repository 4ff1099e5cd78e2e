"""The patrol: a report of how all runs stand, on a schedule, and at a start that the supervisor runs again.

The time of the last patrol is in the database, so that neither a restart nor a second replica reports twice, and a
missed patrol is reported once. The count begins with the first start.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from supervisor.domain.status import ACTIVE, Status
from supervisor.lifecycle.events.patrol import Problem, Standing, back_again, problem, report, spent_usd
from supervisor.ports.store import RunFilter, Store, StoreDown
from supervisor.reconciler.leader import TTL_S
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

SPENT_S = 86_400.0
PAGE = 500
# A run that trains well has no problem; a held attempt says so itself.
_EXAMINED = tuple(str(status) for status in ACTIVE - {Status.RUNNING, Status.LAUNCHING, Status.STOPPING})


@dataclass
class Patrol:
    """`every_s` 0 = never. One thread at a time, of the process with the lease of retention."""

    store: Store
    every_s: float

    def run(self, now: float) -> bool:
        """Whether it reported. Raises StoreDown."""
        if self.every_s <= 0:
            return False
        last = self.store.patrols.last()
        if last is None or last > now:  # the first start, or the clock was set back
            self.store.patrols.record(None, last, now)
            return False
        if now - last < self.every_s:
            return False
        return self.store.patrols.record(report(self._standing(now), now), last, now)

    def _standing(self, now: float) -> Standing:
        page = self.store.page(RunFilter(), None, 1)
        spent, after, since = 0.0, 0, now - SPENT_S
        while True:
            attempts, more = self.store.patrols.attempts(since, after, PAGE)
            spent += spent_usd(attempts, since, now)
            if more is None:
                break
            after = more
        return Standing(page.counts, page.usd_per_h, spent, SPENT_S, self._problems(now))

    def _problems(self, now: float) -> tuple[Problem, ...]:
        problems: list[Problem] = []
        before: int | None = None
        while True:
            page = self.store.page(RunFilter(statuses=_EXAMINED), before, PAGE)
            problems += [run_problem for run in page.runs if (run_problem := problem(run, now)) is not None]
            before = page.next_key
            if before is None:
                return tuple(problems)


def greet(store: Store, cell: str, alone: bool, version: str, now: float) -> None:
    """Before the leases are taken, because they show how long no supervisor was there. Not at the very first start.
    `alone`: no other process can be there now."""
    try:
        gap = store.patrols.lease_gap(cell, TTL_S)
        if gap is None:
            return
        counts = store.page(RunFilter(), None, 1).counts
        away_s = None if gap.held and not alone else gap.unled_s
        event = back_again(version, None if away_s is None else round(away_s, 1), counts)
        store.add_events(None, [event], now)
    except StoreDown as error:
        log.warning("not greeted", extra={telemetry.ACTION: "greet", telemetry.ERROR: str(error)})
