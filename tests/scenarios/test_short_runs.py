"""A run that is over before its second tick still has a curve: its beats carry the points between them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from supervisor.ports.store import Sample
from supervisor.reconciler.observing import sampling
from tests.scenarios.play import play_lines
from tests.scenarios.stage import Stage

SHORT = "submit digits zones=a steps=80 rate=2 checkpoint=0 boot=2s restore=1s finish=1s"
STORED_ONLY, PUSHED = "push=no", "push=yes"


@pytest.fixture
def stage(folder: Path) -> Iterator[Stage]:
    stage = Stage(folder)
    yield stage
    stage.close()


def points(stage: Stage) -> list[Sample]:
    run = stage.parts.store.find("digits")
    assert run is not None
    return stage.parts.store.samples(run.key, 0.0, 500)


def steps(stage: Stage) -> list[tuple[float, int]]:
    return [(point.at, point.pulse.step) for point in points(stage) if point.pulse.step is not None]


def longest_gap_s(points_of_run: list[tuple[float, int]]) -> float:
    return max(after - before for (before, _), (after, _) in pairwise(points_of_run))


@pytest.mark.parametrize("way", [STORED_ONLY, PUSHED])
def test_a_run_of_40_s_has_a_point_every_few_seconds(stage: Stage, way: str) -> None:
    play_lines(stage, f"{SHORT} {way}\nwait until digits status=completed within=5min")
    curve = steps(stage)
    assert len(curve) >= 8
    assert longest_gap_s(curve[:-1]) <= 6.0  # the last one is that of its end
    assert [step for _, step in curve] == sorted(step for _, step in curve)
    newest = stage.parts.store.find("digits")
    assert newest is not None
    assert newest.pulse is not None
    assert newest.pulse.step == 80


def test_an_agent_of_an_older_build_has_the_points_of_its_beats(stage: Stage) -> None:
    play_lines(stage, f"{SHORT} {STORED_ONLY} carries=no\nwait until digits status=completed within=5min")
    assert 1 <= len(steps(stage)) <= 4


def killed_in_the_middle(stage: Stage) -> list[tuple[float, int]]:
    play_lines(stage, "submit digits zones=a steps=400 rate=2 checkpoint=20\nwait 2min")
    before = len(steps(stage))
    for _ in range(4):
        play_lines(stage, "supervisor kill\nsupervisor start\nwait 20s")
    assert len(steps(stage)) > before
    return steps(stage)


def test_no_point_is_written_twice_after_a_restart_of_the_supervisor(stage: Stage) -> None:
    curve = killed_in_the_middle(stage)
    assert len({step for _, step in curve}) == len(curve)
    assert [step for _, step in curve] == sorted(step for _, step in curve)


def test_broken_times_by_the_tick_instead_of_the_agents_count(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason for the test above: the same point with another time is another point."""
    made = sampling.Sampler._points

    def by_the_tick(*args: object) -> list[Sample]:
        now = args[-1]
        assert isinstance(now, float)
        return [
            Sample(point.key, now - n / 10, point.attempt, point.pulse, carried=point.carried)
            for n, point in enumerate(reversed(made(*args)))  # type: ignore[arg-type]
        ]

    monkeypatch.setattr(sampling.Sampler, "_points", by_the_tick)
    curve = killed_in_the_middle(stage)
    assert len({step for _, step in curve}) < len(curve)
