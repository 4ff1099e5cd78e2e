"""A loop whose step fails unexpectedly: it reports the error, continues, and does not delay the end."""

import threading

import pytest

from supervisor.agent.life import loops
from supervisor.agent.life.loops import LAST_TRIES, Loop
from tests.waiting import wait_for


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "AFTER_ERROR_S", 0.01)
    monkeypatch.setattr(loops, "LAST_WAIT_S", 0.01)


class Duty:
    """Fails until `fails_until` steps were made."""

    def __init__(self, fails_until: int) -> None:
        self.fails_until = fails_until
        self.steps = 0
        self.reports: list[str] = []
        self.loop = Loop("duty", self.step, self.reports.append)

    def step(self) -> float | None:
        self.steps += 1
        if self.steps <= self.fails_until:
            raise RuntimeError("broken")
        return None


def test_an_unexpected_error_is_reported_until_it_is_over() -> None:
    duty = Duty(LAST_TRIES + 3)
    duty.loop.start()
    wait_for(lambda: duty.loop.over, what="the step that succeeds")
    assert duty.steps == LAST_TRIES + 4
    assert duty.reports == ["duty: unexpected RuntimeError: broken"] * (LAST_TRIES + 3) + [""]


def test_a_last_round_that_keeps_failing_ends_and_its_error_stays() -> None:
    duty = Duty(1_000_000)
    duty.loop.finish()
    duty.loop.start()
    wait_for(lambda: duty.loop.over, what="the end of the last round")
    assert duty.steps == LAST_TRIES
    assert duty.reports[-1] == "duty: unexpected RuntimeError: broken"


class StopBeforeTheWakeIsTaken(threading.Event):
    """`stop` of the loop comes in the moment in which the thread is about to forget its last wake."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.loop, self.stopped = loop, False

    def clear(self) -> None:
        if not self.stopped:
            self.stopped = True
            self.loop.stop()
        super().clear()


def test_no_further_step_starts_after_a_stop_in_any_moment() -> None:
    duty = Duty(0)
    duty.loop = Loop("duty", lambda: duty.step() or 3600.0, duty.reports.append)
    duty.loop._wake = StopBeforeTheWakeIsTaken(duty.loop)
    duty.loop.start()
    wait_for(lambda: duty.loop.over, what="the end of the loop")
    assert duty.steps == 0
