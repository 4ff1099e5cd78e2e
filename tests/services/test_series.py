"""The series of a run: few points, the same ones again, and no line across the end of an attempt or a silence."""

from __future__ import annotations

import math

import pytest

from supervisor.domain.attempt import Pulse
from supervisor.domain.errors import InvalidRequest
from supervisor.ports.store import Sample
from supervisor.services.reading import series
from supervisor.services.reading.series import series_json
from supervisor.services.views.formats import Json
from tests.services.bed import Bed


def kept(bed: Bed, *points: tuple[float, int, int], run_id: str = "digits-7") -> None:
    """(seconds since the submit, attempt, step)."""
    run = bed.run(run_id)
    lease = bed.store.take_lease("series", "test", 1e6, bed.clock.monotonic())
    assert lease is not None
    made = [
        Sample(
            run.key,
            run.created_at + at,
            attempt,
            Pulse(
                f"1.{attempt}.1", phase="training", step=step, steps_per_s=step / 10, metrics={"loss": 1.0 / (step + 1)}
            ),
        )
        for at, attempt, step in points
    ]
    bed.store.write_pulses(made, lease)


def asked(bed: Bed, points: int = 500, since: float | None = None, until: float | None = None) -> Json:
    run = bed.run("digits-7")
    moment = run.created_at
    return series_json(
        bed.parts, run, None if since is None else moment + since, None if until is None else moment + until, points
    )


def test_the_line_breaks_while_a_training_stalls(digits: Bed) -> None:
    run = digits.run("digits-7")
    lease = digits.store.take_lease("series", "test", 1e6, digits.clock.monotonic())
    polls = (0, 1, 3, 5, 0, 0)
    digits.store.write_pulses(
        [
            Sample(run.key, run.created_at + 60 * n, 1, Pulse("1.1.1", phase="training", step=9, stall_polls=one))
            for n, one in enumerate(polls)
        ],
        lease,
    )
    digits.clock.advance(1000)
    assert [one["gap"] for one in asked(digits)["points"]] == [False, False, True, True, True, False]


@pytest.fixture
def digits(any_bed: Bed) -> Bed:
    any_bed.submit("digits-7")
    return any_bed


def test_few_points_are_shown_as_they_are(digits: Bed) -> None:
    assert asked(digits)["points"] == []
    kept(digits, (60, 1, 10), (120, 1, 20), (900, 1, 30), (960, 2, 25))
    digits.clock.advance(1000)
    told = asked(digits)
    assert told["every_s"] is None
    assert [(one["attempt"], one["step"], one["gap"]) for one in told["points"]] == [
        (1, 10, False),
        (1, 20, False),
        (1, 30, True),
        (2, 25, True),
    ]
    assert told["points"][0]["metrics"] == {"loss": 1.0 / 11}
    assert told["points"][0]["gpu_pct"] is None
    assert [one["step"] for one in asked(digits, since=100, until=900)["points"]] == [20, 30]
    with pytest.raises(InvalidRequest):
        asked(digits, since=5, until=4)
    for since, until, count in ((-1e11, 1e12, 4), (1e12, None, 0), (None, -1e11, 0)):  # beyond every calendar
        assert len(asked(digits, since=since, until=until)["points"]) == count


def test_many_points_become_as_many_as_were_asked_for(digits: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "PAGE", 7)  # pages end within spans
    kept(digits, *((60 * n, 1, n) for n in range(100)), *((60 * n, 2, n - 20) for n in range(100, 200)))
    digits.clock.advance(60 * 200)
    for most in (1, 2, 10, 33, 100, 199):
        told = asked(digits, most)
        assert 1 <= len(told["points"]) <= most
        assert told["points"][-1]["step"] == 179
        if most > 2:
            assert [one["attempt"] for one in told["points"] if one["gap"]] == [2]
    assert asked(digits, 200)["every_s"] is None
    spans = asked(digits, 60)["points"]
    steps = [one["steps_per_s"] * 10 for one in spans[1:15]]
    lasts = [one["step"] for one in spans[1:15]]
    assert all(math.isclose(mean, last - 2, abs_tol=1e-6) for mean, last in zip(steps, lasts, strict=True))


def test_the_same_points_come_again_while_the_run_goes_on(digits: Bed) -> None:
    kept(digits, *((60 * n, 1, n) for n in range(600)))
    digits.clock.advance(60 * 600)
    before = asked(digits, 50)
    kept(digits, *((60 * n, 1, n) for n in range(600, 605)))
    digits.clock.advance(300)
    after = asked(digits, 50)
    assert before["every_s"] == after["every_s"]
    assert after["points"][: len(before["points"]) - 1] == before["points"][:-1]


def test_points_that_were_thinned_out_are_no_silence(digits: Bed) -> None:
    check_silences(digits)


def test_a_line_across_silence_would_be_seen(digits: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: points may lie as far apart as those of long ago."""
    monkeypatch.setattr(series, "MINUTE_S", series.COARSE_S)
    with pytest.raises(AssertionError):
        check_silences(digits)


def check_silences(digits: Bed) -> None:
    kept(digits, *((600 * n, 1, n) for n in range(20)))
    digits.clock.advance(12_000)
    assert sum(one["gap"] for one in asked(digits)["points"]) == 19
    digits.clock.advance(2 * 86_400)
    assert not any(one["gap"] for one in asked(digits)["points"])


def test_figures_that_are_too_large_to_add_are_left_out(digits: Bed) -> None:
    run = digits.run("digits-7")
    lease = digits.store.take_lease("series", "test", 1e6, digits.clock.monotonic())
    assert lease is not None
    digits.store.write_pulses(
        [Sample(run.key, run.created_at + n, 1, Pulse("1.1.1", metrics={"loss": 1.7e308})) for n in range(9)], lease
    )
    digits.clock.advance(60)
    (point,) = asked(digits, 1)["points"]
    assert point["metrics"] == {}
