"""How long a checkpoint takes, measured by the agent, and what was too little before: the next launch carries it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineRecord, MachineState
from supervisor.domain.observation import Absent, Observation, Seen, Unknown
from supervisor.domain.run import Files, Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.reconciler.acting.launches import Paces, launch_request
from tests.lifecycle.sample_runs import NOW, WORLD, attempt, beat_of, ended, machine_of, open_try, pulse, run_in

TRY = open_try(attempt_number=4)
PACES = Paces("file:///objects", None, 10.0, 60.0, 300.0, 7200.0, 10.0, 8.0)
SPEC = {"command": ["python", "train.py"]}


def running(save_s: float | None, **fields: object) -> Run:
    live = attempt(4, step_from=9, running_at=NOW - 50, training_at=NOW - 40)
    newest = pulse(step=16, checkpoint_step=12, first_progress_at=NOW - 30, save_s=save_s)
    return run_in(Status.RUNNING, attempt=live, try_=TRY, pulse=newest, **fields)


def after_end(run: Run, cause: Cause) -> Run:
    over = machine_of(TRY, state=MachineState.ENDED, record=MachineRecord(cause, "its end"))
    return decide(run, Observation(machine=Seen(over), beat=Absent(), baton=Unknown("away")), WORLD, NOW).run


def test_a_beat_brings_it_and_a_beat_without_it_keeps_it() -> None:
    observation = Observation(machine=Seen(machine_of(TRY)), beat=Seen(beat_of(TRY, 10, step=17, save_s=41.5)))
    run = decide(running(None), observation, WORLD, NOW).run
    assert run.pulse is not None
    assert run.pulse.save_s == 41.5
    later = replace(observation, beat=Seen(beat_of(TRY, 11, step=18)))
    kept = decide(run, later, WORLD, NOW + 10).run.pulse
    assert kept is not None
    assert kept.save_s == 41.5


@pytest.mark.parametrize(
    ("before", "measured", "after"), [(None, 41.5, 41.5), (90.0, 41.5, 41.5), (90.0, None, 90.0), (None, None, None)]
)
def test_the_last_attempt_that_measured_it_counts(
    before: float | None, measured: float | None, after: float | None
) -> None:
    run = running(measured, files=Files(checkpoint_step=9, checkpoint_s=before))
    assert after_end(run, Cause.PREEMPTED).files.checkpoint_s == after


def test_the_save_within_the_notice_counts_although_its_beat_is_late() -> None:
    lost = ended(Cause.PREEMPTED, 60, launch_id="1.4.1", step_kept=9, step_last=16)
    run = run_in(Status.RECOVERING, attempt=lost, try_=replace(TRY, ended_at=NOW), files=Files(checkpoint_s=41.5))
    late = beat_of(TRY, 30, step=20, checkpoint_step=20, save_s=77.0)
    observation = Observation(beat=Seen(late), baton=Absent(), stop=Absent(), machine=Absent())
    after = decide(run, observation, WORLD, NOW).run
    assert (after.files.checkpoint_step, after.files.checkpoint_s) == (20, 77.0)


@pytest.mark.parametrize(("cause", "timed_out"), [(Cause.TIME_LIMIT, 1), (Cause.EXPIRED, 0), (Cause.PREEMPTED, 0)])
def test_an_end_by_the_platforms_limit_says_that_its_warning_was_too_short(cause: Cause, timed_out: int) -> None:
    assert after_end(running(None), cause).counters.timed_out == timed_out


@pytest.mark.parametrize(("cause", "short"), [(Cause.TIME_LIMIT, (1, 0)), (Cause.HOST_OOM, (0, 1))])
def test_the_next_launch_carries_it_and_what_was_too_short_or_too_small(cause: Cause, short: tuple[int, int]) -> None:
    run = after_end(running(41.5), cause)
    request = launch_request(run, TRY, SPEC, nonce="n", supervisor_id="s", paces=PACES)
    assert request.checkpoint_s == 41.5
    assert (request.timed_out, request.out_of_memory) == short
