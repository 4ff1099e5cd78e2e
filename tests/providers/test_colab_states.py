"""What a sighting of a session means: before its claim, while it works, when it is silent, near its cap."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineState
from supervisor.ports.claims import Claim
from supervisor.providers.colab.kept import Kept
from supervisor.providers.colab.states import SILENT_S, Sighting, machine_of, needs

NOW, CAP_S = 1_790_000_000.0, 43200.0
CELL = Kept("m-a1", "cell", "t4", True, "sup", "digits", "1.1.1", NOW - 30)
CLIENT = replace(CELL, way="client")


def claim(age_s: float, silent_s: float = 1.0) -> Claim:
    return Claim("digits", "1.1.1", "n0te", {"platform": "colab"}, NOW - age_s, NOW - silent_s)


def seen(kept: Kept, claimed: Claim | None = None, listed: bool | None = None, watched_s: float = 1e6) -> Sighting:
    return Sighting(kept, claimed, listed, NOW - watched_s)


def test_a_cell_that_nobody_has_pasted_waits_for_its_person() -> None:
    machine = machine_of(seen(CELL), CAP_S, NOW)
    assert machine is not None
    assert (machine.state, machine.queued, machine.machine_id) == (MachineState.ASKED, True, "")
    assert machine.needs == "open a Colab notebook with a T4 and run cell 1: `spot cell digits`"


def test_a_session_of_the_client_needs_nobody() -> None:
    assert needs(CLIENT) == ""
    asked, started = machine_of(seen(CLIENT), CAP_S, NOW), replace(CLIENT, started_at=NOW - 20)
    assert asked is not None
    assert (asked.state, asked.needs, asked.queued) == (MachineState.ASKED, "", False)
    begins = machine_of(seen(started, listed=True), CAP_S, NOW)
    assert begins is not None
    assert begins.state is MachineState.STARTING
    assert machine_of(seen(started, listed=False), CAP_S, NOW) is None, "it never claimed, and Colab has it no more"
    unread = machine_of(seen(started, listed=None), CAP_S, NOW)
    assert unread is not None, "an answer that says nothing ends nothing"


def test_a_claim_is_the_machine() -> None:
    machine = machine_of(seen(CELL, claim(600)), CAP_S, NOW)
    assert machine is not None
    assert (machine.state, machine.machine_id, machine.created_at) == (MachineState.UP, "n0te", NOW - 600)
    assert (machine.doubt, machine.needs, machine.record) == (None, "", None)


@pytest.mark.parametrize(
    ("age_s", "cause"),
    [
        (600.0, Cause.PREEMPTED),
        (0.89 * CAP_S, Cause.PREEMPTED),
        (0.91 * CAP_S, Cause.TIME_LIMIT),
        (2 * CAP_S, Cause.TIME_LIMIT),
    ],
)
@pytest.mark.parametrize("listed", [False, None])
def test_a_silent_session_is_doubted_by_its_age(age_s: float, cause: Cause, listed: bool | None) -> None:
    kept = CELL if listed is None else replace(CLIENT, started_at=NOW - age_s)
    machine = machine_of(seen(kept, claim(age_s, SILENT_S + 1), listed), CAP_S, NOW)
    assert machine is not None
    assert machine.state is MachineState.UP, "its end counts only where its beats are missing too"
    assert machine.doubt is not None
    assert machine.doubt.cause is cause


@pytest.mark.parametrize(
    "sighting",
    [
        seen(CELL, claim(600, SILENT_S - 1)),
        seen(replace(CLIENT, started_at=1.0), claim(600, 1e5), listed=True),
        seen(CELL, claim(6000, 6000), watched_s=SILENT_S - 1),
    ],
    ids=["two beats are not missing yet", "the client lists it", "we were away ourselves"],
)
def test_nothing_is_doubted_where(sighting: Sighting) -> None:
    machine = machine_of(sighting, CAP_S, NOW)
    assert machine is not None
    assert machine.doubt is None


@given(st.floats(0, 2e5), st.floats(0, 2e5), st.sampled_from([True, False, None]), st.booleans())
def test_less_knowledge_ends_nothing_more(age_s: float, silent_s: float, listed: bool | None, is_client: bool) -> None:
    """A list that could not be read never turns a machine into a doubt that the read list had not."""
    kept = replace(CLIENT, started_at=NOW - age_s) if is_client else CELL
    read = machine_of(seen(kept, claim(age_s, min(silent_s, age_s)), listed), CAP_S, NOW)
    unread = machine_of(seen(kept, claim(age_s, min(silent_s, age_s)), None), CAP_S, NOW)
    assert read is not None
    assert unread is not None
    if listed is False:
        assert unread.doubt is None or read.doubt is not None


def test_the_machine_has_the_ids_of_its_notebook_alone() -> None:
    sighting = seen(CELL, claim(600))
    assert all(map(sighting.has_id, (None, "", "n0te")))
    assert not sighting.has_id("n0te9")
    assert not seen(CELL).has_id("n0te")
