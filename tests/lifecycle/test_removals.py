"""Each checkpoint that the agent removed is reported once, whatever the order of the beats."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.contract.heartbeat import MAX_PRUNED, Exit, Pruned
from supervisor.domain.events import Event, EventKind
from supervisor.domain.observation import BATON, Observation, Seen
from supervisor.domain.run import Files, Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import only_pulse_moved
from supervisor.lifecycle.living.checkpoints import REMOVALS_PAUSE_S
from tests.lifecycle.sample_runs import NOW, WORLD, attempt, beat_of, machine_of, open_try, run_in

TRY = open_try(attempt_number=3)
UP = machine_of(TRY)
LAST = "keep_last 3"
ALL = [(step, LAST) for step in range(100, 400, 10)]


def training(**fields: object) -> Run:
    live = attempt(3, launch_id=TRY.launch_id, machine_name=TRY.machine_name, running_at=NOW, training_at=NOW)
    return run_in(Status.RUNNING, attempt=replace(live, **fields), try_=TRY, files=Files(checkpoint_step=15))


def account(count: int) -> Pruned:
    """The agent's report after its first `count` removals."""
    return Pruned(count, tuple(ALL[:count][-MAX_PRUNED:]))


def beat(sequence: int, pruned: Pruned | None, **fields: object) -> Observation:
    beat_ = beat_of(TRY, sequence, pruned=pruned, **{"step": sequence, **fields})
    return Observation(machine=Seen(UP), beat=Seen(beat_))


def removals(events: tuple[Event, ...]) -> list[Event]:
    return [event for event in events if event.kind == EventKind.CHECKPOINTS_REMOVED]


def test_several_of_one_beat_are_one_event_that_names_the_rule() -> None:
    decision = decide(training(), beat(2, account(2)), WORLD, NOW)
    (event,) = removals(decision.events)
    assert event.text == "Checkpoints 100 and 110 removed: keep_last 3."
    assert event.data == {"steps": [100, 110], "count": 2}
    assert not only_pulse_moved(training(), decision.run)  # the row remembers that they were recorded


def test_each_reason_is_in_the_event() -> None:
    account = Pruned(3, ((90, "the baton does not name it"), (100, "keep_best 1"), (1000, "keep_best 1")))
    (event,) = removals(decide(training(), beat(2, account), WORLD, NOW).events)
    assert event.text == (
        "Checkpoint 90 removed: the baton does not name it; checkpoints 100 and 1,000 removed: keep_best 1."
    )


def test_more_than_a_beat_can_name_are_counted() -> None:
    (event,) = removals(decide(training(), beat(2, account(20)), WORLD, NOW).events)
    assert event.text.endswith("12 earlier ones removed.")
    assert (event.data["count"], len(event.data["steps"])) == (20, MAX_PRUNED)


def test_after_a_restart_of_the_supervisor_no_event_is_repeated() -> None:
    recorded = decide(training(), beat(2, account(2)), WORLD, NOW).run
    reread = replace(recorded, pulse=None)  # the pulse is written once a minute only, the attempt at once
    assert removals(decide(reread, beat(2, account(2)), WORLD, NOW).events) == []
    (event,) = removals(decide(reread, beat(3, account(3)), WORLD, NOW + REMOVALS_PAUSE_S).events)
    assert event.data == {"steps": [120], "count": 1}


def test_what_is_removed_within_ten_minutes_is_one_event() -> None:
    run = decide(training(), beat(2, account(1)), WORLD, NOW).run
    for sequence in range(3, 8):
        decision = decide(run, beat(sequence, account(sequence - 1)), WORLD, NOW + 60 * sequence)
        assert removals(decision.events) == []
        run = decision.run
    (event,) = removals(decide(run, beat(9, account(8)), WORLD, NOW + REMOVALS_PAUSE_S).events)
    assert event.data == {"steps": [step for step, _ in ALL[1:8]], "count": 7}


def test_no_name_is_lost_by_waiting() -> None:
    run = decide(training(), beat(2, account(1)), WORLD, NOW).run
    (event,) = removals(decide(run, beat(3, account(1 + MAX_PRUNED)), WORLD, NOW + 1).events)
    assert event.data["steps"] == [step for step, _ in ALL[1 : 1 + MAX_PRUNED]]


@pytest.mark.parametrize("phase", ["finishing", "finished"])
def test_at_the_end_the_rest_is_an_event_at_once(phase: str) -> None:
    run = decide(training(), beat(2, account(1)), WORLD, NOW).run
    last = Observation(machine=Seen(UP), beat=Seen(beat_of(TRY, 3, phase, pruned=account(2))))
    assert len(removals(decide(run, last, WORLD, NOW + 1).events)) == 1


def test_a_machine_that_vanishes_leaves_its_last_account() -> None:
    run = decide(training(), beat(2, account(1)), WORLD, NOW).run
    kept_back = decide(run, beat(3, account(2)), WORLD, NOW + 1).run
    ended = replace(kept_back, attempt=replace(kept_back.attempt, ended_at=NOW + 2))
    over = replace(ended, status=Status.RECOVERING, next_at=NOW + 999)
    assert len(removals(decide(over, beat(3, account(2)), WORLD, NOW + 2).events)) == 1


def test_a_beat_of_another_launch_says_nothing_about_this_attempt() -> None:
    other = beat_of(open_try(attempt_number=2), 9, pruned=account(2))
    obs = Observation(machine=Seen(UP), beat=Seen(other))
    assert removals(decide(training(), obs, WORLD, NOW).events) == []


def test_the_last_beat_of_an_attempt_counts() -> None:
    over = replace(training(), status=Status.RECOVERING, next_at=NOW + 999)
    ended = replace(over, attempt=replace(over.attempt, ended_at=NOW, gone_at=NOW), try_=None)
    decision = decide(ended, beat(2, account(1)), WORLD, NOW)
    assert [event.data["count"] for event in removals(decision.events)] == [1]
    waits = decide(ended, beat(2, account(1), exit=Exit(0, None, False)), WORLD, NOW)
    assert (waits.wants, waits.events, waits.run) == ({BATON}, (), ended)  # no event yet


@pytest.mark.parametrize("status", [Status.STOPPED, Status.COMPLETED])
def test_they_change_nothing_of_a_terminal_status(status: Status) -> None:
    over = replace(training(), status=status)
    decision = decide(over, beat(2, account(1)), WORLD, NOW)
    assert decision.run.status == status
    assert len(removals(decision.events)) == 1
    assert removals(decide(decision.run, beat(2, account(1)), WORLD, NOW).events) == []
    assert decide(replace(over, settled=True), beat(2, account(1)), WORLD, NOW).events == ()


@given(counts=st.lists(st.integers(0, len(ALL)), max_size=12))
def test_in_every_order_each_is_counted_once(counts: list[int]) -> None:
    run, removed = training(), 0
    for sequence, count in enumerate(counts, 2):
        decision = decide(run, beat(sequence, account(count)), WORLD, NOW + REMOVALS_PAUSE_S * sequence)
        run, removed = decision.run, removed + sum(event.data["count"] for event in removals(decision.events))
    assert removed == max(counts, default=0)
