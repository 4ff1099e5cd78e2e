"""Every fourth tick, and at start: machines of ours that serve nobody are released, on the tick's own listing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

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


class Sweeper:
    def __init__(self, supervisor_id: str) -> None:
        self._supervisor_id = supervisor_id
        self._tick = 0
        self._told: set[str] = set()
        self._foreign: dict[str, int] = {}  # provider -> machines that are not ours, as told last

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
        """Releases are handed to the actor; the events that tell of them, each machine once. `led_elsewhere`: whether a
        run of this id is not over and belongs to another cell, whose machines the same listing shows: a bucket that
        was changed for new runs must not cost the old ones their machines."""
        self._tick += 1
        if self._tick % EVERY != 1:
            return []
        metrics.SWEEPS.add()
        expected, events = set(_expected(runs)), []
        for provider, listing in snapshot.listings.items():
            if isinstance(listing, str):
                continue
            metrics.MACHINES_LEAKED.add(provider, by=0)  # there before the first one: else nobody sees it grow
            theirs = {name for name, run_id in self._unclaimed(listing, expected) if led_elsewhere(run_id)}
            plan = sweeping.plan(listing, self._supervisor_id, expected | theirs, now)
            self._tell_foreign(provider, plan.foreign)
            for machine in plan.release:
                ref = MachineRef(provider, machine.zone, machine.name, machine.machine_id)
                reason = f"serves no attempt of a live run (labelled {machine.run_id}, launch {machine.launch_id})"
                actor.submit(None, Release(ref, machine.launch_id, reason, (f"listing: {machine.state}",)), lease)
                told = self._tell(machine, f"Machine {machine.name} in {machine.zone} {reason}: released.")
                metrics.MACHINES_LEAKED.add(provider, by=len(told))
                events += told
            refused = f"refused {provider}"
            if plan.refused and refused not in self._told:
                self._told.add(refused)
                text = f"{len(plan.refused)} of our machines serve nobody, too many at once: none is released."
                events.append(
                    Event(EventKind.SWEEP_REFUSED, text, data={"machines": [m.name for m in plan.refused[:20]]})
                )
            if not plan.refused:
                self._told.discard(refused)
        return events

    def _unclaimed(self, listing: MachineListing, expected: set[str]) -> Iterator[tuple[str, str]]:
        """(name, run id by the label) of machines of ours that no run of this cell has: few, or none."""
        for machine in listing.machines:
            if machine.supervisor_id == self._supervisor_id and machine.name not in expected:
                yield machine.name, machine.run_id

    def _tell_foreign(self, provider: str, count: int) -> None:
        """Reported, never touched: they may be another supervisor's, or ours of a database that was lost."""
        if count not in (0, self._foreign.get(provider)):
            log.warning(
                "machines that carry another supervisor's id, or none",
                extra={telemetry.ACTION: "sweep", telemetry.PROVIDER: provider, telemetry.COUNT: count},
            )
        self._foreign[provider] = count

    def _tell(self, machine: Machine, text: str) -> list[Event]:
        if machine.name in self._told:
            return []
        if len(self._told) > 10_000:
            self._told.clear()
        self._told.add(machine.name)
        data = {"machine": machine.name, "zone": machine.zone, "run_id": machine.run_id}
        return [Event(EventKind.MACHINE_LEAKED, text, data=data)]


def _expected(runs: Iterable[Run]) -> Iterator[str]:
    for run in runs:
        if run.open_try is not None:
            yield run.open_try.machine_name
        for item in run.retiring:
            yield item.ref.name
