"""One training in one zone, tick by tick, under a rule: the production rule, or a baseline.

The machine model is that of the public benchmark: each new machine spends a changeover before it trains, a machine is
lost at the beginning of a tick, and a tick in which a machine is held is paid in full. The baselines are those of the
paper "Can't Be Late" (NSDI 2024), in our own words.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from supervisor.lifecycle.rungs.numbers import FROZEN, Numbers
from supervisor.lifecycle.rungs.rule import Rung, Situation, choose, life_s
from tools.policy.traces import ON_DEMAND_USD, SPOT_USD, TICK_S, WORK_S, H

DONE_S = 1e-3


@dataclass(slots=True)
class State:
    """What a rule may see at the beginning of a tick. `held`: None also where it was just lost. `starts_s`: what the
    machine that is held still needs before it trains. `seen_s`, `losses`: for how long spot was seen up here, and how
    often that ended. `own_s`, `own_losses`: the same of this run's own spot machines.
    `refused_s`: what requests in vain take in this tick, before a machine is obtained; the rule may set it."""

    case_deadline_s: float
    changeover_s: float
    now: float = 0.0
    left_s: float = WORK_S
    held: Rung | None = None
    starts_s: float = 0.0
    is_up: bool = False
    seen_s: float = 0.0
    losses: int = 0
    own_s: float = 0.0
    own_losses: int = 0
    refused_s: float = 0.0

    @property
    def remains_s(self) -> float:
        """Until the deadline, in whole ticks."""
        return math.floor((self.case_deadline_s - self.now) / TICK_S) * TICK_S

    def needs_s(self, changeovers: int) -> float:
        """The work that is left and so many changeovers, in whole ticks."""
        return math.ceil((self.left_s + changeovers * self.changeover_s) / TICK_S) * TICK_S


Rule = Callable[[State], Rung]


class Outcome(NamedTuple):
    usd: float
    missed: bool


def replay(up: tuple[bool, ...], changeover_s: float, rule: Rule) -> Outcome:
    """`up` reaches until the deadline."""
    state = State(len(up) * TICK_S, changeover_s)
    usd = 0.0
    for is_up in up:
        _see(state, is_up)
        rung = rule(state)
        held = None if rung is Rung.WAIT or (rung is Rung.SPOT and not is_up) else rung
        if held is not None:
            if held is not state.held:
                state.starts_s = changeover_s + state.refused_s
            usd += (ON_DEMAND_USD if held is Rung.ON_DEMAND else SPOT_USD) * TICK_S / H
            state.left_s -= max(0.0, TICK_S - state.starts_s)
            state.starts_s = max(0.0, state.starts_s - TICK_S)
            if state.left_s <= DONE_S:
                return Outcome(usd, missed=False)
        state.held = held
        state.own_s += TICK_S if held is Rung.SPOT else 0.0
        state.now += TICK_S
    return Outcome(usd, missed=True)


def _see(state: State, is_up: bool) -> None:
    if is_up:
        state.seen_s += TICK_S
    elif state.is_up:
        state.losses += 1
    state.is_up = is_up
    state.refused_s = 0.0
    if state.held is Rung.SPOT and not is_up:
        state.held = None
        state.own_losses += 1


def production(numbers: Numbers = FROZEN, *, alone: bool = False) -> Rule:
    """The function that places real runs. They know the lives of all machines of their zones. `alone`: only their
    own."""

    def rule(state: State) -> Rung:
        seen = (state.own_s, state.own_losses) if alone else (state.seen_s, state.losses)
        situation = Situation(
            now=state.now,
            left_s=state.left_s,
            deadline=state.case_deadline_s,
            changeover_s=state.changeover_s,
            tick_s=TICK_S,
            held=state.held,
            spot_is_up=state.is_up,
            spot_usd_per_h=SPOT_USD,
            on_demand_usd_per_h=ON_DEMAND_USD,
            spot_life_s=life_s(*seen, numbers),
        )
        return choose(situation, numbers).rung

    return rule


# --- baselines --------------------------------------------------------------------------------------------------------


def on_demand(state: State) -> Rung:
    return Rung.ON_DEMAND


def greedy(state: State) -> Rung:
    """Spot, or nothing, until the deadline leaves no other choice."""
    return _guarded(state, Rung.SPOT if state.is_up else Rung.WAIT)


def uniform_progress(state: State) -> Rung:
    """The work that is done keeps pace with the time that is over."""
    pace = WORK_S / state.case_deadline_s
    done_s = WORK_S - state.left_s
    rung = Rung.SPOT if state.is_up else Rung.WAIT
    if not state.is_up and done_s < state.now * pace:
        rung = Rung.ON_DEMAND
    is_ahead = done_s > (state.now + 2 * state.changeover_s) * pace
    if state.held is Rung.ON_DEMAND and not (state.is_up and is_ahead):
        rung = Rung.ON_DEMAND
    if state.held is not Rung.SPOT and state.needs_s(2) >= state.remains_s:
        rung = Rung.ON_DEMAND
    return _guarded(state, rung)


def _guarded(state: State, rung: Rung) -> Rung:
    if state.needs_s(1) < state.remains_s:
        return rung
    trains_on_spot = state.held is Rung.SPOT and state.starts_s == 0
    return Rung.SPOT if trains_on_spot else Rung.ON_DEMAND
