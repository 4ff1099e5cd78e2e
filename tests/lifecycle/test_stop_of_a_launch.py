"""A launch that a stop has canceled teaches nothing about its zone: the next run requests there at once. What a launch
waited for is over once it has its machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.actions import Release
from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineState, offer_key
from supervisor.domain.observation import NOT_READ, Absent, CreateFailed, Observation, Seen, Unknown
from supervisor.domain.run import StopRequest
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.wording.run import status_text
from tests.lifecycle.sample_runs import NOW, WORLD, machine_of, open_try, run_in

TRY = open_try()
CANCELED = CreateFailed(TRY.launch_id, Cause.LAUNCH_REJECTED, "stopped before the machine was requested")
OBS = Observation(machine=Absent(), beat=Absent(), baton=Absent(), stop=Absent(), create=Seen(CANCELED))


@pytest.mark.parametrize("source", ["api", "marker"])
def test_it_ends_as_a_stop_and_cools_no_zone(source: str) -> None:
    run = run_in(Status.LAUNCHING, try_=TRY)
    obs = OBS
    if source == "api":
        run = replace(run, stop=StopRequest("ops", NOW))
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


def test_no_search_for_a_machine_that_was_obtained() -> None:
    pending = machine_of(TRY, machine_id="", state=MachineState.ASKED)
    now = TRY.requested_at + 120
    waits = decide(run_in(Status.LAUNCHING, try_=TRY), replace(OBS, create=NOT_READ, machine=Seen(pending)), WORLD, now)
    assert "looking for capacity" in status_text(waits.run, now)
    up = replace(pending, state=MachineState.UP, machine_id="17")
    obtained = decide(waits.run, replace(OBS, create=NOT_READ, machine=Seen(up)), WORLD, now)
    assert obtained.run.live_attempt is not None
    assert "looking for capacity" not in status_text(obtained.run, now)


def test_a_request_is_canceled_only_when_the_baton_could_be_read() -> None:
    """It may say that the work is done; a stop does not win over that."""
    run = run_in(Status.STOPPING, try_=TRY, stop=StopRequest("ops", NOW))
    asked = replace(OBS, create=NOT_READ, machine=Seen(machine_of(TRY, machine_id="", state=MachineState.ASKED)))
    assert decide(run, replace(asked, baton=Unknown("the store is away")), WORLD, NOW).actions == ()
    (release,) = decide(run, asked, WORLD, NOW).actions
    assert isinstance(release, Release)
