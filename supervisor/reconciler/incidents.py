"""Incidents in the loop: ends of this leadership are collected, grouped at the end of a tick, and stored with an alert.

A tick without an end of an attempt and without an open incident does nothing here, and reads nothing. A new leader
reads the ends of the last hour and the stored incidents once; an incident whose ends were committed before a crash is
found then. While one is open, each tick reads the incidents, because a person may close one in any process.

Where they cannot be read, nothing is blocked, nothing is opened, and the next tick reads them again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from supervisor.domain.attempt import Attempt
from supervisor.domain.events import Event, EventKind
from supervisor.domain.incidents import Blocked, Common, Incident, Signature
from supervisor.domain.machines import Placement
from supervisor.domain.run import Run
from supervisor.lifecycle.incidents import (
    FAULTS_WINDOW_S,
    WINDOW_S,
    Ended,
    bad_nodes,
    blocked_by,
    closed_event,
    ended_of,
    grouped,
    has_worked,
    image_of,
    in_window,
    is_over,
    opened_event,
)
from supervisor.ports.store import Lease, Store, StoreDown
from supervisor.reconciler.observing.worldview import Worldview
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

ENDS_READ = 5000  # of the last hour, at the start of a leadership


@dataclass
class IncidentWatch:
    """For one thread at a time, that of the tick. `blocked` None: not read. `open`: the number of open incidents."""

    store: Store
    cell: str
    worldview: Worldview
    blocked: Blocked | None = None
    open: int = 0
    _stored: list[Incident] | None = None  # None = not read in this leadership
    _ends: dict[tuple[str, int], Ended] = field(default_factory=dict)  # by run and attempt, part of no incident so far
    _is_new: bool = False  # an end that was not grouped yet

    def restart(self) -> None:
        """A new leadership: everything is read again."""
        self._ends.clear()
        self._stored = self.blocked = None
        self.open = 0

    def refresh(self, now: float) -> None:
        """At the start of a tick."""
        if self._stored is not None and not self.open:
            return
        try:
            if self._stored is None:
                for run, attempt in self.store.incidents.ended(
                    self.cell, now - WINDOW_S, now - FAULTS_WINDOW_S, ENDS_READ
                ):
                    self._add(run, attempt)
            self._take(self.store.incidents.current(self.cell, now - FAULTS_WINDOW_S))
        except StoreDown as error:
            self._stored = self.blocked = None
            _warn("incidents not read", error)
        except Exception:  # a bug here must stop neither the tick nor a launch
            self._stored, self.blocked = [], None
            log.exception("incidents not read", extra={telemetry.ACTION: "incident"})

    def bad_nodes(self, place: Placement) -> tuple[str, ...]:
        """Computers of a cluster that a launch there must avoid. From any thread."""
        blocked = self.blocked
        return () if blocked is None else bad_nodes(place, blocked)

    def noted(self, run: Run, events: Sequence[Event]) -> None:
        """A change of the run was committed, with these events."""
        if run.attempt is None or not any(event.kind == EventKind.ATTEMPT_ENDED for event in events):
            return
        try:
            self._add(run, run.attempt)
        except Exception:  # the actions of this change must follow
            log.exception("end not noted", extra={telemetry.ACTION: "incident", telemetry.RUN_ID: run.run_id})

    def settle(self, runs: Collection[Run], lease: Lease, now: float) -> None:
        """At the end of a tick: store and announce what is new, and close what is over. `runs`: of the cell."""
        if self._stored is None or not (self._is_new or self.open):
            return
        try:
            if self._is_new:
                self._group(self._stored, runs, lease, now)
            self._close_those_over(now)
        except StoreDown as error:  # the ends are kept, and grouped again
            self._stored = None
            _warn("incidents not stored", error)
        except Exception:  # the rest of the tick must follow
            self._is_new = False
            log.exception("incidents not grouped", extra={telemetry.ACTION: "incident"})

    def _group(self, stored: list[Incident], runs: Collection[Run], lease: Lease, now: float) -> None:
        by_id = {incident.id: incident for incident in stored}
        working: set[Signature] | None = None  # read once: it is asked for each end of a failing code

        def works(subject: Signature) -> bool:
            nonlocal working
            if working is None:
                working = {each for run in runs if has_worked(run, now) for each in _started_with(run)}
            return subject in working

        for incident in grouped(self._ends.values(), stored, works, now):
            before = by_id.get(incident.id)
            begins = before is None or (incident.blocks and not before.blocks)
            written = self.store.incidents.write(incident, opened_event if begins else None, lease, now)
            if written is None:  # another leader, or a person, was faster: the next tick reads what is there
                self._stored = None
                return
            by_id[written.id] = written
            if begins:
                extra = {telemetry.ACTION: "incident", telemetry.COUNT: len(written.runs)}
                log.warning("incident %d: %s", written.id, written.common[0].kind, extra=extra)
        self._take(list(by_id.values()))
        listed = {(member.run_id, member.attempt) for incident in by_id.values() for member in incident.members}
        self._ends = {key: end for key, end in self._ends.items() if key not in listed and in_window(end, now)}
        self._is_new = False

    def _close_those_over(self, now: float) -> None:
        after = []
        for incident in self._stored or ():
            if incident.closed_at is not None or not is_over(incident, now):
                after.append(incident)
                continue
            closed = replace(incident, closed_at=now)
            self.store.incidents.close(closed.id, "", "", closed_event(closed), now)
            after.append(closed)
        if self._stored is not None:
            self._take(after)

    def _take(self, incidents: list[Incident]) -> None:
        self._stored = incidents
        self.open = sum(incident.closed_at is None for incident in incidents)
        self.blocked = blocked_by(incidents)

    def _add(self, run: Run, attempt: Attempt) -> None:
        end = ended_of(run, attempt, self._machine(attempt))
        if end is not None:
            self._ends[run.run_id, attempt.number] = end
            self._is_new = True

    def _machine(self, attempt: Attempt) -> str:
        """The name of its computer, where that outlives the run; "" = it does not, or it is not known."""
        if attempt.node:
            return attempt.node
        place = attempt.placement
        provider = self.worldview.providers.get(place.provider)
        return place.zone if provider is not None and provider.profile(place.zone).host is not None else ""


def _started_with(run: Run) -> tuple[Signature, Signature]:
    return Signature(Common.CODE, run.policy.code or ""), Signature(Common.IMAGE, image_of(run))


def _warn(text: str, error: StoreDown) -> None:
    log.warning(text, extra={telemetry.ACTION: "incident", telemetry.ERROR: str(error)})
