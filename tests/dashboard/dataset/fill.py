"""All of the data set, in one call."""

from __future__ import annotations

from tests.dashboard.dataset import around
from tests.dashboard.dataset.files import put_files
from tests.dashboard.dataset.house import House
from tests.dashboard.dataset.runs_ended import ended_runs
from tests.dashboard.dataset.runs_live import live_runs

RUNS = 30


def fill(house: House) -> None:
    live_runs(house)
    ended_runs(house)
    stories = list(house.told.values())
    assert len(stories) == RUNS, len(stories)
    house.token = around.put_tokens(house)
    around.put_webhooks(house)
    house.write(stories, around.house_events(house))
    for story in stories:
        put_files(house, story)
    around.put_zones(house)
    around.put_machines(house, stories)
    around.deliver(house)
