"""A launch that was called off by a stop teaches nothing of its zone: the next run asks there at once. What a launch
waited for is over once it has its machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineState, offer_key
from supervisor.domain.observation import NOT_READ, Absent, CreateFailed, Observation, Seen, World
from supervisor.domain.policies import Knobs
from supervisor.domain.run import StopRequest
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.wording.run import status_text
from tests.lifecycle.sample_runs import NOW, open_try, run_in

WORLD = World(Knobs("the-supervisor"))
TRY = open_try()
CALLED_OFF = CreateFailed(TRY.launch_id, Cause.LAUNCH_REJECTED, "stopped before the machine was asked for")
OBS = Observation(machine=Absent(), beat=Absent(), baton=Absent(), stop=Absent(), create=Seen(CALLED_OFF))


@pytest.mark.parametrize("source", ["api", "marker"])
def test_it_ends_as_a_stop_and_cools_no_zone(source: str) -> None:
    run = run_in(Status.LAUNCHING, try_=TRY)
    obs = OBS
    if source == "api":
        run = replace(run, stop=StopRequest("somebody", NOW))
    else:
        obs = replace(obs, stop=Seen("17"))
    lessons, kinds = [], []
    for _ in range(6):
        decision = decide(run, obs, WORLD, NOW)
        run, lessons = decision.run, [*lessons, *decision.lessons]
        kinds += [event.kind for event in decision.events]
        if not decision.again:
            break
    assert run.status == Status.STOPPED
    assert lessons == []
    assert "try_failed" not in kinds
    assert run.try_ is not None
    assert run.try_.outcome == Cause.STOP_REQUESTED


def test_without_a_stop_the_refusal_is_the_zones() -> None:
    decision = decide(run_in(Status.LAUNCHING, try_=TRY), OBS, WORLD, NOW)
    assert [key for key, _ in decision.lessons] == [offer_key(TRY.placement)]


def test_a_machine_that_was_obtained_is_not_looked_for_any_more() -> None:
    where = (TRY.machine_name, "us-east1-c", MachineState.ASKED, "the-supervisor", "digits-7", TRY.launch_id)
    asked = Machine("", *where)
    now = TRY.requested_at + 120
    looking = decide(run_in(Status.LAUNCHING, try_=TRY), replace(OBS, create=NOT_READ, machine=Seen(asked)), WORLD, now)
    assert "looking for capacity" in status_text(looking.run, now)
    up = replace(asked, state=MachineState.UP, machine_id="17")
    obtained = decide(looking.run, replace(OBS, create=NOT_READ, machine=Seen(up)), WORLD, now)
    assert obtained.run.live_attempt is not None
    assert "looking for capacity" not in status_text(obtained.run, now)
