"""The replay of 2,104 measured rounds with the production choice of zones: its targets, and rules without memory."""

from __future__ import annotations

import pytest

from supervisor.lifecycle.offers import lessons, ranking
from tools.policy import relocations


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
