"""The contract of a clock (ports/clock.py)."""

from supervisor.ports.clock import Clock


class ClockContract:
    """Subclass it with a fixture `clock`."""

    def test_wall_time_is_epoch_seconds(self, clock: Clock) -> None:
        assert 1_700_000_000 < clock.now() < 4_000_000_000, "between 2023 and 2096"

    def test_monotonic_time_never_goes_back(self, clock: Clock) -> None:
        readings = [clock.monotonic() for _ in range(1000)]
        assert readings == sorted(readings)
