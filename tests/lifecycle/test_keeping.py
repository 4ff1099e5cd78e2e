"""`keep: machine`, rule by rule: what happens to the machine of an ended attempt, and to the attempt after it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.actions import Launch, Release, SwitchOff
from supervisor.domain.attempt import Kept, Retiring
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.machines import MachineState, Offer
from supervisor.domain.observation import NOT_READ, Absent, CreateFailed, Observation, Seen, Unknown
from supervisor.domain.policies import KeepRule, Policy
from supervisor.domain.run import Run, run_cost_usd
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.ending.keeping import with_kept
from supervisor.lifecycle.ending.retiring import retire
from supervisor.wording.forecast import kept_machine_text
from supervisor.wording.run import status_text
from tests.lifecycle.sample_runs import NOW, WORLD, H, ended, machine_of, place, run_in

KEEPS = Policy(zones=("us-east1-c", "us-east1-b"), shapes=("g2-standard-8",), keep=KeepRule(True))
OFFERS = tuple(Offer(place(zone), 0.5, 1.0, off_usd_per_h=0.01) for zone in KEEPS.zones)
PLACES = replace(WORLD, offers={"gce": OFFERS})


def kept_run(status: Status = Status.RECOVERING, policy: Policy = KEEPS, **kept: object) -> Run:
    """Its machine in us-east1-c is kept, and off since ten seconds."""
    last = ended(Cause.PREEMPTED, H, gone_at=None, stopped_at=NOW - 10, off_usd_per_h=0.01)
    fields = {"off_by": NOW - 10, "off_at": NOW - 10, "usd_per_h": 0.01, **kept}
    item = Retiring(last.ref, last.launch_id, NOW - 10, NOW + 12 * H, kept=Kept(last.placement, **fields))  # type: ignore[arg-type]
    return run_in(status, attempt=last, retiring=(item,), policy=policy, cause=Cause.PREEMPTED)


def seen(run: Run, state: MachineState, **fields: object) -> Observation:
    assert run.attempt is not None
    machine = machine_of(run.attempt, state=state, **fields)
    return Observation(retiring=(Seen(machine),), beat=Absent(), stop=Absent(), baton=Absent())


OFF, UP = MachineState.ENDED, MachineState.UP


@pytest.mark.parametrize("cause", list(Cause))
def test_a_machine_is_kept_only_where_another_one_would_be_no_better(cause: Cause) -> None:
    last = ended(cause, H, gone_at=None)
    item = Retiring(last.ref, last.launch_id, NOW, NOW + 150)
    kept = with_kept(item, KEEPS.keep, last, freed=False, now=NOW)
    never = {
        Cause.DISK_FULL,
        Cause.HOST_OOM,
        Cause.GPU_FAULT,
        Cause.GPU_UNAVAILABLE,
        Cause.BOOT_TIMEOUT,
        Cause.AGENT_LOST,
    }
    if cause in never | {Cause.BUDGET, Cause.ORPHANED, Cause.IMAGE_ERROR}:
        assert kept == item
    if cause in (
        Cause.PREEMPTED,
        Cause.HOST_ERROR,
        Cause.EXPIRED,
        Cause.USER_ERROR,
        Cause.FINISHED,
        Cause.STOP_REQUESTED,
    ):
        assert kept.kept is not None
        assert kept.kept.off_by == NOW + 150
        assert kept.until == NOW + 12 * H
    assert with_kept(item, KeepRule(), last, freed=True, now=NOW) == item


def test_a_machine_that_ended_for_an_unknown_reason_is_kept_only_where_it_has_worked() -> None:
    """Broken variant: a machine whose container never starts is started again until the run gives up."""
    for running_at in (None, NOW - 60):
        last = ended(Cause.UNKNOWN, H, gone_at=None, running_at=running_at)
        item = Retiring(last.ref, last.launch_id, NOW, NOW)
        assert (with_kept(item, KEEPS.keep, last, freed=False, now=NOW).kept is not None) is (running_at is not None)


def test_a_full_disk_that_was_freed_is_as_good_as_before() -> None:
    last = ended(Cause.DISK_FULL, H, gone_at=None)
    item = Retiring(last.ref, last.launch_id, NOW, NOW)
    assert with_kept(item, KEEPS.keep, last, freed=True, now=NOW).kept is not None


def test_the_next_attempt_is_a_try_of_its_own_on_the_same_machine() -> None:
    run = kept_run()
    decision = decide(run, seen(run, OFF), PLACES, NOW)
    [launch] = [action for action in decision.actions if isinstance(action, Launch)]
    assert run.attempt is not None
    assert (launch.try_.machine_name, launch.try_.launch_id) == (run.attempt.machine_name, "1.1.1")
    assert launch.holder_gone, "it is off: nobody else can write"
    assert launch.try_.on is not None
    assert decision.run.retiring == ()
    assert decision.run.money.cost_usd == pytest.approx(0.01 * 10 / H)


@pytest.mark.parametrize("part", [Unknown("503"), NOT_READ])
def test_a_machine_that_cannot_be_read_is_neither_started_nor_replaced(part: object) -> None:
    run = kept_run(refused_at=NOW - 2 * H)  # its time to be started is over as well
    obs = replace(seen(run, OFF), retiring=(part,))
    for wait in ("wait", "new"):
        policy = replace(KEEPS, keep=replace(KEEPS.keep, fallback=wait))
        decision = decide(replace(run, policy=policy), obs, PLACES, NOW)
        assert not decision.actions
        assert not isinstance(decision.run.try_, Launch)
    late = decide(replace(run, retiring=(replace(run.retiring[0], until=NOW - 1),)), obs, PLACES, NOW)
    assert not [action for action in late.actions if isinstance(action, Release | SwitchOff | Launch)]


def test_while_it_is_not_off_nothing_is_started_and_it_is_switched_off_when_that_is_due() -> None:
    """Broken variant: a machine that still runs counts as one that may be started again."""
    run = kept_run(off_by=NOW + 60, off_at=None)
    waiting = decide(run, seen(run, UP), PLACES, NOW)
    assert not waiting.actions
    assert "is not off yet" in waiting.run.hold
    due = decide(run, seen(run, UP), PLACES, NOW + 61)
    assert [type(action) for action in due.actions] == [SwitchOff]
    ending = decide(run, seen(run, MachineState.ENDING), PLACES, NOW + 61)
    assert not ending.actions, "it is on its way"


def test_a_machine_that_somebody_started_is_switched_off_again_and_never_adopted() -> None:
    for status in (Status.RECOVERING, Status.STOPPED):
        run = kept_run(status)
        obs = replace(seen(run, UP), finalised=Seen(True))
        decision = decide(run, obs, PLACES, NOW)
        assert SwitchOff in {type(action) for action in decision.actions}
        assert decision.run.live_attempt is None


def test_its_time_ends_in_every_status_and_it_is_deleted_before_anything_else_starts() -> None:
    run = kept_run(Status.RECOVERING)
    late = replace(run, retiring=(replace(run.retiring[0], until=NOW),))
    decision = decide(late, seen(run, OFF), PLACES, NOW)
    assert [type(action) for action in decision.actions] == [Release]
    assert decision.events[0].kind is EventKind.MACHINE_KEPT
    again = decide(decision.run, seen(run, OFF), PLACES, NOW + 30)
    assert [type(action) for action in again.actions] == [Release]
    assert not again.events, "said once"
    gone = decide(again.run, replace(seen(run, OFF), retiring=(Absent(),)), PLACES, NOW + 60)
    [launch] = [action for action in gone.actions if isinstance(action, Launch)]
    assert launch.try_.on is None
    over = retire(replace(late, status=Status.COMPLETED), seen(run, OFF), NOW)
    assert [type(action) for action in over.actions] == [Release]


def test_a_failed_start_puts_the_machine_back_and_its_wait_is_counted_from_the_first_refusal() -> None:
    run = kept_run()
    started = decide(run, seen(run, OFF), PLACES, NOW).run
    assert started.try_ is not None
    refusal = Seen(CreateFailed(started.try_.launch_id, Cause.NO_CAPACITY, "no L4"))
    after = decide(started, Observation(create=refusal, stop=Absent(), baton=Absent()), PLACES, NOW + 5).run
    assert after.kept is not None
    item, kept = after.kept
    assert item.ref == run.retiring[0].ref
    assert (kept.refused_at, kept.refusal, kept.off_at) == (NOW + 5, "no L4", NOW)
    assert after.try_ is not None
    assert after.try_.on is None


@pytest.mark.parametrize(("fallback", "given_up"), [("new", True), ("wait", False)])
def test_a_definite_refusal_gives_the_machine_up_where_a_new_one_is_allowed(fallback: str, given_up: bool) -> None:
    policy = replace(KEEPS, keep=replace(KEEPS.keep, fallback=fallback))
    run = kept_run(policy=policy)
    started = decide(run, seen(run, OFF), PLACES, NOW).run
    assert started.try_ is not None
    refusal = Seen(CreateFailed(started.try_.launch_id, Cause.LAUNCH_REJECTED, "g2 is not offered here"))
    decision = decide(started, Observation(create=refusal, stop=Absent(), baton=Absent()), PLACES, NOW + 5)
    assert decision.run.kept is not None
    assert bool(decision.run.kept[1].given_up) is given_up
    assert not decision.lessons, "the refusal of one machine's start says nothing about its zone"


def test_a_placement_that_is_no_choice_of_the_run_any_more_is_given_up() -> None:
    run = kept_run(policy=replace(KEEPS, zones=("us-east1-b",)))
    decision = decide(run, seen(run, OFF), PLACES, NOW)
    assert decision.run.kept is not None
    assert "no choice of this run" in decision.run.kept[1].given_up


def test_the_disks_cost_money_while_it_is_off_and_no_cent_is_lost_when_it_is_gone() -> None:
    run = kept_run()
    before = run_cost_usd(run, NOW)
    assert run_cost_usd(run, NOW + H) == pytest.approx(before + 0.01)
    gone = retire(run, Observation(retiring=(Absent(),)), NOW + H).run
    assert run_cost_usd(gone, NOW + 9 * H) == pytest.approx(before + 0.01)
    unknown = retire(kept_run(usd_per_h=None), Observation(retiring=(Absent(),)), NOW + H).run
    assert not unknown.money.all_known


def test_people_read_since_when_it_is_off_its_price_and_its_end() -> None:
    run = kept_run()
    text = "Its machine is kept, off since 11:59 UTC, disks $0.01/h, deleted at 2025-11-22 00:00 UTC"
    assert kept_machine_text(run, NOW) == text
    assert text in status_text(run, NOW)
    waiting = replace(run, status=Status.WAITING, cause=Cause.NO_CAPACITY)
    assert text in status_text(waiting, NOW)
    assert "Nothing is billed" not in status_text(waiting, NOW)
    done = replace(run, status=Status.COMPLETED, cause=Cause.FINISHED)
    assert text in status_text(done, NOW)


def test_a_provider_that_names_no_offer_at_all_says_nothing_about_a_kept_machine() -> None:
    run = kept_run(policy=KEEPS)
    decision = decide(run, seen(run, OFF), replace(PLACES, offers={run.provider: ()}), NOW)
    assert decision.run.kept is None or not decision.run.kept[1].given_up
    assert not [action for action in decision.actions if isinstance(action, Release)]
