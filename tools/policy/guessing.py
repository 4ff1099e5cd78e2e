"""The rule where a run on on-demand does not see whether spot is up, as a real run: it has to leave to find out.

It guesses with the production functions: what its requests have taught about the zone, the chance that this gives, the
pause after its last return. Spot machines are requested in each tick in which the zone does not cool down. A return
that is refused costs `refusals_s`, all of it paid, and the start of another on-demand machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import NamedTuple

from supervisor.domain.attempt import Moving
from supervisor.domain.machines import offer_key
from supervisor.lifecycle.phases.changing import after_leaving, is_return_due
from supervisor.lifecycle.rungs.numbers import FROZEN, Numbers
from supervisor.lifecycle.rungs.rule import Rung, Situation, choose, choose_return, life_s
from tools.policy.relocations import BEGIN, PROVIDER, Memory, place_of
from tools.policy.replay import Outcome, State, replay
from tools.policy.traces import ON_DEMAND_USD, SPOT_USD, TICK_S, Case, H

ZONE = "region-a"
PLACE, KEY = place_of(ZONE), offer_key(place_of(ZONE))


@dataclass
class Guess:
    """A rule with the memory of one run. `granted`, `refused`: its returns to spot."""

    numbers: Numbers = FROZEN
    returns: bool = True
    granted: int = 0
    refused: int = 0
    memory: Memory = field(default_factory=lambda: Memory([ZONE]))
    moving: Moving = field(default_factory=Moving)
    held: Rung | None = None  # what it chose in the last tick

    def __call__(self, state: State) -> Rung:
        if self.held is Rung.SPOT and state.held is None:
            self.memory.lost(ZONE, BEGIN + state.now)
        rung = self._chosen(state)
        if state.held is Rung.SPOT and rung is not Rung.SPOT:
            self.memory.ended(BEGIN + state.now)
        self.held = rung
        return rung

    def _chosen(self, state: State) -> Rung:
        if state.held is Rung.SPOT:
            return choose(self._situation(state, is_up=True), self.numbers).rung
        if state.held is Rung.ON_DEMAND:
            return self._on_demand(state)
        return self._without_machine(state)

    def _without_machine(self, state: State) -> Rung:
        with_spot = choose(self._situation(state, is_up=True), self.numbers).rung
        if with_spot is Rung.SPOT and not self._is_cooling(state) and self._request(state):
            return Rung.SPOT
        return choose(self._situation(state, is_up=False), self.numbers).rung

    def _on_demand(self, state: State) -> Rung:
        now = BEGIN + state.now
        if not self.returns or self._is_cooling(state):
            return Rung.ON_DEMAND
        self.memory.read(now)
        [spot] = self.memory.world.offers[PROVIDER]
        is_due = is_return_due(self.moving, spot, self.memory.world, now, numbers=self.numbers)
        if not is_due or choose_return(self._situation(state, is_up=True), self.numbers) is None:
            return Rung.ON_DEMAND
        self.moving = after_leaving(self.moving, now)
        if self._request(state):
            self.granted += 1
            return Rung.SPOT
        self.refused += 1
        state.held, state.refused_s = None, self.numbers.refusals_s
        situation = self._situation(state, is_up=False)
        return choose(replace(situation, now=situation.now + self.numbers.refusals_s), self.numbers).rung

    def _is_cooling(self, state: State) -> bool:
        record = self.memory.world.zones.get(KEY)
        return record is not None and record.cool_until > BEGIN + state.now

    def _request(self, state: State) -> bool:
        """Whether a spot machine is obtained."""
        now = BEGIN + state.now
        if state.is_up:
            self.memory.obtained(PLACE, now)
            self.moving = replace(self.moving, refused=0)
        else:
            self.memory.read(now)
            self.memory.refused(PLACE, now)
        return state.is_up

    def _situation(self, state: State, *, is_up: bool) -> Situation:
        return Situation(
            now=state.now,
            left_s=state.left_s,
            deadline=state.case_deadline_s,
            changeover_s=state.changeover_s,
            tick_s=TICK_S,
            held=state.held,
            spot_is_up=is_up,
            spot_usd_per_h=SPOT_USD,
            on_demand_usd_per_h=ON_DEMAND_USD,
            spot_life_s=life_s(state.own_s, state.own_losses, self.numbers),
        )


class Guessed(NamedTuple):
    """Over all cases: the mean of the dollars, and by cell."""

    usd: float
    misses: int
    granted: int
    refused: int
    by_cell: dict[tuple[str, int, float], float]


def guessed(cases: Iterable[Case], new_rule: Callable[[], Guess]) -> Guessed:
    costs: dict[tuple[str, int, float], list[float]] = {}
    misses = granted = refused = 0
    for case in cases:
        rule = new_rule()
        outcome: Outcome = replay(case.up, case.changeover_h * H, rule)
        costs.setdefault(case.cell, []).append(outcome.usd)
        misses, granted, refused = misses + outcome.missed, granted + rule.granted, refused + rule.refused
    by_cell = {cell: fmean(usd) for cell, usd in costs.items()}
    return Guessed(fmean(usd for own in costs.values() for usd in own), misses, granted, refused, by_cell)


class Report(NamedTuple):
    line: str
    usd: float
    failures: list[str]


def report(cases: Sequence[Case], new_rule: Callable[[], Guess] = Guess) -> Report:
    """The rule with guesses beside a run that never leaves on-demand."""
    ours, never = guessed(cases, new_rule), guessed(cases, lambda: Guess(returns=False))
    line = (
        f"without seeing spot from on-demand, {len(cases)} cases: ${ours.usd:.2f}, {ours.misses} missed, "
        f"{ours.granted} returns granted and {ours.refused} refused; never returning ${never.usd:.2f}"
    )
    failures = [
        *(f"{ours.misses} deadlines were missed with guesses" for _ in range(ours.misses > 0)),
        *(f"returns cost ${ours.usd:.2f}, never returning ${never.usd:.2f}" for _ in range(ours.usd > never.usd)),
    ]
    return Report(line, ours.usd, failures)
