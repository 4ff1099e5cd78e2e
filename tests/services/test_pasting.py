"""The cell of a run that waits for its person: who gets it, for how long it is good, and when there is none."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.domain.attempt import Try
from supervisor.domain.errors import NothingToPaste, Unavailable
from supervisor.domain.run import Person, StopRequest
from supervisor.domain.status import Status
from supervisor.ports.claims import Cell
from supervisor.ports.provider import LaunchRequest, NotSupported, ProviderUnavailable
from supervisor.services.runs.pasting import notebook_cell
from tests.services.bed import PLACE, Bed, Client

NEEDS = "open a notebook and run cell 1"
TICKET_S = 900.0


def waits_for_notebook(bed: Bed, run_id: str = "digits-7", **fields: Any) -> list[LaunchRequest]:
    """The requests for its cell, from now on."""
    bed.submit(run_id)
    now, asked = bed.clock.now(), []

    def cell(request: LaunchRequest) -> Cell:
        asked.append(request)
        text = 'ticket = "1f3c"  # claims the job\n'
        return Cell(text, now + TICKET_S, '{"cells": []}', "https://example.com/new", "a T4 GPU")

    bed.provider.cell = cell  # type: ignore[attr-defined]
    try_ = Try(1, 1, "1.1.1", "m-a1", PLACE, now, 0.1, 0.3)
    bed.change(run_id, **{"status": Status.LAUNCHING, "try_": try_, "person": Person(NEEDS, now), **fields})
    return asked


def test_it_is_made_for_the_launch_that_waits(bed: Bed) -> None:
    asked, client = waits_for_notebook(bed), Client(bed.services)
    shown = client.get("/v1/runs/digits-7/cell").json()
    assert (shown["run_id"], shown["launch_id"], shown["wanted"]) == ("digits-7", "1.1.1", "a T4 GPU")
    assert shown["cell"].startswith("ticket")
    assert (asked[0].name, asked[0].placement, asked[0].supervisor_id) == ("m-a1", PLACE, bed.store.supervisor_id)
    assert client.get("/v1/runs/digits-7").json()["needs_person"] == NEEDS


@pytest.mark.parametrize(
    "fields", [{"status": Status.WAITING}, {"stop": StopRequest("ops", 1.0)}, {"try_": None}], ids=str
)
def test_a_run_that_does_not_wait_for_it_has_none(bed: Bed, fields: dict[str, Any]) -> None:
    asked = waits_for_notebook(bed, **fields)
    with pytest.raises(NothingToPaste, match="waits for no notebook"):
        notebook_cell(bed.parts, "digits-7")
    assert asked == [], "no ticket is made for it"


def test_a_machine_that_nobody_starts_has_none(bed: Bed) -> None:
    waits_for_notebook(bed)
    del bed.provider.cell  # type: ignore[attr-defined]
    with pytest.raises(NothingToPaste, match="no person starts machines of local"):
        notebook_cell(bed.parts, "digits-7")


@pytest.mark.parametrize(
    ("error", "refusal"),
    [(NotSupported("it starts by itself"), NothingToPaste), (ProviderUnavailable("no store"), Unavailable)],
)
def test_what_the_provider_says(bed: Bed, error: Exception, refusal: type[Exception]) -> None:
    waits_for_notebook(bed)

    def fails(request: LaunchRequest) -> Cell:
        raise error

    bed.provider.cell = fails  # type: ignore[attr-defined]
    with pytest.raises(refusal, match=str(error)):
        notebook_cell(bed.parts, "digits-7")
