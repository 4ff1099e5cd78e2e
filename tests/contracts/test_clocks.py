"""The clock of the computer and the one that tests move by hand."""

import time

import pytest

from supervisor.ports.clock import Clock
from supervisor.reconciler.system_clock import SteadyClock, SystemClock
from tests.contracts.clock_suite import ClockContract
from tests.fakes.clock import FakeClock


class TestSystemClock(ClockContract):
    @pytest.fixture
    def clock(self) -> Clock:
        return SystemClock()

    def test_it_is_this_computers(self, clock: Clock) -> None:
        before, answer, after = time.time(), clock.now(), time.time()
        assert before <= answer <= after


class TestFakeClock(ClockContract):
    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    def test_time_passes_on_both_sides_only_when_it_is_told_to(self, clock: FakeClock) -> None:
        wall, monotonic = clock.now(), clock.monotonic()
        assert (clock.now(), clock.monotonic()) == (wall, monotonic)
        clock.advance(30.5)
        assert (clock.now(), clock.monotonic()) == (wall + 30.5, monotonic + 30.5)

    @pytest.mark.parametrize("seconds", [3600.0, -3600.0])
    def test_a_step_of_the_wall_clock_lets_no_time_pass(self, clock: FakeClock, seconds: float) -> None:
        wall, monotonic = clock.now(), clock.monotonic()
        clock.step(seconds)
        assert (clock.now(), clock.monotonic()) == (wall + seconds, monotonic)

    def test_time_does_not_go_back(self, clock: FakeClock) -> None:
        with pytest.raises(ValueError, match="does not go back"):
            clock.advance(-1.0)


class Steady:
    """A steady clock on one that the test moves; `look` advances a poll interval and returns the clock's offset."""

    def __init__(self) -> None:
        self.raw = FakeClock()
        self.clock = SteadyClock(self.raw, 30.0)
        self.began = self.raw.now() - self.raw.monotonic()

    def ahead_s(self) -> float:
        return self.clock.now() - self.clock.monotonic() - self.began

    def look(self, after_s: float = 30.0) -> float:
        self.raw.advance(after_s)
        return self.ahead_s()


class TestSteadyClock(ClockContract):
    @pytest.fixture
    def clock(self) -> Clock:
        return SteadyClock(FakeClock(), 30.0)

    @pytest.mark.parametrize("step_s", [3600.0, -3600.0, 86400.0])
    def test_a_step_is_believed_after_three_looks_that_agree(self, step_s: float) -> None:
        steady = Steady()
        steady.raw.step(step_s)
        assert [steady.ahead_s(), steady.look(), steady.look(), steady.look()] == [0.0, 0.0, 0.0, step_s]
        assert steady.clock.wall() == steady.raw.now()

    def test_looks_close_together_are_one_look(self) -> None:
        steady = Steady()
        steady.raw.step(3600.0)
        assert {steady.look(0.5) for _ in range(40)} == {0.0}

    def test_a_step_that_goes_back_was_none(self) -> None:
        steady = Steady()
        steady.raw.step(3600.0)
        assert [steady.ahead_s(), steady.look(), steady.look()] == [0.0, 0.0, 0.0]
        steady.raw.step(-3600.0)
        assert {steady.look() for _ in range(6)} == {0.0}

    def test_one_step_after_another_begins_the_count_anew(self) -> None:
        steady = Steady()
        steady.raw.step(3600.0)
        assert [steady.ahead_s(), steady.look(), steady.look()] == [0.0, 0.0, 0.0]
        steady.raw.step(60.0)
        assert [steady.look(), steady.look(), steady.look(), steady.look()] == [0.0, 0.0, 0.0, 3660.0]

    def test_small_corrections_are_followed_at_once(self) -> None:
        steady = Steady()
        steady.raw.step(3.0)
        assert steady.ahead_s() == 3.0
        steady.raw.step(-3.0)
        assert steady.ahead_s() == 0.0


class GoesBack(FakeClock):
    """Broken: its monotonic time follows a wall clock that is set back."""

    def monotonic(self) -> float:
        return self.step(-1.0)


def test_a_clock_that_goes_back_is_caught() -> None:
    with pytest.raises(AssertionError):
        ClockContract().test_monotonic_time_never_goes_back(GoesBack())
