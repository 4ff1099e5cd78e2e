"""Retries end in time, happen only for transient errors, and share a budget."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from supervisor.providers.gce.calls.errors import ApiError
from supervisor.providers.gce.calls.retry import TRIES, Budget, Retry
from tests.fakes.clock import FakeClock


class Door:
    """Refuses that often, then succeeds; every request takes `takes_s`."""

    def __init__(self, clock: FakeClock, refusals: list[ApiError], takes_s: float = 0.0) -> None:
        self.clock, self.refusals, self.takes_s = clock, refusals, takes_s
        self.timeouts: list[float] = []

    def ask(self, timeout_s: float) -> str:
        self.timeouts.append(timeout_s)
        self.clock.advance(min(self.takes_s, timeout_s))
        if self.refusals:
            raise self.refusals.pop(0)
        return "answer"


def retry_on(clock: FakeClock, chance: Callable[[], float] = lambda: 1.0) -> Retry:
    return Retry(monotonic=clock.monotonic, sleep=clock.advance, chance=chance)


@pytest.mark.parametrize(
    ("status", "reason"),
    [(429, ""), (403, "rateLimitExceeded"), (500, ""), (502, ""), (503, ""), (504, ""), (None, "")],
)
def test_what_is_transient_is_asked_again(status: int | None, reason: str) -> None:
    clock = FakeClock()
    door = Door(clock, [ApiError("busy", status, reason)] * 3)
    assert retry_on(clock).call(door.ask) == "answer"
    assert len(door.timeouts) == 4


@pytest.mark.parametrize(
    ("status", "reason"), [(400, ""), (401, ""), (403, "forbidden"), (404, ""), (409, ""), (None, "identity")]
)
def test_what_is_definite_is_asked_once(status: int | None, reason: str) -> None:
    clock = FakeClock()
    door = Door(clock, [ApiError("no", status, reason)] * 2)
    with pytest.raises(ApiError, match="no"):
        retry_on(clock).call(door.ask)
    assert len(door.timeouts) == 1


def test_pauses_double_and_chance_shortens_them() -> None:
    for chance, paused_s in ((1.0, 0.25 + 0.5 + 1 + 2), (0.0, (0.25 + 0.5 + 1 + 2) / 2)):
        clock = FakeClock()
        start = clock.monotonic()
        door = Door(clock, [ApiError("busy", 503)] * TRIES)
        with pytest.raises(ApiError):
            retry_on(clock, lambda chance=chance: chance).call(door.ask)
        assert clock.monotonic() - start == pytest.approx(paused_s)


def test_the_whole_call_ends_within_its_deadline() -> None:
    clock = FakeClock()
    start = clock.monotonic()
    door = Door(clock, [ApiError("no answer")] * 9, takes_s=60.0)
    with pytest.raises(ApiError):
        retry_on(clock).call(door.ask)
    assert clock.monotonic() - start <= 20.0
    assert all(timeout_s <= 10.0 for timeout_s in door.timeouts)


def test_a_storm_leaves_one_request_a_call() -> None:
    """Ten minutes of 503, a call each second: the budget is spent, and then the load is that of the calls alone."""
    clock = FakeClock()
    retry = retry_on(clock)
    requests = []
    for _ in range(300):
        door = Door(clock, [ApiError("busy", 503)] * TRIES)
        with pytest.raises(ApiError):
            retry.call(door.ask)
        requests.append(len(door.timeouts))
        clock.advance(0.01)
    assert requests[0] == TRIES
    assert sum(requests) < 300 + 60 + clock.monotonic() - 1000.0
    without = Retry(monotonic=clock.monotonic, sleep=clock.advance)
    without.budget.take = lambda: True  # type: ignore[method-assign]
    doors = [Door(clock, [ApiError("busy", 503)] * TRIES) for _ in range(300)]
    for door in doors:
        with pytest.raises(ApiError):
            without.call(door.ask)
    assert sum(len(door.timeouts) for door in doors) == 300 * TRIES  # so many it would be


def test_a_budget_fills_up_again() -> None:
    clock = FakeClock()
    budget = Budget(clock.monotonic, tokens=2.0, per_s=0.5)
    assert [budget.take() for _ in range(3)] == [True, True, False]
    clock.advance(2.0)
    assert [budget.take() for _ in range(2)] == [True, False]
