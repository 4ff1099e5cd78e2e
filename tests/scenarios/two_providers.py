"""A stage with two providers: the near one always responds, the far one may hang for as long as the story requires.

The loop is the real one with a real fleet, in virtual time: its requests and actions run in threads that wait until the
virtual clock reaches the time of the response (tests/fakes/stalling). Time also passes while a tick waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from supervisor.domain.machines import Machine
from supervisor.domain.observation import OBSERVE_S
from supervisor.domain.run import Run
from supervisor.ports.provider import LaunchRequest
from supervisor.providers.local.traits import TRAITS
from supervisor.reconciler.fleet import Fleet
from supervisor.services.runs.submit import SubmitRequest, submit
from tests.fakes.stalling import Stalling, VirtualThreads
from tests.scenarios.fault_points import Later, StagedProvider
from tests.scenarios.sim_plan import Plan
from tests.scenarios.stage import Settings, Stage, Supervisor
from tests.scenarios.user_verbs import ACTOR, spec_of


@dataclass
class TwoProviders(Stage):
    """A broken variant changes `bound_s` (how long a tick waits for a provider) or `apart` (each provider has its own
    threads for actions)."""

    bound_s: float = OBSERVE_S
    apart: bool = True
    tick_s: list[float] = field(default_factory=list)  # duration of each tick
    _pools: list[VirtualThreads] = field(default_factory=list)

    def _set_up(self) -> None:
        self.far = StagedProvider(self.clock, ("far-a",), self._new_far_machine)
        self.far.name, self.far.boot_s = "far", self.provider.boot_s
        self.far.offered = tuple(
            replace(offer, placement=replace(offer.placement, provider="far")) for offer in self.far.offered
        )
        self.far.traits = replace(TRAITS, launches_at_once=4)
        self.slow = Stalling(self.far, self.clock)
        super()._set_up()

    def _new_far_machine(self, request: LaunchRequest, machine: Machine) -> None:
        self._new_machine(request, machine, self.far)

    def providers(self) -> Mapping[str, Any]:
        members: dict[str, Any] = {self.provider.name: self.provider, "far": self.slow}
        return Fleet(members, self.clock.monotonic, self.bound_s, self._pool(1000, "read"))

    def acting(self, later: Later) -> dict[str, Any]:
        shared = None if self.apart else self._pool(8, "act")
        return {"pool": lambda count, name: shared or self._pool(count, name)}

    def _pool(self, count: int, name: str) -> Executor:
        self._pools.append(VirtualThreads(self.clock, count))
        return self._pools[-1]

    def _run_due(self) -> None:
        for pool in self._pools:
            pool.go_on()
        super()._run_due()

    def _tick(self, own: Supervisor) -> None:
        began = self.clock.monotonic()
        super()._tick(own)
        self.tick_s.append(self.clock.monotonic() - began)

    def close(self) -> None:
        for pool in self._pools:
            pool.shutdown()
        super().close()

    # --- what a story does and reads ----------------------------------------------------------------------------------

    def submit(self, run_id: str, provider: str, plan: Plan) -> None:
        self.plans[run_id] = plan
        named = {} if provider == self.provider.name else {"provider": provider}
        submit(self.parts, SubmitRequest(spec_of(self, {}) | named, run_id=run_id), ACTOR)

    def row(self, run_id: str) -> Run:
        run = self.rows.again("find", run_id)
        assert run is not None
        return run

    def seconds_until(self, run_id: str, what: str, within_s: float) -> float:
        """Until the run has this status, or `settled`: terminal, and its machine is gone."""
        began = self.clock.monotonic()
        run = self.row(run_id)
        while not (run.settled if what == "settled" else run.status == what):
            waited_s = self.clock.monotonic() - began
            assert waited_s <= within_s, f"{run_id} is {run.status} after {waited_s:.0f} s, not {what}"
            self.run_for(1.0)
            run = self.row(run_id)
        return self.clock.monotonic() - began


def two_providers(folder: Path, **broken: Any) -> TwoProviders:
    return TwoProviders(folder, Settings(zones=("near-a", "near-b")), **broken)
