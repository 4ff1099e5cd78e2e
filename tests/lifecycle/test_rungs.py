"""The rule of rungs, told as the hours of a training, and its guarantee held against a cloud that wants it to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.lifecycle.rungs.numbers import FROZEN
from supervisor.lifecycle.rungs.rule import Choice, Reason, Rung, Situation, choose, life_s

H, MIN = 3_600.0, 60.0
TICK_S = 600.0
GREEDY = replace(FROZEN, reserve_s=0.0, idle_share=0.0, restart_share=0.0)
Rule = Callable[[Situation], Choice]

HELD = Situation(
    now=0.0,
    left_s=3 * H,
    deadline=8 * H + 20 * MIN,
    changeover_s=6 * MIN,
    tick_s=TICK_S,
    held=None,
    spot_is_up=False,
    spot_usd_per_h=1.0,
    on_demand_usd_per_h=3.0,
)


def test_a_run_without_a_machine_waits_while_it_has_slack_and_says_until_when() -> None:
    choice = choose(HELD)
    assert choice.rung is Rung.WAIT
    # The slack is then 61 minutes: 36, and 6 % of the three hours, and 0.8 of the three changeovers that machines which
    # live for an hour would have.
    assert choice.until == pytest.approx(4 * H + 18 * MIN + 48)
    assert choice.why == "waiting is cheaper: slack 5 h 20 min, remaining 3 h; on-demand at 04:18 UTC at the latest"


def test_at_that_moment_it_takes_on_demand() -> None:
    until = choose(HELD).until
    assert until is not None
    assert choose(replace(HELD, now=until)).rung is Rung.WAIT
    later = choose(replace(HELD, now=until + 1))
    assert later.rung is Rung.ON_DEMAND
    assert later.why == "the deadline needs on-demand: slack 1 h 01 min, remaining 3 h"


def test_spot_is_taken_whenever_it_can_be_had() -> None:
    choice = choose(replace(HELD, spot_is_up=True))
    assert choice.rung is Rung.SPOT
    assert choice.why == "spot is the cheapest ($1.00 an hour, on-demand $3.00): slack 5 h 20 min, remaining 3 h"


def test_on_on_demand_it_stays_until_spot_is_back() -> None:
    on_demand = replace(HELD, held=Rung.ON_DEMAND)
    assert choose(on_demand).rung is Rung.ON_DEMAND
    assert choose(replace(on_demand, spot_is_up=True)).rung is Rung.SPOT


def test_the_last_minutes_do_not_pay_a_restart() -> None:
    """Spot saves two dollars an hour; the restart and the return cost 40 cents: twelve minutes of training."""
    on_demand = replace(HELD, held=Rung.ON_DEMAND, spot_is_up=True)
    assert choose(replace(on_demand, left_s=13 * MIN)).rung is Rung.SPOT
    choice = choose(replace(on_demand, left_s=12 * MIN))
    assert choice.rung is Rung.ON_DEMAND
    assert choice.why == "a move would not pay its restart of 6 min: slack 8 h 08 min, remaining 12 min"


def test_where_machines_die_within_minutes_it_neither_moves_back_nor_waits_for_long() -> None:
    dies_soon = replace(HELD, spot_life_s=10 * MIN)
    until, usual = choose(dies_soon).until, choose(HELD).until
    assert until is not None
    assert usual is not None
    assert until < usual - H
    assert choose(replace(dies_soon, held=Rung.ON_DEMAND, spot_is_up=True)).rung is Rung.ON_DEMAND


def test_the_last_slack_is_not_spent_on_a_move() -> None:
    """Thirty hours are left: half an hour of slack is needed for more than one move, forty hours are not."""
    long = replace(HELD, held=Rung.ON_DEMAND, spot_is_up=True, left_s=30 * H, deadline=30.5 * H)
    assert choose(long).rung is Rung.ON_DEMAND
    assert choose(replace(long, deadline=70 * H)).rung is Rung.SPOT
    assert choose(long, replace(FROZEN, slack_price=0.0)).rung is Rung.SPOT, "the broken rule spends it"


def test_the_life_of_spot_machines_is_an_hour_until_losses_are_seen() -> None:
    assert life_s(0.0, 0) == H
    assert life_s(9 * H, 4) == 2 * H


def test_an_unknown_price_moves_nothing_off_on_demand() -> None:
    assert choose(replace(HELD, held=Rung.ON_DEMAND, spot_is_up=True, spot_usd_per_h=None)).rung is Rung.ON_DEMAND


def test_spot_that_costs_more_is_not_taken() -> None:
    choice = choose(replace(HELD, spot_is_up=True, spot_usd_per_h=3.5))
    assert choice.rung is Rung.ON_DEMAND
    assert choice.why == "on-demand costs no more than spot ($3.50 an hour, on-demand $3.00)"


def test_before_it_would_be_too_late_even_a_healthy_spot_machine_is_left() -> None:
    held = replace(HELD, held=Rung.SPOT, spot_is_up=True)
    assert choose(replace(held, deadline=3 * H + 16 * MIN)).rung is Rung.SPOT
    choice = choose(replace(held, deadline=3 * H + 15 * MIN))
    assert choice.rung is Rung.ON_DEMAND
    assert choice.why == (
        "the deadline needs on-demand: slack 15 min, remaining 3 h, and a changeover takes up to 6 min"
    )


def test_where_a_changeover_would_miss_the_deadline_the_machine_that_is_held_is_kept() -> None:
    choice = choose(replace(HELD, held=Rung.SPOT, spot_is_up=True, deadline=3 * H + 2 * MIN))
    assert choice.rung is Rung.SPOT
    assert choice.reason is Reason.HELD_IN_TIME


def test_a_lost_deadline_is_said_and_the_training_goes_on() -> None:
    choice = choose(replace(HELD, deadline=2 * H))
    assert choice.rung is Rung.ON_DEMAND
    assert choice.why == "the deadline cannot be kept any more: remaining 3 h, it would end 1 h 06 min late"


def test_without_a_deadline_nothing_is_paid_for_on_demand() -> None:
    choice = choose(replace(HELD, deadline=None))
    assert (choice.rung, choice.until) == (Rung.WAIT, None)
    assert choice.why == "no deadline makes it pay for on-demand"
    assert choose(replace(HELD, deadline=None, spot_is_up=True)).rung is Rung.SPOT


# --- the guarantee ----------------------------------------------------------------------------------------------------


def end_of(rule: Rule, start: Situation, ups: Iterator[bool]) -> float:
    """A cloud that takes each spot machine with the work of its tick, and whose every start takes the whole
    changeover. Returns when the training ends."""
    now, starts_s = start, 0.0
    while True:
        up = next(ups)
        if now.held is Rung.SPOT and not up:
            now = replace(now, held=None)
        choice = rule(replace(now, spot_is_up=up))
        rung = None if choice.rung is Rung.WAIT else choice.rung
        assert rung is not Rung.SPOT or up, "it counts on a machine that cannot be had"
        if rung is not None and rung is not now.held:
            starts_s = now.changeover_s
        trains_s = 0.0 if rung is None else max(0.0, now.tick_s - starts_s)
        if trains_s >= now.left_s:
            return now.now + starts_s + now.left_s
        starts_s = 0.0 if rung is None else max(0.0, starts_s - now.tick_s)
        now = replace(now, now=now.now + now.tick_s, left_s=now.left_s - trains_s, held=rung)


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    left_s, change_s = draw(st.floats(600.0, 10 * H)), draw(st.floats(0.0, 2_400.0))
    # On-demand from the first tick on would keep it.
    deadline = left_s + change_s + 1e-3 + draw(st.one_of(st.floats(0.0, 2 * H), st.just(0.0)))
    return replace(HELD, left_s=left_s, changeover_s=change_s, deadline=deadline)


@given(situations(), st.lists(st.booleans(), min_size=1, max_size=40))
def test_a_deadline_that_on_demand_could_keep_is_kept(start: Situation, pattern: list[bool]) -> None:
    assert start.deadline is not None
    assert end_of(choose, start, _cycle(pattern)) <= start.deadline + 1e-6


def _cycle(pattern: list[bool]) -> Iterator[bool]:
    while True:
        yield from pattern


def without_reserve(situation: Situation) -> Choice:
    """The broken rule: it forgets that a changeover takes time, and that nobody looks before the next tick."""
    return choose(replace(situation, changeover_s=0.0, tick_s=0.0), GREEDY)


def without_tick(situation: Situation) -> Choice:
    return choose(replace(situation, tick_s=0.0), GREEDY)


@pytest.mark.parametrize("broken", [without_reserve, without_tick])
def test_a_rule_without_its_reserve_misses_it(broken: Rule) -> None:
    """The cloud never has spot: the broken rule waits for too long."""
    never = partial(_cycle, [False])
    start = replace(HELD, deadline=5 * H + 1)
    assert start.deadline is not None
    assert end_of(choose, start, never()) <= start.deadline
    assert end_of(broken, start, never()) > start.deadline
