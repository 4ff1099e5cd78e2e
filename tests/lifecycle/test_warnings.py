"""Warnings beside the decision: once, at their time, and only for the run that they concern."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.contract.beat_telemetry import Disk, Telemetry, encode
from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind, announced
from supervisor.domain.figures import disks_in, disks_of, has_ample_disks, share_pct
from supervisor.domain.policies import Limits, Policy
from supervisor.domain.run import Files, Person, Run, StopRequest
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision, new_event, only_pulse_moved
from supervisor.lifecycle.events.warnings import next_reminder_at, with_warnings
from supervisor.wording.run import status_text
from tests.lifecycle.sample_runs import NOW, H, attempt, pulse, run_in
from tests.properties import with_defaults

KINDS = EventKind


def warned(before: Run, after: Run | None = None, now: float = NOW) -> tuple[Run, list[Event]]:
    decision = with_warnings(before, Decision(after or before), now)
    return decision.run, list(decision.events)


def spending(cost: float, **fields: object) -> Run:
    """A run at 0.50 $/h whose budget is 10 $."""
    live = attempt(started_at=NOW - cost / 0.5 * H)
    return run_in(Status.RUNNING, attempt=live, **{"policy": Policy(limits=Limits(budget_usd=10.0)), **fields})


@pytest.mark.parametrize(("cost", "count"), [(7.99, 0), (8.01, 1), (9.99, 1), (10.01, 0)])
def test_the_budget_is_warned_of_between_four_fifths_and_its_end(cost: float, count: int) -> None:
    run, events = warned(spending(cost))
    assert [event.kind for event in events] == [KINDS.BUDGET_WARNING] * count
    assert warned(run)[1] == [], "one event"


def test_a_budget_that_was_raised_is_warned_of_again_and_one_that_was_lowered_is_not() -> None:
    run, _ = warned(spending(8.5))
    raised = replace(run, policy=Policy(limits=Limits(budget_usd=100.0)))
    assert warned(raised)[1] == []
    assert len(warned(replace(raised, attempt=attempt(started_at=NOW - 81 / 0.5 * H)))[1]) == 1
    assert warned(replace(run, policy=Policy(limits=Limits(budget_usd=9.0))))[1] == []


def test_a_run_that_is_being_stopped_is_not_warned_of_its_budget() -> None:
    assert warned(spending(9.0, stop=StopRequest("ops", NOW)))[1] == []


def beating(free: float, **fields: object) -> Run:
    disk = Disk(free_bytes=free * 1e9, total_bytes=100e9)
    text = encode(Telemetry(results_disk=disk))
    return run_in(Status.RUNNING, attempt=attempt(), pulse=pulse(telemetry=text), **fields)


def test_the_same_figures_are_not_read_twice() -> None:
    low = beating(1.0)
    assert warned(low)[1] == [], "the beat has not changed"
    run, [event] = warned(beating(50.0), low)
    assert event.kind == KINDS.DISK_NEARLY_FULL
    assert run.disk_low
    assert event.data["disk"] == "results"


@pytest.mark.parametrize(
    ("free", "low_before", "low_after", "events"),
    [(4.9, False, True, 1), (5.1, False, False, 0), (9.9, True, True, 0), (10.1, True, False, 0), (1.0, True, True, 0)],
)
def test_a_disk_at_its_limit_causes_one_warning(free: float, low_before: bool, low_after: bool, events: int) -> None:
    run, new_events = warned(beating(50.0), beating(free, disk_low=low_before))
    assert (run.disk_low, len(new_events)) == (low_after, events)


def test_inodes_run_out_before_bytes() -> None:
    text = encode(Telemetry(checkpoints_disk=Disk(5e9, 10e9, 10.0, 1000.0)))
    low = replace(beating(50.0), pulse=pulse(telemetry=text))
    _, [event] = warned(beating(50.0), low)
    assert "room for 10 files" in event.text


@given(
    st.builds(
        with_defaults(Telemetry),
        checkpoints_disk=st.builds(with_defaults(Disk), st.floats(0, 1e12), st.floats(0, 1e12)),
        uptime_s=st.floats(0, 9),
    )
)
def test_the_quick_check_of_disks_agrees_with_the_full_one(telemetry: Telemetry) -> None:
    assert disks_in(encode(telemetry)) == disks_of(telemetry)


FIGURE = st.one_of(st.none(), st.floats(0, 1e12), st.integers(0, 1000).map(float))
DISKS = st.one_of(st.none(), st.builds(with_defaults(Disk), FIGURE, FIGURE, FIGURE, FIGURE))


@given(st.builds(with_defaults(Telemetry), checkpoints_disk=DISKS, results_disk=DISKS, scratch_disk=DISKS))
def test_the_quick_check_never_takes_a_full_disk_for_an_ample_one(telemetry: Telemetry) -> None:
    text = encode(telemetry)
    shares = [share_pct(disk.free_bytes, disk.total_bytes) for disk in disks_of(telemetry).values()]
    shares += [share_pct(disk.free_inodes, disk.total_inodes) for disk in disks_of(telemetry).values()]
    if has_ample_disks(text, 5.0, 100.0):
        assert all(share is None or share >= 5.0 for share in shares)
        assert all(disk.free_bytes is None or disk.free_bytes > 100.0 for disk in disks_of(telemetry).values())


def test_the_quick_check_is_enough_for_an_ordinary_machine() -> None:
    usual = Telemetry(checkpoints_disk=Disk(80e9, 100e9, 5e6, 6e6), scratch_disk=Disk(70e9, 100e9))
    assert has_ample_disks(encode(usual), 5.0, 20e9)
    assert not has_ample_disks(encode(usual), 5.0, 75e9)
    other_order = '{"scratch_disk":{"total_bytes":5,"free_bytes":1}}'
    assert not has_ample_disks(other_order, 5.0, 0.0), "in another order: the full check"


@pytest.mark.parametrize(
    "text", ["", "{", '{"scratch_disk":{"free_bytes":"x"}}', '{"scratch_disk":{bad}}', '"scratch_disk":{}']
)
def test_figures_that_cannot_be_read_warn_of_nothing(text: str) -> None:
    assert warned(beating(50.0), replace(beating(50.0), pulse=pulse(telemetry=text)))[1] == []


@pytest.mark.parametrize(
    ("free", "low_before", "low_after"),
    [(19.0, False, True), (21.0, False, False), (39.0, True, True), (41.0, True, False)],
)
def test_a_disk_without_space_for_a_checkpoint_causes_a_warning_whatever_its_share(
    free: float, low_before: bool, low_after: bool
) -> None:
    text = encode(Telemetry(checkpoints_disk=Disk(free * 1e9, 100e9)))
    run = replace(
        beating(50.0), pulse=pulse(telemetry=text), files=Files(checkpoint_bytes=20 * 10**9), disk_low=low_before
    )
    after, events = warned(beating(50.0), run)
    assert after.disk_low == low_after
    if events:
        assert "19.0 GB left, where a checkpoint has 20.0 GB" in events[0].text


def unverified(**fields: object) -> Run:
    return run_in(
        Status.FINISHING, **{"attempt": attempt(), "person": Person(why="upload failed", since=NOW - 901), **fields}
    )


def test_a_reminder_of_a_waiting_machine_shows_its_sum() -> None:
    run, [event] = warned(unverified())
    assert event.kind == KINDS.APPROVAL_REMINDER
    assert event.text.startswith("Still waiting for you, for 15 min. $0.13 so far.")
    assert warned(run)[1] == []


@pytest.mark.parametrize(
    "run",
    [
        unverified(attempt=attempt(price_usd_per_h=0.0)),
        unverified(attempt=None),
        unverified(person=Person(why="", since=None)),
        run_in(Status.WAITING, person=Person(why="the baton is torn", since=NOW - 7200)),
    ],
)
def test_where_nothing_is_billed_there_is_no_reminder(run: Run) -> None:
    assert warned(run)[1] == []


@given(st.lists(st.floats(0, 9e4), max_size=200))
def test_reminders_keep_their_schedule_whatever_the_ticks(ticks: list[float]) -> None:
    since, last, new_events = 1000.0, 1000.0, []
    for at in sorted(since + after for after in ticks):
        if at >= next_reminder_at(since, last):
            new_events.append(at - since)
            last = at
    due = [900.0, 3600.0, *(3600.0 + 21600.0 * n for n in range(1, 5))]
    slots = [sum(at >= due_at for due_at in due) for at in new_events]
    assert slots == sorted(set(slots)), "at most one in each part of the schedule"
    assert 0 not in slots


def test_what_is_announced_carries_the_account_of_the_run_and_the_rest_does_not() -> None:
    run = spending(2.0)
    events = (new_event(KINDS.STARTED, "Training in a.", zone="a"), new_event(KINDS.LAUNCHING, "Asking."))
    started, asking = with_warnings(run, Decision(run, events), NOW).events
    assert started.data == {
        "attempt": 4, "cost_usd": 2.0, "cost_known": True, "budget_usd": 10.0, "budget_from_usd": 0.0, "zone": "a",
    }  # fmt: skip
    assert asking.data == {}


def test_the_event_of_an_end_contains_the_runs_own_sentence() -> None:
    over = replace(spending(9.0), status=Status.FAILED, cause=Cause.USER_ERROR, detail="exit code 1")
    [event] = with_warnings(over, Decision(over, (new_event(KINDS.FAILED, "Failed.", cause="user_error"),)), NOW).events
    assert event.data["status_text"] == status_text(over, NOW)


def test_nothing_is_added_to_a_request_for_readings_or_to_the_end() -> None:
    run = spending(9.0)
    asking = Decision(run, wants=frozenset({"baton"}))
    assert with_warnings(run, asking, NOW) is asking
    over = replace(run, status=Status.FAILED, cause=Cause.BUDGET)
    assert with_warnings(run, Decision(over), NOW).events == ()
    calm = Decision(spending(1.0))
    assert with_warnings(calm.run, calm, NOW) is calm, "most ticks change nothing"


def test_a_warning_is_written_although_only_the_pulse_moved() -> None:
    decision = with_warnings(beating(50.0), Decision(beating(1.0)), NOW)
    assert not only_pulse_moved(beating(50.0), decision.run)
    assert [announced(event) for event in decision.events] == ["disk_nearly_full"]
