"""A launch that was called off by a stop teaches nothing of its zone: the next run asks there at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.observation import Absent, CreateFailed, Observation, Seen
from supervisor.domain.placement import offer_key
from supervisor.domain.policies import Knobs
from supervisor.domain.run import StopRequest
from supervisor.domain.status import Status
from supervisor.domain.world import World
from supervisor.lifecycle.decide import decide
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
