"""When a tick lists stored beats, and whose may rest: only where a pushed beat says as much as a stored one would."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.contract.heartbeat import TRAINING, Beat
from supervisor.domain.policies import list_every_s
from supervisor.domain.run import Run, StopRequest
from supervisor.domain.status import Status
from supervisor.reconciler.observing.resting import Resting
from supervisor.reconciler.rotation import Rotation
from tests.lifecycle.sample_runs import NOW, attempt, open_try, run_in

AT = 5000.0
LIVE = attempt(training_at=NOW - 600.0)


def pushed(age_s: float = 5.0, launch_id: str = LIVE.launch_id) -> dict[str, tuple[Beat, float]]:
    beat = Beat("run-1", 1, launch_id, "m", "b", 7, TRAINING, "n")
    return {"run-1": (beat, AT - age_s)}


def running(**fields: Any) -> Run:
    return replace(run_in(Status.RUNNING, key=1, run_id="run-1", attempt=LIVE), **fields)


def resting(*runs: Run, listed_s: float = 60.0, **fields: Any) -> Resting:
    made = Resting(60.0, 30.0, dict(enumerate(runs)), **fields)
    made.listed(AT - listed_s)
    return made


def test_a_tick_rests_while_every_run_with_a_machine_is_heard() -> None:
    assert not resting(running()).needs_listing(pushed(), AT)
    assert not resting().needs_listing({}, AT), "without runs nothing needs a beat"
    assert resting(listed_s=600.0).needs_listing({}, AT), "but a store in trouble is noticed"
    assert not resting(run_in(Status.PENDING, attempt=None, try_=None)).needs_listing({}, AT)


@pytest.mark.parametrize(
    ("run", "beats"),
    [
        (running(), {}),
        (running(), pushed(age_s=61.0)),
        (running(), pushed(launch_id="1.9.9")),
        (running(status=Status.FINISHING), pushed()),
        (running(status=Status.STOPPING), pushed()),
        (running(attempt=replace(LIVE, ended_at=NOW)), pushed()),
        (running(try_=open_try(attempt_number=1), rival=open_try(attempt_number=2)), pushed()),
        (running(status=Status.WAITING, attempt=replace(LIVE, ended_at=NOW)), {}),
    ],
)
def test_one_run_that_is_not_heard_makes_the_tick_list(run: Run, beats: dict[str, tuple[Beat, float]]) -> None:
    made = resting(run)
    assert made.needs_listing(beats, AT)
    made.grant([run], beats, AT)
    assert not made.granted


def test_it_lists_now_and_then_after_a_restart_and_while_the_breaker_is_open() -> None:
    assert resting(running(), listed_s=list_every_s(60.0)).needs_listing(pushed(), AT)
    assert resting(running(), doubts=lambda: True).needs_listing(pushed(), AT)
    made = resting(running())
    made.grant([running()], pushed(), AT)
    assert (made.granted, made.granted_at) == ({"run-1": LIVE.launch_id}, AT)
    assert not made.needs_listing(pushed(), AT)
    made.doubt()
    assert made.needs_listing(pushed(), AT)
    made.listed(AT)
    made.restart()
    assert made.needs_listing(pushed(), AT)
    assert not made.granted


def test_what_an_agent_learns_from_the_baton_leaves_no_rest() -> None:
    made, stopping = resting(), running(stop=StopRequest("ops", NOW))
    made.grant([stopping], pushed(), AT)
    assert not made.granted
    drilled = running(drills=replace(running().drills, launch_id=LIVE.launch_id))
    made.grant([drilled], pushed(), AT)
    assert not made.granted


def test_a_slow_loop_grants_nothing() -> None:
    made = Resting(60.0, 90.0)
    made.grant([running()], pushed(), AT)
    assert not made.granted


@pytest.mark.parametrize("active", [1, 3, 7, 20, 33])
def test_each_marker_has_one_turn_in_a_round_where_turns_cost_money(active: int) -> None:
    rotation, keys = Rotation(30.0, 600.0), range(1, active + 1)
    turns = [key for _ in range(20) for key in rotation.next_keys(keys, sparing=True)]
    assert sorted(turns) == list(keys)
