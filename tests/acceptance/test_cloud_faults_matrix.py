"""Every call of an insert and after it x every bad answer: never two machines of a run, none left, no untrue word.

The real loop and provider over HTTP in virtual time (cloud_matrix.py); each cell is one run. `make campaign` plays all
cells; `make test` each answer to each call, with the courses in turn.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from supervisor.domain.machines import Machine
from supervisor.ports.provider import LaunchRequest
from supervisor.providers.gce.calls import retry
from supervisor.providers.gce.calls.errors import ApiError, failure_of_request
from supervisor.providers.gce.machines.launching import Launcher
from tests.acceptance.cloud_matrix import ANSWERS, CALLS, OF_ALL, Cell, MatrixHouse, cells, matrix_house
from tests.properties import is_campaign

AT_ONCE, PAUSE_S, WINDOW_S = 9, 20.0, 75.0
RESTART_EACH = 5  # batches: a new process of the supervisor remembers nothing
MOST_S = 3600.0


@pytest.fixture(autouse=True)
def few_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault outlasts them either way, and they are most of the requests."""
    monkeypatch.setattr(retry, "TRIES", 2)


def play(house: MatrixHouse, chosen: list[Cell]) -> None:
    batches = [chosen[start : start + AT_ONCE] for start in range(0, len(chosen), AT_ONCE)]
    pause_s = PAUSE_S
    if chosen[0].call in OF_ALL:
        batches = [list(group) for _, group in groupby(chosen, lambda cell: (cell.call, cell.answer))]
        pause_s = WINDOW_S
    for number, batch in enumerate(batches):
        house.window = batch if batch[0].call in OF_ALL else []
        for cell in batch:
            house.begin(cell)
        house.run_for(pause_s)
        if number % RESTART_EACH == RESTART_EACH - 1:
            house.kill()
            house.start()
    house.window = []
    end = house.clock.now() + MOST_S
    while not house.over(chosen) and house.clock.now() < end:
        house.run_for(30.0)


def tried(call: str) -> list[Cell]:
    every, courses = cells(call), len(CALLS[call])
    return every if is_campaign() else [every[at + at // courses % courses] for at in range(0, len(every), courses)]


@pytest.mark.parametrize("call", CALLS)
def test_every_bad_answer_to(folder: Path, call: str) -> None:
    chosen = tried(call)
    with matrix_house(folder, chosen) as house:
        play(house, chosen)
        assert list(house.twins.values()) == []
        assert list(house.untrue.values()) == []
        assert [str(cell) for cell in chosen if not house.over([cell])] == []
        assert [str(cell) for cell in chosen if cell.hits == 0] == []
        assert house.compute.names() == []
        assert house.faults.seen == []


def test_the_matrix_has_all_its_cells() -> None:
    assert sum(len(courses) for courses in CALLS.values()) * len(ANSWERS) >= 400
    for call, courses in CALLS.items():
        assert {cell.answer for cell in tried(call)} == set(ANSWERS)
        assert {cell.course for cell in tried(call)} == set(courses)


def test_a_poll_that_is_taken_for_the_insert_s_own_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The matrix bites: one `except` for the insert and the poll of its operation."""

    def unread(self: Launcher, request: LaunchRequest, error: ApiError) -> Machine:
        raise failure_of_request(error, request.placement.region) from error

    monkeypatch.setattr(Launcher, "_unread", unread)
    chosen = [cell for cell in cells("poll") if cell.answer in ("400", "403", "404")]
    with matrix_house(folder, chosen) as house:
        play(house, chosen)
        assert len(house.twins) >= 6
        assert house.untrue != {}
