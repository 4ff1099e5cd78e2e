"""The replay of 2,104 measured rounds with the production choice of zones, and of races: targets, and broken rules."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.lifecycle.offers import lessons, ranking
from supervisor.lifecycle.phases import racing
from tools.policy import races, relocations


def test_the_targets_of_the_replay_are_met() -> None:
    lines, missed = relocations.report()
    assert missed == []
    assert [line.partition(",")[0] for line in lines] == ["3 zones of us-central1", "8 zones of us"]


@pytest.mark.parametrize("broken", ["no rank", "no measured return"])
def test_a_choice_without_memory_misses_them(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variants: zones in the order of the settings; cool-downs that only double."""
    if broken == "no rank":
        monkeypatch.setattr(ranking, "cost_of", lambda *_: 1.0)
    else:
        monkeypatch.setattr(lessons, "return_s", lambda *_: None)
    assert relocations.report()[1] != []


def test_a_race_halves_the_wait_where_capacity_is_scarce() -> None:
    assert races.report(("us-east",), seeds=1)[1] == []


def test_a_race_that_leaves_two_zones_cooling_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant: the second request teaches what the first one does, and only zones that do not cool are asked."""
    every = racing.queue
    monkeypatch.setattr(racing, "queue", lambda *of: [item for item in every(*of) if item[1] is None])

    def as_any(*of: Any, is_second: bool) -> lessons.Lessons:
        assert is_second in (True, False)
        return lessons.lessons_of(*of)

    monkeypatch.setattr(relocations, "lessons_of", as_any)
    missed = [line.rpartition(" by ")[0] for line in races.report(("us-east",), seeds=1)[1]]
    assert missed == ["a race in us-east changes the median wait", "a race in us-east changes the mean wait"]
