"""Runs with stored metrics: what the agent of each attempt would have written."""

from dataclasses import replace

from supervisor.contract import metric_series, runfiles
from supervisor.contract.metric_series import Curve, Kept, Series
from supervisor.domain.attempt import Pulse
from supervisor.domain.run import Run
from supervisor.ports.store import Sample
from tests.services.bed import Bed

Values = dict[str, list[tuple[int, float]]]


def stored(values: Values, resumed_from: "int | None" = None, complete: bool = True) -> bytes:
    """A step takes a second."""
    curves = {}
    for name, points in values.items():
        curve = Curve()
        for step, value in points:
            curve.add(step, float(step - (resumed_from or 0)), value)
        curves[name] = Kept(curve.reports, tuple(curve.points))
    return metric_series.encode(Series(resumed_from, 0, complete, curves))


def line(first: int, last: int, value: float = 1.0) -> list[tuple[int, float]]:
    return [(step, value) for step in range(first, last + 1)]


def trained(bed: Bed, run_id: str, *attempts: "tuple[int | None, bytes | None]") -> Run:
    """A run with these attempts (the step that each one restored, its object), the last one still on."""
    bed.submit(run_id)
    return train_on(bed, run_id, *attempts)


def train_on(bed: Bed, run_id: str, *attempts: "tuple[int | None, bytes | None]") -> Run:
    for number, (resumed_from, raw) in enumerate(attempts, 1):
        run = bed.train(run_id, number)
        assert run.attempt is not None
        began = replace(run.attempt, step_from=resumed_from, agent_at=bed.clock.now())
        run = bed.change(run_id, attempt=began)
        if number < len(attempts):
            bed.change(run_id, attempt=replace(began, ended_at=bed.clock.now(), gone_at=bed.clock.now()))
        if raw is not None:
            bed.objects.put(runfiles.metrics(run_id, number), raw)
        bed.clock.advance(3600.0)
    return bed.run(run_id)


def sampled(bed: Bed, run: Run, points: "list[tuple[float, int, int, dict[str, float]]]") -> None:
    """Samples of beats: (epoch seconds, attempt, step, metrics)."""
    lease = bed.store.take_lease("series", "test", 1e6, bed.clock.monotonic())
    assert lease is not None
    made = [
        Sample(run.key, at, attempt, Pulse(f"1.{attempt}.1", phase="training", step=step, metrics=metrics))
        for at, attempt, step, metrics in points
    ]
    bed.store.write_pulses(made, lease)
