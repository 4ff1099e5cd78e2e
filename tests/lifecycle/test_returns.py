"""How often a run on on-demand leaves for spot: the pause grows with each refused return."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from supervisor.domain.attempt import Moving
from supervisor.lifecycle.phases.beginning import begin_attempt
from supervisor.lifecycle.phases.changing import after_leaving, is_return_due
from supervisor.lifecycle.rungs.numbers import FROZEN
from supervisor.lifecycle.rungs.rule import DOUBLINGS, Rung, return_pause_s
from tests.lifecycle.sample_runs import NOW, H, open_try
from tests.lifecycle.test_changing import OFFERS, UP, decided, trains
from tools.policy import guessing
from tools.policy.guessing import Guess
from tools.policy.relocations import BEGIN
from tools.policy.replay import State, production, replay
from tools.policy.traces import Case

SPOT, ON_DEMAND = OFFERS["gce"]


def test_the_pause_doubles_with_each_refused_return_and_stays_finite() -> None:
    hours = [return_pause_s(refused) / H for refused in (0, 1, 2, 3, 4)]
    assert hours == [2, 2, 4, 8, 16]
    assert return_pause_s(10**6) == FROZEN.change_pause_s * 2**DOUBLINGS


@pytest.mark.parametrize(("refused", "hours"), [(0, 2), (1, 2), (2, 4), (3, 8)])
def test_it_does_not_leave_within_the_pause(refused: int, hours: float) -> None:
    """Broken variant: the pause was two hours, whatever was refused."""
    within = Moving(rung_at=NOW - hours * H + 1, refused=refused)
    over = replace(within, rung_at=NOW - hours * H)
    left = [decided(trains(moving=moving)).run.live_attempt is None for moving in (within, over)]
    assert left == [False, True]


def test_a_return_counts_as_refused_until_a_spot_machine_is_obtained() -> None:
    left = decided(trains(moving=Moving(refused=2))).run
    assert left.moving == Moving(rung_at=NOW, refused=3)
    again = begin_attempt(left, replace(open_try(), placement=ON_DEMAND.placement), "m", NOW)
    assert again.moving.refused == 3
    assert begin_attempt(left, replace(open_try(), placement=SPOT.placement), "m", NOW).moving == Moving(rung_at=NOW)


def test_to_leave_spot_for_on_demand_is_no_refused_return() -> None:
    assert after_leaving(Moving(refused=1), NOW, for_spot=False) == Moving(rung_at=NOW, refused=1)


def test_a_plan_to_leave_a_slow_machine_ends_with_it() -> None:
    """Broken variant: the next machine heard that its GPU is not throttled any more."""
    assert decided(trains(moving=Moving(after_step=7))).run.moving == Moving(rung_at=NOW, refused=1)


def test_a_clock_that_was_set_back_ends_no_pause() -> None:
    assert not is_return_due(Moving(rung_at=NOW + 60, refused=1), SPOT, UP, NOW)


# --- the replay -------------------------------------------------------------------------------------------------------


def _asked_at(up: tuple[bool, ...], rule: Guess) -> list[float]:
    """When it left for spot."""
    times = []

    def listening(state: State) -> Rung:
        before = rule.granted + rule.refused
        rung = rule(state)
        if rule.granted + rule.refused > before:
            times.append(state.now)
        return rung

    assert not replay(up, 0.02 * H, listening).missed
    return times


def test_where_spot_stays_away_the_replay_asks_more_and_more_rarely() -> None:
    asked = _asked_at((False,) * 420, Guess(replace(FROZEN, least_chance=0.0)))
    gaps = [after - before for before, after in pairwise(asked)]
    assert len(gaps) >= 2
    assert all(gap >= return_pause_s(number) for number, gap in enumerate(gaps, start=1))


@pytest.mark.parametrize("is_up", [False, True])
def test_it_does_not_see_spot_from_on_demand(is_up: bool) -> None:
    """Broken variant: the rule that sees spot goes back at once."""
    state = State(70 * H, 0.02 * H, now=10 * H, left_s=40 * H, held=Rung.ON_DEMAND, is_up=is_up)
    pausing = Guess(moving=Moving(rung_at=BEGIN + 9 * H, refused=1))
    assert pausing(state) is Rung.ON_DEMAND
    assert production()(state) is (Rung.SPOT if is_up else Rung.ON_DEMAND)


def test_a_refused_return_is_paid_and_delays_the_next_machine() -> None:
    state = State(70 * H, 0.02 * H, now=10 * H, left_s=59 * H, held=Rung.ON_DEMAND)
    rule = Guess(replace(FROZEN, least_chance=0.0))
    assert rule(state) is Rung.ON_DEMAND
    assert (rule.refused, state.held, state.refused_s) == (1, None, FROZEN.refusals_s)


def test_returns_that_cost_more_than_they_save_fail_the_command() -> None:
    """Broken variant: it leaves whenever it may, however often it was refused."""
    cases = [Case("none", 70, 0.1, (False,) * 420)]
    hasty = guessing.report(cases, lambda: Guess(replace(FROZEN, least_chance=0.0, change_pause_s=0.0)))
    [failure] = hasty.failures
    assert failure.startswith(f"returns cost ${hasty.usd:.2f}, never returning $")
