"""The rhythm of steps: what is usual, which long steps come again, and when the next step is late."""

import math
import statistics
from collections import deque

import pytest

from supervisor.agent.watch.rhythm import FLOOR_S, LATE, Rhythm, median, percentile


class Run:
    def __init__(self, floor_s: float = FLOOR_S) -> None:
        self.rhythm, self.now, self.step = Rhythm(floor_s), 100.0, 0
        self.rhythm.add(self.now, self.step)

    def trains(self, step_s: float, steps: int) -> "Run":
        for _ in range(steps):
            self.now, self.step = self.now + step_s, self.step + 1
            self.rhythm.add(self.now, self.step)
        return self

    @property
    def late_s(self) -> float | None:
        return self.rhythm.late_s()


def test_the_rhythm_is_known_after_twenty_intervals() -> None:
    run = Run().trains(30.0, 19)
    assert run.late_s is None
    assert run.trains(30.0, 1).late_s == LATE * 30.0


def test_what_was_usual_before_counts_until_the_own_rhythm_is_known() -> None:
    run = Run().trains(20.0, 5)
    run.rhythm.carried_s = 40.0
    assert (run.late_s, run.rhythm.usual_s) == (LATE * 40.0, None)
    assert run.trains(20.0, 15).late_s == LATE * 20.0
    assert run.rhythm.usual_s == 20.0


def test_fast_steps_are_late_after_a_minute() -> None:
    assert Run().trains(0.1, 600).late_s == FLOOR_S
    assert Run(floor_s=3.0).trains(0.1, 600).late_s == 3.0


def test_steps_that_grow_are_judged_by_the_newer_half() -> None:
    """The broken variant: of all 512 the 99th percentile alone would still be that of the short ones."""
    run = Run().trains(20.0, 508).trains(60.0, 4)
    assert run.late_s == LATE * 60.0
    assert percentile([20.0] * 508 + [60.0] * 4) == 20.0


def test_an_evaluation_is_expected_when_its_turn_comes_again_and_only_then() -> None:
    run = Run().trains(20.0, 100)
    for _ in range(3):
        run.trains(20.0, 99).trains(600.0, 1)
    assert run.trains(20.0, 50).late_s == LATE * 20.0
    assert run.trains(20.0, 48).late_s == LATE * 600.0
    assert run.trains(600.0, 1).trains(20.0, 1).late_s == LATE * 20.0


def test_a_pause_by_the_clock_is_expected_by_the_clock() -> None:
    run = Run().trains(20.0, 100)
    for steps in (60, 61, 59, 60):
        run.trains(1200.0 / steps, steps).trains(600.0, 1)
    assert run.trains(20.0, 20).late_s == pytest.approx(LATE * 20.0, rel=0.1)
    assert run.trains(20.0, 40).late_s == LATE * 600.0


def test_long_steps_without_a_rhythm_are_expected_until_they_stay_away() -> None:
    run = Run().trains(20.0, 100)
    for steps in (10, 70, 25, 90):
        run.trains(20.0, steps).trains(600.0, 1)
    assert run.trains(20.0, 30).late_s == LATE * 600.0
    assert run.trains(20.0, 300).late_s == LATE * 20.0


@pytest.mark.parametrize("before", [0, 40])
def test_one_long_step_makes_no_kind(before: int) -> None:
    """The first compile takes 15 minutes: else every later hang would take more than an hour to be found."""
    run = Run().trains(20.0, before).trains(900.0, 1).trains(20.0, 40)
    assert run.late_s == LATE * 20.0


def test_an_announced_phase_and_a_step_back_are_no_measure() -> None:
    run = Run().trains(20.0, 30)
    run.rhythm.pause()
    run.now += 5000.0
    run.rhythm.add(run.now, run.step + 1)
    run.now += 5000.0
    run.rhythm.add(run.now, 3)
    assert run.late_s == LATE * 20.0
    assert run.rhythm._longest_usual_s != math.inf
    assert not run.rhythm._long


def test_the_percentile_is_one_of_the_lengths() -> None:
    assert percentile([3.0, 1.0, 2.0]) == 3.0
    assert percentile(list(range(100))) == 98
    assert percentile([5.0], 0.5) == 5.0


@pytest.mark.parametrize("values", [[3.0], [2.0, 1.0], [5.0, 1.0, 3.0], [4.0, 1.0, 3.0, 2.0], [1.0, 1.0, 9.0, 1.0]])
def test_the_median_is_that_of_the_standard_library(values: list[float]) -> None:
    assert median(deque(values)) == statistics.median(values)
