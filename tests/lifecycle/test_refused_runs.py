"""A run that is refused for itself (a secret that cannot be read) waits alone: no zone cools, no other run waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.actions import Launch
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Offer
from supervisor.domain.observation import Absent, CreateFailed, Observation, Seen, World
from supervisor.domain.policies import Knobs
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from tests.lifecycle.sample_runs import NOW, open_try, run_in

TRY = open_try()
KNOBS = Knobs("the-supervisor", recovery_backoff_s=10.0, cooldown_min_s=180.0)
WORLD = World(KNOBS, offers={TRY.placement.provider: (Offer(TRY.placement, 0.1, 0.3),)})
WHY = "secret API_KEY: others can read it (mode 0644)"
OBS = Observation(machine=Absent(), beat=Absent(), baton=Absent(), stop=Absent())


def refused(number: int) -> CreateFailed:
    return CreateFailed(replace(TRY, number=number).launch_id, Cause.LAUNCH_REJECTED, WHY, of_run=True)


@pytest.mark.parametrize(("number", "pause_s"), [(1, 10.0), (2, 20.0), (5, 160.0), (6, 180.0), (500, 180.0)])
def test_it_waits_with_its_own_backoff_and_cools_no_offer(number: int, pause_s: float) -> None:
    run = run_in(Status.LAUNCHING, try_=replace(TRY, number=number))
    decision = decide(run, replace(OBS, create=Seen(refused(number))), WORLD, NOW)
    assert decision.lessons == ()
    assert (decision.run.status, decision.run.cause) == (Status.WAITING, Cause.LAUNCH_REJECTED)
    assert decision.run.detail == WHY
    assert decision.run.next_at == NOW + pause_s
    assert decision.check_after is not None
    assert decision.check_after <= NOW + pause_s
    assert decision.events[0].kind == "try_failed"
    assert WHY in decision.events[0].text
    assert decision.run.try_ is not None
    assert decision.run.try_.outcome == Cause.LAUNCH_REJECTED


def test_it_retries_when_its_backoff_is_over_and_not_before() -> None:
    run = decide(run_in(Status.LAUNCHING, try_=TRY), replace(OBS, create=Seen(refused(1))), WORLD, NOW).run
    early = decide(run, OBS, WORLD, NOW + 9)
    assert early.run.status == Status.WAITING
    assert early.actions == ()
    again = decide(run, OBS, WORLD, NOW + 10)
    assert again.run.status == Status.LAUNCHING
    assert [type(action) for action in again.actions] == [Launch]


def test_it_gives_up_at_the_limit_of_the_wait_with_its_own_reason() -> None:
    run = run_in(Status.LAUNCHING, try_=TRY)
    waiting = decide(run, replace(OBS, create=Seen(refused(1))), WORLD, NOW).run
    limit_s = waiting.policy.limits.wait_for_capacity_s
    over = decide(waiting, OBS, WORLD, NOW + limit_s + 1)
    assert (over.run.status, over.run.cause) == (Status.FAILED, Cause.LAUNCH_REJECTED)
