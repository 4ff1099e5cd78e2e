"""Times that only a wrong clock can have written, and the agent's own clock."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

import pytest

from supervisor.domain.attempt import Pulse, Retiring, billed_h, training_s
from supervisor.domain.machines import MachineRef
from supervisor.domain.run import Person, Waiting
from supervisor.domain.status import Status
from supervisor.lifecycle.living.beats import with_agent_clock
from supervisor.lifecycle.living.clock_steps import righted
from tests.lifecycle.sample_runs import NOW, WORLD, H, attempt, run_in

KEPT = Retiring(MachineRef("gce", "us-east1-c", "m"), "1.4.1", NOW - 100, NOW + H, "kept")


def test_plausible_times_are_kept() -> None:
    run = run_in(Status.WAITING, waiting=Waiting(since=NOW), next_at=NOW + 1800, retiring=(KEPT,), kept_until=NOW + H)
    run = replace(run, policy=replace(run.policy, keep_s=H))
    assert righted(run, WORLD, NOW) is run
    assert righted(run, WORLD, NOW - 50) is run, "a replica's clock may be behind a little"


@pytest.mark.parametrize("name", ["status_since", "waiting.since", "person.since", "person.reminded_at", "down_since"])
def test_a_start_ahead_of_now_counts_from_now(name: str) -> None:
    group, _, inner = name.rpartition(".")
    made = {"waiting": Waiting, "person": Person}
    ahead = {group: made[group](**{inner: NOW + H})} if group else {name: NOW + H}
    assert attrgetter(name)(righted(run_in(Status.WAITING, **ahead), WORLD, NOW)) == NOW


def test_a_pause_longer_than_any_of_its_kind_is_over() -> None:
    far = replace(KEPT, until=NOW + 30 * 24 * H)
    run = righted(run_in(Status.WAITING, next_at=NOW + 24 * H, retiring=(far,), kept_until=far.until), WORLD, NOW)
    assert (run.next_at, run.retiring[0].until, run.kept_until) == (NOW, NOW, NOW)


def test_a_pause_that_began_ahead_of_now_keeps_its_length() -> None:
    wrong = replace(KEPT, since=NOW + H, until=NOW + 2 * H)
    run = run_in(Status.FAILED, retiring=(wrong,), kept_until=wrong.until)
    run = righted(replace(run, policy=replace(run.policy, keep_s=H)), WORLD, NOW)
    assert (run.retiring[0].since, run.retiring[0].until) == (NOW, NOW + H)


def beat_at(at: float, up_s: float) -> Pulse:
    return Pulse("1.4.1", sequence=9, phase="training", beat_at=at, up_s=up_s)


@pytest.mark.parametrize("step_s", [0.0, H, -H, 24 * H])
def test_a_step_of_our_clock_is_neither_trained_nor_billed(step_s: float) -> None:
    began = attempt(started_at=NOW, training_at=NOW + 60)
    before, after = beat_at(NOW + 100, 70.0), beat_at(NOW + step_s + 1000, 970.0)
    clocked = with_agent_clock(with_agent_clock(began, None, before, 1500.0), before, after, 1500.0)
    assert (training_s(clocked, after.beat_at), billed_h(clocked, after.beat_at)) == (940.0, 1000 / H)


def test_a_restarted_agent_is_no_step() -> None:
    began = attempt(started_at=NOW, training_at=NOW + 60)
    before, after = beat_at(NOW + 5000, 4970.0), beat_at(NOW + 6000, 10.0)
    clocked = with_agent_clock(with_agent_clock(began, None, before, 1500.0), before, after, 1500.0)
    assert billed_h(clocked, NOW + 6000) == 6000 / H
