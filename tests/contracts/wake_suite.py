"""The contract of a wake (ports/clock.py)."""

from supervisor.ports.clock import Wake


class WakeContract:
    """Subclass it with a fixture `wake`."""

    def test_nobody_asked(self, wake: Wake) -> None:
        assert wake.wait(0.01) is False

    def test_somebody_asked_before_the_wait(self, wake: Wake) -> None:
        wake.set()
        assert wake.wait(60.0) is True

    def test_many_calls_count_as_one(self, wake: Wake) -> None:
        for _ in range(100):
            wake.set()
        assert wake.wait(60.0) is True
        assert wake.wait(0.01) is False

    def test_it_can_be_used_again(self, wake: Wake) -> None:
        for _ in range(3):
            wake.set()
            assert wake.wait(60.0) is True

    def test_a_time_that_is_over_does_not_block(self, wake: Wake) -> None:
        assert wake.wait(0.0) is False
        wake.set()
        assert wake.wait(0.0) is True
