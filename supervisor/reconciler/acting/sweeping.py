"""The sweep: in every fourth tick, and at start, machines of ours that serve no run are released."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from supervisor.domain.actions import Release
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import Machine, MachineListing, MachineRef
from supervisor.domain.run import Run
from supervisor.lifecycle import sweeping
from supervisor.ports.store import Lease
from supervisor.reconciler.acting.act import Actor
from supervisor.reconciler.observing.observe import Snapshot
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics

log = logging.getLogger(__name__)

EVERY = 4
RECORDED_KEPT = 10_000


class Sweeper:
    def __init__(self, supervisor_id: str) -> None:
        self._supervisor_id = supervisor_id
        self._tick = 0
        self._recorded: set[str] = set()
        self._foreign: dict[str, int] = {}  # provider -> machines that are not ours, as logged last

    def sweep(
        self,
        snapshot: Snapshot,
        runs: Iterable[Run],
        actor: Actor,
        *,
        lease: Lease,
        now: float,
        led_elsewhere: Callable[[str], bool] = lambda run_id: False,
    ) -> list[Event]:
        """Hands releases to the actor; returns the events, one for each machine. `led_elsewhere`: whether a run of this
        id is not over and belongs to another cell, whose machines the same listing shows. A bucket that was changed
        for new runs must not cost the old ones their machines."""
        self._tick += 1
        if self._tick % EVERY != 1:
            return []
        metrics.SWEEPS.add()
        expected, events = sweeping.expected_names(runs), []
        for provider, report in snapshot.listings.items():
            if report.listing is None:
                continue
            metrics.MACHINES_LEAKED.add(provider, by=0)  # it exists before the first one, so that its growth is seen
            theirs = {machine.name for machine in self._unclaimed(report.listing, expected, led_elsewhere)}
            plan = sweeping.plan(report.listing, self._supervisor_id, expected | theirs, now)
            self._log_foreign(provider, plan.foreign)
            for machine in plan.release:
                events += self._release(provider, machine, actor, lease)
            events += self._refuse(provider, plan.refused)
        return events

    def _unclaimed(
        self, listing: MachineListing, expected: set[str], led_elsewhere: Callable[[str], bool]
    ) -> Iterable[Machine]:
        """Machines of ours that no run of this cell has, and a run of another cell does: few, or none."""
        for machine in listing.machines:
            ours = machine.supervisor_id == self._supervisor_id and machine.name not in expected
            if ours and led_elsewhere(machine.run_id):
                yield machine

    def _release(self, provider: str, machine: Machine, actor: Actor, lease: Lease) -> list[Event]:
        ref = MachineRef(provider, machine.zone, machine.name, machine.machine_id)
        reason = f"serves no attempt of a live run (labeled {machine.run_id}, launch {machine.launch_id})"
        actor.submit(None, Release(ref, machine.launch_id, reason, (f"listing: {machine.state}",)), lease)
        if machine.name in self._recorded:
            return []
        if len(self._recorded) > RECORDED_KEPT:
            self._recorded.clear()
        self._recorded.add(machine.name)
        metrics.MACHINES_LEAKED.add(provider)
        data = {"machine": machine.name, "zone": machine.zone, "run_id": machine.run_id}
        text = f"Machine {machine.name} in {machine.zone} {reason}: released."
        return [Event(EventKind.MACHINE_LEAKED, text, data=data)]

    def _refuse(self, provider: str, refused: tuple[Machine, ...]) -> list[Event]:
        """One event until a sweep refuses no machine."""
        recorded = f"refused {provider}"
        if not refused:
            self._recorded.discard(recorded)
        if not refused or recorded in self._recorded:
            return []
        self._recorded.add(recorded)
        text = f"{len(refused)} of our machines serve no run. That is too many at once, so none is released."
        names = [machine.name for machine in refused[:20]]
        return [Event(EventKind.SWEEP_REFUSED, text, data={"machines": names})]

    def _log_foreign(self, provider: str, count: int) -> None:
        """Reported, never touched: they may be another supervisor's, or ours of a database that was lost."""
        if count not in (0, self._foreign.get(provider)):
            log.warning(
                "machines that carry another supervisor's id, or none",
                extra={telemetry.ACTION: "sweep", telemetry.PROVIDER: provider, telemetry.COUNT: count},
            )
        self._foreign[provider] = count
