"""A run with a past: attempts that ended and the points that its beats left, written as the loop would."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from supervisor.contract.beat_telemetry import Cgroup, Disk, Gpus, Telemetry, encode
from supervisor.domain.attempt import Attempt, Pulse
from supervisor.domain.machines import Placement
from supervisor.ports.store import Change, Sample
from tests.services.bed import PLACE, Bed

DISK = Disk(4e10, 1e11, 9e5, 1e6)


def attempted(bed: Bed, run_id: str, *spans: tuple[float, float, str], place: Placement = PLACE) -> None:
    """Attempts from 1 on that are over: (begin, end, cause), in seconds since the submit."""
    run = bed.run(run_id)
    ended = tuple(
        Attempt(
            number, 1, f"1.{number}.1", f"m-a{number}", f"id-{number}", place, run.created_at + begin - 60,
            run.created_at + begin, 0.1, 0.3, ended_at=run.created_at + end, cause=cause, gone_at=run.created_at + end,
        )
        for number, (begin, end, cause) in enumerate(spans, start=1)
    )  # fmt: skip
    with bed.store.begin(bed.clock.now()) as tx:
        before = tx.find(run_id)
        assert before is not None
        counters = replace(before.counters, attempts=len(ended))
        assert tx.apply(Change(before, replace(before, counters=counters), (), ended), bed.clock.now()) is not None


def told(
    bed: Bed,
    run_id: str,
    points: Iterable[tuple[float, int, int | None, Mapping[str, float]]],
    gpu_pct: float | None = None,
) -> None:
    """Points (seconds since the submit, attempt, step, metrics), with figures of the machine where the GPU has some."""
    run = bed.run(run_id)
    lease = bed.store.take_lease("series", "test", 1e6, bed.clock.monotonic())
    assert lease is not None
    bed.store.write_pulses(
        [
            Sample(
                run.key,
                run.created_at + at,
                attempt,
                Pulse(
                    f"1.{attempt}.1", phase="training", step=step, metrics=dict(metrics),
                    steps_per_s=None if step is None else 3.0 + math.sin(at / 900),
                    telemetry="" if gpu_pct is None else encode(_machine(gpu_pct, at)),
                ),
            )
            for at, attempt, step, metrics in points
        ],
        lease,
    )  # fmt: skip


def _machine(gpu_pct: float, at: float) -> Telemetry:
    share = max(0.0, min(100.0, gpu_pct + 8 * math.sin(at / 500)))
    return Telemetry(
        gpus=Gpus(
            util_pct=(share,), memory_used_mib=(15_000 + 1000 * math.sin(at / 3000),), memory_total_mib=(23_000.0,)
        ),
        cgroup=Cgroup(memory_bytes=1.2e10 + 4e4 * at % 9e9),
        checkpoints_disk=DISK,
    )
