"""A host is billed until somebody stops it: what happens between the approval and the confirmed end of its bill."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.domain.actions import KeepEvidence, ReadMeter, Release, StopMeter
from supervisor.domain.attempt import Bill, Retiring
from supervisor.domain.events import AWAITING, EventKind, announced
from supervisor.domain.machines import How, Machine, MachineState
from supervisor.domain.observation import (
    LATE_LISTING,
    LISTING,
    NOT_READ,
    WRITTEN_OFF,
    Absent,
    MeterReport,
    Part,
    Seen,
    Unknown,
)
from supervisor.domain.run import Approval, Run, run_cost_usd
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.living.clock_steps import righted
from supervisor.lifecycle.sweeping import Use, claims
from supervisor.storage.engine.codec import from_plain, to_plain
from supervisor.wording.forecast import next_action
from supervisor.wording.run import status_text
from tests.lifecycle.hosts_world import (
    GOOD,
    HOST,
    MACHINE,
    NOW,
    H,
    Rounds,
    approval,
    metered,
    report,
    saving,
    seen,
    verified,
)
from tests.properties import examples

GONE = Absent(0.25, LISTING)
LATE, LOST = Absent(45.0, LATE_LISTING), Absent(0.0, WRITTEN_OFF)
AWAY = Unknown("gpu1 cannot be reached")
ENDED = Seen(replace(MACHINE, state=MachineState.ENDED))
MIN = 60.0


def approved(world: object, **fields: object) -> Run:
    return replace(verified(world), approval=approval(NOW + 10, **fields))  # type: ignore[arg-type]


def test_after_the_results_are_verified_the_run_asks_for_an_approval_and_nothing_is_released() -> None:
    tick = Rounds(saving(), Seen(MACHINE), metered(), NOW, check=Seen(GOOD))
    assert tick.run.status == Status.AWAITING_TEARDOWN
    (question,) = [event for event in tick.events if event.kind is EventKind.NEEDS_PERSON]
    assert (announced(question), question.data[AWAITING]) == ("needs_approval", "approval")
    assert "gpu1 bills $1.20/h until somebody stops it. Next: approve `terminate`" in question.text
    later = Rounds(tick.run, ENDED, metered(), NOW + 30)
    assert (later.run, later.actions, later.events) == (tick.run, [], [])
    for part in (ENDED, GONE, AWAY, Seen(MACHINE)):
        days = Rounds(tick.run, part, metered(), NOW + 10 * 24 * H)
        assert days.run.status == Status.AWAITING_TEARDOWN, part
        assert not days.actions, part
        assert days.kinds() == [EventKind.APPROVAL_REMINDER], part


def test_the_own_processes_end_first_then_the_verb_is_carried_out_then_a_read_confirms_it() -> None:
    run = approved(metered())
    first = Rounds(run, ENDED, metered(), NOW + 30)
    assert first.did(Release)
    assert not first.did(StopMeter), "the run's own processes first"
    second = Rounds(first.run, GONE, metered(), NOW + 60)
    assert [(action.ref.zone, action.verb) for action in second.did(StopMeter)] == [("gpu1", "terminate")]
    assert not second.did(ReadMeter)
    third = Rounds(second.run, GONE, metered(), NOW + 90, verb=report(NOW + 80))
    assert third.run.status == Status.AWAITING_TEARDOWN
    assert (third.did(StopMeter), len(third.did(ReadMeter))) == ([], 1)
    assert "`terminate` was carried out 10 s ago, and no read confirms that the bill has ended" in status_text(
        third.run, NOW + 90
    )
    assert next_action(third.run, NOW + 90).what == "end the bill"
    runs_on = Rounds(third.run, GONE, metered(), NOW + 120, verb=report(NOW + 80), meter=report(NOW + 100, good=False))
    assert runs_on.run.status == Status.AWAITING_TEARDOWN
    assert not runs_on.did(StopMeter), "it was carried out already"
    over = Rounds(runs_on.run, AWAY, metered(), NOW + 150, meter=report(NOW + 140))
    assert over.run.status == Status.COMPLETED
    assert not over.run.retiring, "the host is away: no reading of its machines will come"
    assert "The bill of gpu1 has ended: a later read says so (exit code 0)." in [event.text for event in over.events]


def test_it_is_billed_until_the_end_of_the_bill_is_confirmed() -> None:
    run = Rounds(approved(metered()), GONE, metered(), NOW + 60).run
    before, after = run_cost_usd(run, NOW + H), run_cost_usd(run, NOW + 3 * H)
    assert after - before == pytest.approx(2.4)
    over = Rounds(run, AWAY, metered(), NOW + 3 * H, meter=report(NOW + 3 * H - 5)).run
    assert run_cost_usd(over, NOW + 9 * H) == pytest.approx(after)
    assert over.attempt is not None
    assert over.attempt.gone_at == NOW + 3 * H


@pytest.mark.parametrize(
    "meter",
    [
        report(NOW + 5),  # from before the approval
        report(NOW + 50),  # from before the verb
        report(NOW + 90, good=False, text="it cannot be read: timeout"),
        report(NOW + 90, verb="stop"),
        Unknown("not read"),
    ],
)
def test_nothing_else_confirms_it(meter: Part[object]) -> None:
    run = Rounds(approved(metered()), GONE, metered(), NOW + 70, verb=report(NOW + 65)).run
    tick = Rounds(run, AWAY, metered(), NOW + 100, meter=meter)
    assert tick.run.status == Status.AWAITING_TEARDOWN


@pytest.mark.parametrize("part", [AWAY, LATE, LOST])
def test_a_host_that_could_not_be_read_is_not_given_back(part: Part[Machine]) -> None:
    """Somebody else may have a machine there by now. A person who writes the machine off has not looked at others."""
    tick = Rounds(approved(metered()), part, metered(), NOW + 60)
    assert not tick.did(StopMeter)
    assert len(tick.did(ReadMeter)) == 1, "a person may have stopped it by hand"


def test_no_event_says_that_the_processes_of_a_written_off_machine_have_ended() -> None:
    for part, count in ((LOST, 0), (LATE, 1), (GONE, 1)):
        assert Rounds(approved(metered()), part, metered(), NOW + 60).kinds().count(EventKind.METER) == count


def test_the_event_of_a_verb_names_the_readings_that_it_rests_on() -> None:
    run = approved(metered())
    (action,) = Rounds(run, GONE, metered(), NOW + 60).did(StopMeter)
    assert isinstance(action, StopMeter)
    assert action.within_s == metered().knobs.poll_interval_s
    for good, kind in ((True, EventKind.METER), (False, EventKind.NEEDS_PERSON)):
        tried = Seen(MeterReport("m-1", "terminate", good, "exit code", NOW + 70, action.readings))
        event = next(each for each in Rounds(run, GONE, metered(), NOW + 90, verb=tried).events if each.kind == kind
                     and "terminate" in each.text)  # fmt: skip
        assert event.data["readings"] == ["listing: absent, 0.2 s old"]


def test_a_verb_that_fails_is_retried_at_growing_intervals_and_reported_once() -> None:
    run, told, tried = Rounds(approved(metered()), GONE, metered(), NOW + 20).run, 0, []
    part, at = Unknown("not read"), NOW + 20
    for _ in range(80):
        at += 30
        tick = Rounds(run, GONE, metered(), at, verb=part)
        run, told = tick.run, told + tick.kinds().count(EventKind.NEEDS_PERSON)
        if tick.did(StopMeter):
            tried.append(at)
            part = report(at + 1, good=False, text="exit code 1: no such pod")
    gaps = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert gaps == [90.0, 330.0, 930.0, 930.0]
    assert told == 1
    assert "(last: exit code 1: no such pod)" in status_text(run, at)


@pytest.mark.parametrize("confirms", [False, True])
def test_where_a_person_stops_it_the_run_waits_until_this_person_says_so(confirms: bool) -> None:
    world = metered(How.ASK, confirms)
    first = Rounds(approved(world), GONE, world, NOW + 30)
    (question,) = [event for event in first.events if event.kind is EventKind.NEEDS_PERSON]
    assert announced(question) == "needs_approval"
    assert "`terminate` of gpu1" in question.text
    assert "spot approve digits --meter-stopped" in question.text
    assert not first.did(StopMeter)
    assert len(first.did(ReadMeter)) == confirms
    again = Rounds(first.run, GONE, world, NOW + 60)
    assert (again.events, again.run.status) == ([], Status.AWAITING_TEARDOWN)
    assert next_action(again.run, NOW + 60).what == "needs you"
    confirmed = replace(again.run, approval=approval(NOW + 70, meter_stopped=True))
    still_there = Rounds(confirmed, ENDED, world, NOW + 80)
    assert (still_there.run.status, len(still_there.did(Release))) == (Status.AWAITING_TEARDOWN, 1)
    assert Rounds(confirmed, AWAY, world, NOW + 90).run.status == Status.COMPLETED
    assert Rounds(still_there.run, GONE, world, NOW + 90).run.status == Status.COMPLETED


def test_reminders_come_after_15_minutes_one_hour_and_every_six_hours_each_once() -> None:
    """After the approval the schedule begins again, because now something else is missing. The row goes through the
    database, as at a restart."""
    run = replace(verified(metered()), approval=None)
    found: list[float] = []
    at = NOW
    while at < NOW + 20 * H:
        at += 240.0
        tick = Rounds(from_plain(Run, to_plain(run)), GONE, metered(), at)
        run = tick.run
        found += [at] * tick.kinds().count(EventKind.APPROVAL_REMINDER)
    due = [15 * MIN, H, 7 * H, 13 * H, 19 * H]
    assert len(found) == len(due)
    assert all(0 <= at - NOW - after < 240.0 for at, after in zip(found, due, strict=True))
    run, approved_at = replace(run, approval=approval(at)), at
    texts: list[tuple[float, str]] = []
    while at < approved_at + 8 * H:
        at += 240.0
        tick = Rounds(from_plain(Run, to_plain(run)), GONE, metered(), at)
        run = tick.run
        texts += [(at, event.text) for event in tick.events if event.kind is EventKind.APPROVAL_REMINDER]
    assert all(0 <= at - approved_at - after < 240.0 for (at, _), after in zip(texts, due[:3], strict=True))
    assert texts[1][1].startswith("The bill of its host has not ended for 1 h")
    assert "$1.2" in texts[1][1]


# --- odd cases --------------------------------------------------------------------------------------------------------


def test_a_loss_that_was_accepted_before_the_results_were_verified_approves_nothing() -> None:
    early = approval(NOW - 5, results_sha256="", accept_loss="never mind")
    tick = Rounds(replace(saving(), approval=early), Seen(MACHINE), metered(), NOW, check=Seen(GOOD))
    assert (tick.run.status, tick.run.approval) == (Status.AWAITING_TEARDOWN, None)


@pytest.mark.parametrize("fields", [{"machine_id": "id-0"}, {"results_sha256": "of before"}])
def test_an_approval_of_another_machine_or_of_other_results_counts_for_nothing(fields: dict[str, str]) -> None:
    run = replace(verified(metered()), approval=replace(approval(NOW + 1), **fields))
    for part in (ENDED, GONE, AWAY):
        assert not Rounds(run, part, metered(), NOW + 60).actions


def test_a_host_that_left_the_settings_is_not_touched_and_a_person_can_confirm() -> None:
    run, bare = approved(metered()), replace(metered(), meters={})
    tick = Rounds(run, GONE, bare, NOW + 60)
    assert (tick.run.status, tick.actions) == (Status.AWAITING_TEARDOWN, [])
    confirmed = replace(tick.run, approval=approval(NOW + 70, meter_stopped=True))
    assert Rounds(confirmed, AWAY, bare, NOW + 90).run.status == Status.COMPLETED


def test_machines_that_cannot_be_had_again_have_no_clock_and_their_release_is_the_verb() -> None:
    world = replace(metered(), meters={}, irreplaceable=frozenset({"lab"}))
    run = Rounds(saving(), Seen(MACHINE), world, NOW, check=Seen(GOOD)).run
    waiting = Rounds(run, ENDED, world, NOW + 10 * 24 * H)
    assert (waiting.run.status, waiting.actions) == (Status.AWAITING_TEARDOWN, [])
    assert "cannot be obtained again once released" in status_text(waiting.run, NOW)
    going = replace(run, approval=approval(NOW + 1, verb="release"))
    first = Rounds(going, ENDED, world, NOW + 30)
    assert (first.run.status, len(first.did(Release))) == (Status.AWAITING_TEARDOWN, 1)
    assert Rounds(first.run, AWAY, world, NOW + 60).run.status == Status.AWAITING_TEARDOWN
    assert Rounds(first.run, GONE, world, NOW + 90).run.status == Status.COMPLETED


def test_times_of_a_wrong_clock_hold_up_no_verb() -> None:
    run = Rounds(approved(metered()), GONE, metered(), NOW + 20, verb=report(NOW + 15, good=False)).run
    (item,) = run.retiring
    assert item.bill is not None
    ahead = replace(run, retiring=(replace(item, bill=replace(item.bill, tried_at=NOW + 9 * H)),))
    (fixed,) = righted(ahead, metered(), NOW + 60).retiring
    assert fixed.bill is not None
    assert fixed.bill.tried_at == NOW + 60


def test_results_that_are_not_verified_are_not_given_up_by_a_clock() -> None:
    """Where the machine can be had again they are, after a day."""
    at, run = NOW, replace(saving(), status_since=NOW - 2 * H)
    for hours in (0, 25, 500):
        at = NOW + hours * H
        run = Rounds(run, Seen(MACHINE), metered(), at, done=False).run
        assert run.status == Status.FINISHING
    bare = replace(metered(), meters={})
    assert Rounds(run, Seen(MACHINE), bare, at, done=False).run.status == Status.FAILED


def test_an_older_machine_that_goes_is_not_taken_for_the_one_on_the_host() -> None:
    run = approved(metered())
    old = Retiring(replace(run.retiring[0].ref, name="m-0", zone="gpu0"), "1.0.1", NOW - 90, NOW - 90)
    run = replace(run, retiring=(old, *run.retiring))
    obs = replace(seen(run, Seen(MACHINE)), retiring=(GONE, Seen(MACHINE)))
    decision = decide(run, obs, metered(), NOW + 30)
    assert [item.ref.name for item in decision.run.retiring] == ["m-1"]
    assert [type(action) for action in decision.actions if not isinstance(action, KeepEvidence)] == [Release]
    assert decision.run.retiring[0].bill == run.retiring[1].bill, "its processes are still there"


def test_a_machine_whose_processes_are_gone_is_not_missing_in_the_listing() -> None:
    run = approved(metered())
    (there,), (left,) = claims([run], NOW), claims([Rounds(run, GONE, metered(), NOW + 60).run], NOW)
    assert (there.left, left.left, left.use) == (False, True, Use.KEPT)


@pytest.mark.parametrize("done", [False, True])
def test_who_stops_the_bill_and_whether_a_read_confirms_it_follow_the_settings(done: bool) -> None:
    """The row was written under other settings: a command is added, and the one that confirms is removed."""
    by_hand = Rounds(approved(metered(How.ASK)), GONE, metered(How.ASK), NOW + 20).run
    commanded = Rounds(by_hand, GONE, metered(confirms=False), NOW + 30)
    assert len(commanded.did(StopMeter)) == 1
    verb: Part[MeterReport] = report(NOW + 35) if done else NOT_READ
    again = Rounds(commanded.run, GONE, metered(confirms=False), NOW + 40, verb=verb)
    assert not again.did(ReadMeter), "there is no command for it"
    assert len(Rounds(again.run, GONE, metered(), NOW + 50, verb=verb).did(ReadMeter)) == done
    back = Rounds(again.run, GONE, metered(How.ASK), NOW + 60)
    told = [event.text for event in back.events if event.kind is EventKind.NEEDS_PERSON]
    assert (not back.did(StopMeter), len(told)) == (True, 0 if done else 1)


def test_a_verb_that_is_not_offered_any_more_is_asked_for_again() -> None:
    """A command that does not get the verb does only the usual one: that is not what was approved."""
    meter = replace(metered().meters[HOST], verbs=("terminate",))
    world = replace(metered(), meters={HOST: meter})
    tick = Rounds(approved(metered(), verb="stop"), GONE, world, NOW + 30)
    assert (tick.actions, tick.run.approval) == ([], None)
    (question,) = [event for event in tick.events if event.kind is EventKind.NEEDS_PERSON]
    assert "Next: approve `terminate`" in question.text
    confirmed = approved(metered(), verb="stop", meter_stopped=True)
    assert Rounds(confirmed, AWAY, world, NOW + 30).run.status == Status.COMPLETED


# --- for any bill and any reading -------------------------------------------------------------------------------------

TIMES, VERBS = st.sampled_from((NOW + 5, NOW + 40, NOW + 90)), st.sampled_from(("terminate", "stop"))
REPORTS = st.one_of(st.just(NOT_READ), st.builds(report, TIMES, st.booleans(), VERBS))
BILLS = st.builds(
    Bill,
    how=st.sampled_from(How),
    verb=st.just("terminate"),
    confirms=st.booleans(),
    announced=st.booleans(),
    left_at=st.sampled_from((None, NOW + 20)),
    tried_at=st.sampled_from((None, NOW + 40)),
    tries=st.sampled_from((0, 1, 5)),
    done_verb=st.sampled_from(("", "terminate", "stop")),
    done_at=st.sampled_from((None, NOW + 40)),
    problem=st.sampled_from(("", "exit code 1")),
)
APPROVALS = st.one_of(
    st.none(),
    st.builds(approval, st.just(NOW + 10), st.sampled_from(("terminate", "stop")), meter_stopped=st.booleans()),
)
PARTS = st.sampled_from((ENDED, GONE, LATE, LOST, AWAY, Seen(MACHINE)))


@settings(max_examples=examples(400, 10_000), deadline=None)
@given(BILLS, APPROVALS, PARTS, REPORTS, REPORTS)
def test_twice_is_once_and_less_knowledge_gives_nothing_back(
    bill: Bill, approved_: Approval | None, part: Part[Machine], verb: Part[MeterReport], meter: Part[MeterReport]
) -> None:
    world = metered(bill.how, bill.confirms)
    if bill.how is How.RELEASE:
        world = replace(world, meters={}, irreplaceable=frozenset({"lab"}))
    (item,) = verified(metered()).retiring
    run = replace(verified(metered()), approval=approved_, retiring=(replace(item, bill=bill),))
    once = Rounds(run, part, world, NOW + 100, verb=verb, meter=meter)
    assert status_text(once.run, NOW + 100)
    if not once.run.terminal:
        again = Rounds(once.run, part, world, NOW + 100, verb=verb, meter=meter)
        assert (again.run, again.events) == (once.run, [])
        assert all(action in once.actions for action in again.actions)
    blind = Rounds(run, AWAY, world, NOW + 100, verb=verb, meter=meter)
    assert not blind.did(Release) + blind.did(StopMeter), "a host that could not be read is not given back"
    assert once.run.status == Status.AWAITING_TEARDOWN or approved_ is not None or isinstance(part, Absent)
    assert part is GONE or not once.did(StopMeter)
