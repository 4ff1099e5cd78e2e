"""All of the data set, in one call."""

from __future__ import annotations

from tests.dashboard.dataset.house import House
from tests.dashboard.dataset.runs_ended import ended_runs
from tests.dashboard.dataset.runs_live import live_runs

RUNS = 30


def fill(house: House) -> None:
    live_runs(house)
    ended_runs(house)
    stories = list(house.told.values())
    assert len(stories) == RUNS, len(stories)
    house.write(stories)
