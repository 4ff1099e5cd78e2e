"""A checkpoint that did not verify causes one event, and does not count any more."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.events import EventKind
from supervisor.domain.observation import Observation, Seen
from supervisor.domain.run import Files, Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import only_pulse_moved
from tests.lifecycle.sample_runs import NOW, WORLD, attempt, beat_of, machine_of, open_try, run_in

TRY = open_try(attempt_number=3)


def restoring(**fields: object) -> Run:
    live = attempt(3, launch_id=TRY.launch_id, machine_name=TRY.machine_name, running_at=NOW - 5)
    return run_in(
        Status.RUNNING, attempt=live, try_=TRY, files=Files(checkpoint_step=15), no_progress_base=15, **fields
    )


def beat(sequence: int, phase: str, **fields: object) -> Observation:
    return Observation(machine=Seen(machine_of(TRY)), beat=Seen(beat_of(TRY, sequence, phase, **fields)))


def test_one_event_with_the_fact_and_the_previous_checkpoint_counts_from_then_on() -> None:
    why = "checkpoint 15 rejected: step-15.txt differs from its checksum"
    at_restore = beat(2, "restore", rejected_checkpoint=15, message=why)
    first = decide(restoring(), at_restore, WORLD, NOW)
    assert [event.kind for event in first.events] == [EventKind.CHECKPOINT_REJECTED]
    assert why in first.events[0].text
    assert first.events[0].data == {"step": 15}
    assert not only_pulse_moved(restoring(), first.run)  # the row remembers that it was recorded
    again = decide(first.run, at_restore, WORLD, NOW + 30)
    assert again.events == ()
    trains = beat(3, "training", rejected_checkpoint=15, message=why, resumed_from=10, checkpoint_step=10)
    then = decide(again.run, trains, WORLD, NOW + 60)
    assert then.events == ()
    assert (then.run.files.checkpoint_step, then.run.no_progress_base) == (10, 10)


def test_two_rejections_are_two_events_and_none_may_be_left() -> None:
    run, rejected_steps = restoring(), []
    for sequence, rejected in ((2, 15), (3, 10)):
        decision = decide(run, beat(sequence, "restore", rejected_checkpoint=rejected), WORLD, NOW)
        run, rejected_steps = decision.run, [*rejected_steps, *(event.data["step"] for event in decision.events)]
    assert rejected_steps == [15, 10]
    trains = decide(run, beat(4, "training", rejected_checkpoint=10), WORLD, NOW).run
    assert trains.files.checkpoint_step is None


def test_an_older_rejection_takes_nothing_away() -> None:
    run = replace(restoring(), files=Files(checkpoint_step=8), no_progress_base=None)
    trains = decide(run, beat(2, "training", rejected_checkpoint=15, resumed_from=8), WORLD, NOW)
    assert trains.run.files.checkpoint_step == 8
    assert trains.run.no_progress_base is None


def test_a_command_that_ends_at_once_does_not_hide_it() -> None:
    ends = beat(2, "finishing", rejected_checkpoint=15, resumed_from=10)
    kinds = [event.kind for event in decide(restoring(), ends, WORLD, NOW).events]
    assert kinds == [EventKind.CHECKPOINT_REJECTED, EventKind.FINISHING]
