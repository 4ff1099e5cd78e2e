"""The wake of one process, and the wake that advances a fake clock."""

import threading
import time

import pytest

from supervisor.ports.clock import Wake
from supervisor.reconciler.system_clock import EventWake
from tests.contracts.wake_suite import WakeContract
from tests.fakes.clock import FakeClock
from tests.fakes.wake import FakeWake


class TestEventWake(WakeContract):
    @pytest.fixture
    def wake(self) -> Wake:
        return EventWake()

    def test_another_thread_ends_the_wait(self, wake: Wake) -> None:
        answers: list[bool] = []
        waiter = threading.Thread(target=lambda: answers.append(wake.wait(120.0)))
        began = time.monotonic()
        waiter.start()
        wake.set()
        waiter.join(120.0)
        assert answers == [True]
        assert time.monotonic() - began < 60.0

    def test_a_time_before_now_does_not_block(self, wake: Wake) -> None:
        assert wake.wait(-5.0) is False


class TestFakeWake(WakeContract):
    @pytest.fixture
    def wake(self) -> Wake:
        return FakeWake(FakeClock())

    def test_waiting_lets_the_clock_pass_unless_somebody_asked(self) -> None:
        clock = FakeClock()
        wake, began = FakeWake(clock), clock.now()
        wake.wait(30.0)
        assert clock.now() == began + 30.0
        wake.set()
        wake.wait(30.0)
        assert clock.now() == began + 30.0
        assert wake.sets == 1


class NeverForgets(EventWake):
    """Broken: after the first `set` it never blocks again, so the loop spins."""

    def wait(self, timeout_s: float) -> bool:
        asked = super().wait(timeout_s)
        if asked:
            self.set()
        return asked


class Forgets(EventWake):
    """Broken: it loses a `set` while there is no `wait`."""

    def wait(self, timeout_s: float) -> bool:
        self._event.clear()
        return super().wait(min(timeout_s, 0.01))


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (NeverForgets, WakeContract.test_many_calls_count_as_one),
        (Forgets, WakeContract.test_somebody_asked_before_the_wait),
    ],
)
def test_a_broken_wake_is_caught(broken: type[EventWake], promise: object) -> None:
    with pytest.raises(AssertionError):
        promise(WakeContract(), broken())
