"""A run that is over before its second look has a curve all the same: its beats carry the points between them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from supervisor.ports.store import Sample
from supervisor.reconciler.observing import sampling
from tests.scenarios.play import DEEDS
from tests.scenarios.script import line_of
from tests.scenarios.stage import Stage

SHORT = "submit digits zones=a steps=80 rate=2 checkpoint=0 boot=2s restore=1s finish=1s"
STORED_ONLY, PUSHED = "push=no", "push=yes"


@pytest.fixture
def stage(folder: Path) -> Iterator[Stage]:
    stage = Stage(folder)
    yield stage
    stage.close()


def play(stage: Stage, *lines: str) -> None:
    for number, text in enumerate(lines):
        line = line_of(number, text)
        assert line is not None
        DEEDS[line.verb](stage, line)


def points(stage: Stage) -> list[Sample]:
    run = stage.parts.store.find("digits")
    assert run is not None
    return stage.parts.store.samples(run.key, 0.0, 500)


def steps(stage: Stage) -> list[tuple[float, int]]:
    return [(point.at, point.pulse.step) for point in points(stage) if point.pulse.step is not None]


def longest_hole_s(told: list[tuple[float, int]]) -> float:
    return max(after - before for (before, _), (after, _) in pairwise(told))


@pytest.mark.parametrize("way", [STORED_ONLY, PUSHED])
def test_a_run_of_40_s_has_a_point_every_few_seconds(stage: Stage, way: str) -> None:
    play(stage, f"{SHORT} {way}", "wait until digits status=completed within=5min")
    told = steps(stage)
    assert len(told) >= 8
    assert longest_hole_s(told[:-1]) <= 6.0  # the last one is that of its end
    assert [step for _, step in told] == sorted(step for _, step in told)
    newest = stage.parts.store.find("digits")
    assert newest is not None
    assert newest.pulse is not None
    assert newest.pulse.step == 80


def test_an_agent_of_an_older_build_has_the_points_of_its_beats(stage: Stage) -> None:
    play(stage, f"{SHORT} {STORED_ONLY} carries=no", "wait until digits status=completed within=5min")
    assert 1 <= len(steps(stage)) <= 4


def killed_in_the_middle(stage: Stage) -> list[tuple[float, int]]:
    play(stage, "submit digits zones=a steps=400 rate=2 checkpoint=20", "wait 2min")
    before = len(steps(stage))
    for _ in range(4):
        play(stage, "supervisor kill", "supervisor start", "wait 20s")
    assert len(steps(stage)) > before
    return steps(stage)


def test_no_point_is_written_twice_by_a_supervisor_that_begins_anew(stage: Stage) -> None:
    told = killed_in_the_middle(stage)
    assert len({step for _, step in told}) == len(told)
    assert [step for _, step in told] == sorted(step for _, step in told)


def test_broken_times_by_the_look_instead_of_the_agents_count(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above is for: a point that comes again at another time is another point."""
    made = sampling.Sampler._points

    def by_the_look(*asked: object) -> list[Sample]:
        now = asked[-1]
        assert isinstance(now, float)
        return [
            Sample(one.key, now - n / 10, one.attempt, one.pulse, carried=one.carried)
            for n, one in enumerate(reversed(made(*asked)))  # type: ignore[arg-type]
        ]

    monkeypatch.setattr(sampling.Sampler, "_points", by_the_look)
    told = killed_in_the_middle(stage)
    assert len({step for _, step in told}) < len(told)
