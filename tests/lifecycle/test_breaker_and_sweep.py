"""When many runs look dead at once, the fault is ours: the breaker and the sweep refuse to act."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.domain.machines import Machine, MachineListing, MachineState
from supervisor.lifecycle import sweeping
from supervisor.lifecycle.breaker import AFTER_CLOSING_PER_TICK, WINDOW_S, Breaker, admit, prove_fresh, threshold
from tests.lifecycle.strategies import NOW


@given(st.integers(2, 200), st.integers(1, 200))
def test_a_tick_never_ends_a_fifth_of_the_runs_on_inference(active: int, wanted: int) -> None:
    after, granted = admit(Breaker(), min(wanted, active), active, NOW)
    assert granted < threshold(active)
    assert after.open == (min(wanted, active) >= threshold(active))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(2, 100))
def test_ends_within_ten_minutes_add_up(ticks: list[int], active: int) -> None:
    breaker, total = Breaker(), 0
    for number, wanted in enumerate(ticks):
        breaker, granted = admit(breaker, wanted, active, NOW + number)
        total += granted
    assert total < threshold(active)


def test_a_lone_run_has_no_breaker_and_an_old_end_is_forgotten() -> None:
    assert admit(Breaker(ends=(NOW - 1,)), 1, 1, NOW)[1] == 1
    assert admit(Breaker(ends=(NOW - WINDOW_S,)), 1, 5, NOW)[1] == 1
    assert admit(Breaker(ends=(NOW - 1,)), 1, 5, NOW)[1] == 0


def test_it_closes_only_on_a_read_that_began_after_it_opened_and_then_slowly() -> None:
    opened, _ = admit(Breaker(), 5, 10, NOW)
    assert prove_fresh(opened, NOW, NOW).open
    closed = prove_fresh(opened, NOW + 1, NOW + 1)
    assert not closed.open
    assert admit(closed, 5, 10, NOW + 2)[1] == AFTER_CLOSING_PER_TICK
    assert admit(closed, 1, 10, NOW + 2)[1] == 1


def machine(number: int, supervisor_id: str = "me", age_s: float | None = 3600.0) -> Machine:
    created = None if age_s is None else NOW - age_s
    return Machine(f"id-{number}", f"m-{number}", "z", MachineState.UP, supervisor_id, "r", "1.1.1", created)


def plan(*machines: Machine, expected: tuple[str, ...] = ()) -> sweeping.SweepPlan:
    return sweeping.plan(MachineListing(machines), "me", expected, NOW)


def test_a_machine_of_ours_that_serves_no_run_is_released() -> None:
    assert plan(machine(1), machine(2), expected=("m-2",)).release == (machine(1),)


@pytest.mark.parametrize("stranger", ["", "another-supervisor"])
def test_foreign_machines_are_counted_and_never_touched(stranger: str) -> None:
    swept = plan(*(machine(number, stranger) for number in range(10)))
    assert (swept.release, swept.refused, swept.foreign) == ((), (), 10)


def test_a_machine_younger_than_the_floor_is_left_alone() -> None:
    assert plan(machine(1, age_s=sweeping.AGE_FLOOR_S - 1)).release == ()
    assert len(plan(machine(1, age_s=sweeping.AGE_FLOOR_S)).release) == 1
    assert len(plan(machine(1, age_s=None)).release) == 1


def test_too_many_at_once_means_that_we_are_wrong() -> None:
    assert len(plan(*map(machine, range(3))).release) == 3
    swept = plan(*map(machine, range(4)))
    assert (len(swept.release), len(swept.refused)) == (0, 4)
    many = plan(*map(machine, range(30)), expected=tuple(f"m-{number}" for number in range(4, 30)))
    assert len(many.release) == 4  # four of thirty is less than a fifth
