"""Only the baton may show the agent's last save: it is read when an attempt ends, and it counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.contract.baton import Baton, Holder, Pointer
from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineRecord, MachineState
from supervisor.domain.observation import BATON, Absent, Observation, Seen, Unknown
from supervisor.domain.run import Counters, Files, Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.living.checkpoints import with_pointer
from tests.lifecycle.sample_runs import NOW, WORLD, attempt, ended, machine_of, open_try, pulse, run_in

TRY = open_try(attempt_number=4)
RECORD = MachineRecord(Cause.PREEMPTED, "preempted without notice")
PREEMPTED = machine_of(TRY, state=MachineState.ENDED, record=RECORD)


def baton(step: int = 15, holder: str = "1.4.1", generation: int = 1) -> Seen[Baton]:
    pointer = Pointer(step, f"runs/digits-7/checkpoints/{step}-a4/", ())
    return Seen(Baton("s", generation, holder=Holder(4, holder, "m"), checkpoint=pointer))


def running(**fields: object) -> Run:
    live = attempt(4, step_from=9, running_at=NOW - 50, training_at=NOW - 40)
    newest = pulse(step=16, checkpoint_step=12, first_progress_at=NOW - 30)
    return run_in(Status.RUNNING, attempt=live, try_=TRY, pulse=newest, files=Files(checkpoint_step=9), **fields)


def test_an_attempt_ends_only_when_the_baton_was_read() -> None:
    over = Observation(machine=Seen(PREEMPTED), beat=Absent())
    assert decide(running(), over, WORLD, NOW).wants == {BATON}
    after = decide(running(), replace(over, baton=baton()), WORLD, NOW).run
    assert after.status == Status.RECOVERING
    assert after.attempt is not None
    assert (after.files.checkpoint_step, after.attempt.step_kept) == (15, 15)


def test_a_store_that_cannot_be_read_holds_up_no_end() -> None:
    over = Observation(machine=Seen(PREEMPTED), beat=Absent(), baton=Unknown("away"))
    assert decide(running(), over, WORLD, NOW).run.files.checkpoint_step == 12


def test_progress_that_no_beat_reported_is_progress() -> None:
    """Two attempts made no progress; this one did, and died before its beat."""
    machine = replace(PREEMPTED, record=None)
    run = running(counters=Counters(no_progress=2, counted=2), no_progress_base=9)
    quiet = replace(run, pulse=pulse(step=16, checkpoint_step=9), files=Files(checkpoint_step=9))
    over = Observation(machine=Seen(machine), beat=Absent())
    for read, status in ((Unknown("away"), Status.FAILED), (baton(), Status.RECOVERING)):
        assert decide(quiet, replace(over, baton=read), WORLD, NOW).run.status == status


@pytest.mark.parametrize(
    ("recorded", "read", "expected"),
    [
        (None, baton(15), 15),
        (9, baton(15), 15),
        (20, baton(15), 20),  # the recorded step is never lowered here
        (9, baton(15, generation=0), 15),  # a resume keeps what lies there
        (9, Absent(), 9),
        (9, Seen(Baton("s", 1)), 9),
    ],
)
def test_the_newest_pointer_counts(recorded: int | None, read: object, expected: int) -> None:
    run = run_in(
        Status.WAITING, attempt=ended(Cause.PREEMPTED, 60, launch_id="1.4.1"), files=Files(checkpoint_step=recorded)
    )
    after = with_pointer(run, Observation(baton=read), NOW)  # type: ignore[arg-type]
    assert after.files.checkpoint_step == expected
    assert with_pointer(after, Observation(baton=read), NOW) is after  # type: ignore[arg-type]


def test_a_run_that_starts_over_does_not_use_old_checkpoints() -> None:
    run = run_in(Status.PENDING, generation=2, rerun=True)
    assert with_pointer(run, Observation(baton=baton()), NOW) is run


def test_what_another_attempt_saved_is_not_this_ones() -> None:
    run = run_in(Status.RECOVERING, attempt=ended(Cause.PREEMPTED, 60, launch_id="1.5.1", step_kept=9))
    after = with_pointer(run, Observation(baton=baton(15)), NOW)
    assert after.attempt == run.attempt
    assert after.files.checkpoint_step == 15


def test_a_checkpoint_ahead_of_the_last_beat_shows_the_last_step() -> None:
    """Otherwise the steps between the two would not count, and losing that checkpoint would be no loss."""
    over = Observation(machine=Seen(PREEMPTED), beat=Absent(), baton=baton(18))
    at_its_end = decide(running(), over, WORLD, NOW).run.attempt
    assert at_its_end is not None
    assert (at_its_end.step_last, at_its_end.step_kept) == (18, 18)
    later = run_in(Status.RECOVERING, attempt=replace(at_its_end, step_last=16, step_kept=12), try_=TRY)
    last = with_pointer(later, Observation(baton=baton(18)), NOW).attempt
    assert last is not None
    assert (last.step_last, last.step_kept) == (18, 18)
    untold = with_pointer(replace(later, attempt=replace(at_its_end, step_last=None, step_kept=None)), over, NOW)
    assert untold.attempt is not None
    assert untold.attempt.step_last is None
