"""What a beat tells of a machine, as large as it gets: for benchmarks, and for tests of bounds."""

from __future__ import annotations

from supervisor.contract.beat_telemetry import Cgroup, Disk, Gpus, Telemetry, Tree

CARDS = 8


def full(cards: int = CARDS) -> Telemetry:
    """Every figure there is, as large as a big machine has them."""

    def column(figure: float) -> tuple[float, ...]:
        return tuple(figure + n for n in range(cards))

    disk = Disk(8_123_456_789_012.0, 31_123_456_789_012.0, 1_812_345_678.0, 1_912_345_678.0)
    return Telemetry(
        gpus=Gpus(
            column(92.0), column(143_123.0), column(143_771.0), column(1_980.0), column(1_985.0),
            column(612.37), column(700.0), column(71.0), column(64.0), column(0.0), column(79.0), column(1.0),
        ),
        cgroup=Cgroup(1_612_345_678_901.0, 2_012_345_678_901.0, 12.0, 223.5, 12_345.0, 12.34, 56.78, 99.99),
        checkpoints_disk=disk,
        results_disk=disk,
        scratch_disk=disk,
        tree=Tree(1_234.0, 12_345.0, 1_612_345_678_901.0, 123.0, 45.0, 6.0, 7.0),
        uptime_s=31_234_567.0,
        log_bytes=12_345_678_901.0,
        shm_bytes=1_006_632_960_000.0,
        shm_free_bytes=1_006_632_950_000.0,
    )  # fmt: skip
