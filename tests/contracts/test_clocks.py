"""The clock of the computer and the one that tests move by hand."""

import time

import pytest

from supervisor.ports.clock import Clock
from supervisor.reconciler.system_clock import SystemClock
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


class GoesBack(FakeClock):
    """Broken: its monotonic side follows a wall clock that is being set back."""

    def monotonic(self) -> float:
        return self.step(-1.0)


def test_a_clock_that_goes_back_is_caught() -> None:
    with pytest.raises(AssertionError):
        ClockContract().test_monotonic_time_never_goes_back(GoesBack())
