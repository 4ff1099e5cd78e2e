"""A stage with two platforms: one lends its machines for nothing, with a cap for each session and hours for each week,
and the other takes money. Virtual time, the real loop; nothing of it knows a provider's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineListing, MachineRef, MachineState, Quota
from supervisor.domain.policies import Knobs
from supervisor.domain.profile import Fact, Source
from supervisor.domain.run import Run
from supervisor.ports.provider import HoursUsedUp, LaunchRequest
from supervisor.reconciler.fleet import Fleet
from supervisor.services.reading.sessions import SessionsShown, sessions_json
from supervisor.services.runs.submit import SubmitRequest, submit
from supervisor.wording.attempt import SESSION_CAP
from tests.fakes.clock import FakeClock
from tests.scenarios.fault_points import AtOnce, StagedProvider, TrueClock
from tests.scenarios.sim_plan import Plan
from tests.scenarios.stage import Settings, Stage
from tests.scenarios.user_verbs import ACTOR, spec_of

H, WEEK_S = 3600.0, 7 * 86_400.0
BEAT_S = 120.0


class Lender(StagedProvider):
    """Its platform ends each session at `cap_s`, and all of them when the hours of the week are used up. `week_h` None:
    it counts no hours. `unread`: they cannot be read now."""

    def __init__(
        self, clock: FakeClock, zones: tuple[str, ...], on_new: Callable[[LaunchRequest, Machine], None]
    ) -> None:
        super().__init__(clock, zones, on_new)
        self.time = TrueClock(clock)
        self.cap_s, self.week_h, self.left_h, self.resets_at = H, None, 0.0, inf
        self.unread = False
        self._counted_at = self.time.now()

    def lend(self, week_h: float, left_h: float, resets_in_h: float) -> None:
        self.week_h, self.left_h, self.resets_at = week_h, left_h, self.time.now() + resets_in_h * H

    @property
    def shown(self) -> Any:
        return replace(self.shown_profile, session_cap_s=Fact(self.cap_s, Source.DOCUMENTED, "2027-01-15", "tests"))

    def profile(self, zone: str = "") -> Any:
        return self.shown

    def quotas(self) -> Mapping[str, Quota]:
        if self.week_h is None:
            return {}
        self.pass_time()
        left_h = None if self.unread else self.left_h
        return {"cpu": Quota("GPU hours", self.time.now(), left_h, self.resets_at, self.week_h)}

    def launch(self, request: LaunchRequest) -> Machine:
        self.pass_time()
        if self.week_h is not None and self.left_h <= 0:
            self.calls["launch"] += 1
            raise HoursUsedUp("the platform lends no more hours this week")
        return super().launch(request)

    def machines(self) -> MachineListing:
        self.pass_time()
        return super().machines()

    def find(self, ref: MachineRef) -> Machine | None:
        self.pass_time()
        return super().find(ref)

    def pass_time(self) -> None:
        """End what the platform ends, and count the hours."""
        now = self.time.now()
        live = [own.machine for own in self._machines.values() if own.machine.state is not MachineState.ENDED]
        for machine in live:
            if machine.created_at is not None and now - machine.created_at >= self.cap_s:
                self.end(machine.name, Cause.TIME_LIMIT, f"{SESSION_CAP} of {self.cap_s / H:g} h")
        if self.week_h is None:
            return
        if now >= self.resets_at:
            self.left_h, self.resets_at = self.week_h, self.resets_at + WEEK_S
        else:
            self.left_h = max(0.0, self.left_h - len(live) * (now - self._counted_at) / H)
        self._counted_at = now
        if self.left_h <= 0:
            for machine in live:
                self.end(machine.name, Cause.TIME_LIMIT, "the GPU hours of this week are used up")


@dataclass
class Lending(Stage):
    """The paid platform is the stage's own, `local`; the other one is `lender`."""

    opened: list[float] = field(default_factory=list)

    def _set_up(self) -> None:
        self.lender = Lender(self.clock, ("lent-a",), self._new_lent_machine)
        self.lender.name, self.lender.boot_s = "lender", self.provider.boot_s
        self.lender.offered = tuple(
            replace(
                offer,
                placement=replace(offer.placement, provider="lender"),
                price_usd_per_h=0.0,
                on_demand_usd_per_h=0.0,
            )
            for offer in self.lender.offered
        )
        super()._set_up()
        self.knobs_of = lambda supervisor_id: Knobs(
            supervisor_id, poll_interval_s=self.settings.poll, beat_push_s=BEAT_S, beat_store_s=BEAT_S
        )
        self.start()

    def _new_lent_machine(self, request: LaunchRequest, machine: Machine) -> None:
        self._new_machine(request, machine, self.lender)

    def providers(self) -> Mapping[str, Any]:
        members: dict[str, Any] = {"lender": self.lender, self.provider.name: self.provider}
        return Fleet(members, self.clock.monotonic, threads=AtOnce())

    def machines(self, run_id: str | None = None) -> list[Machine]:
        lent = [each for each in self.lender.machines_now() if each.state is not MachineState.ENDED]
        return [*super().machines(run_id), *(each for each in lent if run_id in (None, each.run_id))]

    def _run_due(self) -> None:
        self.lender.pass_time()
        self.agents[:] = [agent for agent in self.agents if not agent.over and agent.reach.machine() is not None] or (
            self.agents[-1:]
        )
        super()._run_due()

    # --- what a story does and reads ----------------------------------------------------------------------------------

    def submit(self, plan: Plan, **spec: Any) -> None:
        self.plans["digits"] = plan
        stall = {"silence_s": 10 * BEAT_S}
        limits = {"wait_for_capacity_s": 86_400.0, **spec.pop("limits", {})}
        given = {"providers": ["lender", self.provider.name], "stall": stall, "limits": limits, **spec}
        submit(self.parts, SubmitRequest(spec_of(self, {}) | given, run_id="digits"), ACTOR)

    @property
    def run(self) -> Run:
        run = self.rows.again("find", "digits")
        assert run is not None
        return run

    @property
    def sessions(self) -> SessionsShown:
        shown = sessions_json(self.parts, self.run, self.clock.now())
        assert shown is not None
        return shown

    def until(self, holds: Callable[[Run], bool], within_s: float, step_s: float = 60.0) -> float:
        """Seconds until this holds of the run."""
        began = self.clock.monotonic()
        while not holds(self.run):
            waited_s = self.clock.monotonic() - began
            assert waited_s <= within_s, (waited_s, self.run.status, self.run.detail, self.texts()[-6:])
            self.run_for(step_s)
        return self.clock.monotonic() - began

    def texts(self, kind: str = "") -> list[str]:
        stored = (each.event for each in self.rows.events("digits", 0, 10_000))
        return [event.text for event in stored if kind in ("", event.kind)]

    def attempts(self) -> list[Any]:
        return list(self.rows.attempts(self.run.key))


def lending(folder: Path, poll: float = 120.0) -> Lending:
    return Lending(folder, Settings(zones=("paid-a",), poll=poll, boot=20.0))
