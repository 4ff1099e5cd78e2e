"""A machine may outlive the run's move to the next one: it bills until it is gone, and its last checkpoint counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.attempt import Retiring, kept_step
from supervisor.domain.causes import Cause
from supervisor.domain.observation import Absent, Observation, Seen, Unknown
from supervisor.domain.run import Counters, Money, run_cost_usd, run_on_demand_usd
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import _earlier, decide
from supervisor.lifecycle.ending.retiring import retire
from supervisor.lifecycle.phases.beginning import begin_attempt
from tests.lifecycle.sample_runs import NOW, WORLD, H, attempt, ended, machine_of, open_try, run_in


def moved_on():
    """A preempted machine still has a minute left while the next attempt starts elsewhere."""
    old = ended(Cause.PREEMPTED, H, gone_at=None, price_usd_per_h=3.6, on_demand_usd_per_h=7.2)
    leaving = Retiring(old.ref, old.launch_id, NOW, NOW + 60)
    run = run_in(Status.LAUNCHING, attempt=old, retiring=(leaving,), money=Money(cost_usd=3.6, on_demand_usd=7.2))
    return begin_attempt(run, open_try(attempt_number=5), "m5", NOW + 10), old


def test_the_next_attempt_leaves_the_old_one_with_its_machine():
    run, old = moved_on()
    assert run.attempt is not None
    assert run.attempt.number == 5
    assert [item.attempt for item in run.retiring] == [old]


def test_an_earlier_machine_bills_until_it_is_known_to_be_gone():
    run, old = moved_on()
    retired = retire(run, Observation(retiring=(Absent(),)), NOW + 100)
    assert retired.parted == (replace(old, gone_at=NOW + 100),)
    assert retired.run.attempt == run.attempt
    assert retired.run.retiring == ()
    assert retired.run.money.cost_usd == pytest.approx(3.7)
    assert retired.run.money.on_demand_usd == pytest.approx(7.4)


def test_the_cost_of_a_run_grows_with_its_machines_and_does_not_jump_when_they_are_gone():
    """Broken variant: a machine that waits for a person's approval costs nothing until it is released."""
    run, old = moved_on()
    run = replace(run, attempt=None)
    assert run_cost_usd(run, NOW) == pytest.approx(3.6)
    assert run_cost_usd(run, NOW + 100) == pytest.approx(3.7)
    assert run_on_demand_usd(run, NOW + 100) == pytest.approx(7.4)
    retired = retire(run, Observation(retiring=(Absent(),)), NOW + 100).run
    assert run_cost_usd(retired, NOW + 100) == run_cost_usd(retired, NOW + 9000) == pytest.approx(3.7)
    own = run_in(Status.AWAITING_TEARDOWN, attempt=old, retiring=run.retiring, money=Money(cost_usd=3.6))
    assert run_cost_usd(own, NOW + H) == pytest.approx(7.2)
    stopped = replace(own, attempt=replace(old, stopped_at=NOW + 10))
    assert run_cost_usd(stopped, NOW + H) == pytest.approx(3.6)


def test_the_own_attempts_machine_is_written_with_the_run_and_not_beside_it():
    old = ended(Cause.ORPHANED, H, gone_at=None)
    run = run_in(Status.RECOVERING, attempt=old, retiring=(Retiring(old.ref, old.launch_id, NOW, NOW),))
    retired = retire(run, Observation(retiring=(Absent(),)), NOW + 5)
    assert retired.run.attempt == replace(old, gone_at=NOW + 5)
    assert _earlier(retired, retired.run) == ()


def test_a_machine_that_is_gone_when_the_next_one_is_there_is_not_forgotten():
    """Broken variant: only attempts that the run had already left behind are written."""
    old = ended(Cause.PREEMPTED, H, gone_at=None)
    call = replace(open_try(attempt_number=5), launch_id="1.5.1", machine_name="m-a5")
    run = run_in(
        Status.LAUNCHING,
        attempt=old,
        try_=call,
        retiring=(Retiring(old.ref, old.launch_id, NOW, NOW),),
        counters=Counters(attempts=4, tries=5),
    )
    obs = Observation(machine=Seen(machine_of(call)), beat=Absent(), retiring=(Absent(),))
    decision = decide(run, obs, WORLD, NOW + 5)
    assert decision.run.attempt is not None
    assert decision.run.attempt.number == 5
    assert decision.parted == (replace(old, gone_at=NOW + 5),)


def test_nothing_is_gone_that_could_not_be_read():
    run, _ = moved_on()
    retired = retire(run, Observation(retiring=(Unknown("not read"),)), NOW + 30)
    assert (retired.run, retired.parted) == (run, ())


@pytest.mark.parametrize(
    ("kept", "begins_at", "generation", "expected"),
    [
        (8000, 8120, 1, 8120),  # saved within the notice, after the attempt was over
        (8000, 8000, 1, 8000),
        (None, 8120, 1, 8120),
        (8000, None, 1, 8000),  # the next one has not begun
        (8000, 7000, 1, 8000),  # the newest one did not verify, so the one before was used
        (8000, 8120, 2, 8000),  # a resume: a user may have put a checkpoint there
        (None, None, 1, None),
    ],
)
def test_what_an_attempt_kept_is_proven_by_where_the_next_one_begins(kept, begins_at, generation, expected):
    old = ended(Cause.PREEMPTED, H, step_from=100, step_kept=kept)
    assert kept_step(old, attempt(5, step_from=begins_at, generation=generation)) == expected


def test_an_attempt_that_kept_nothing_does_not_own_the_checkpoint_of_the_one_before():
    old = ended(Cause.ORPHANED, H, step_from=100, step_kept=None)
    assert kept_step(old, attempt(5, step_from=100)) is None
    assert kept_step(old, None) is None
