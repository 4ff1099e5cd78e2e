"""A second failure of the command: another line or step is retried, the same one is a bug and final."""

from __future__ import annotations

import pytest

from supervisor.contract.baton import Baton, Done, decode, encode
from supervisor.contract.heartbeat import FINISHED, Beat, Exit
from supervisor.domain.causes import Cause
from supervisor.domain.observation import Absent, Observation, Seen, Verification
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.ending.ending import End, end_attempt
from supervisor.wording.run import status_text
from tests.lifecycle.sample_runs import NOW, WORLD, attempt, beat_of, machine_of, open_try, pulse, run_in

BUG = Exit(1, None, False, 40.0, "ValueError: bad batch")
FULL = Exit(1, None, False, 40.0, "OSError: [Errno 28] No space left on device")


def running(step: int, checkpoint_step: int | None, **fields: object) -> Run:
    return run_in(
        Status.RUNNING,
        attempt=attempt(running_at=NOW - 100, training_at=NOW - 100),
        try_=open_try(attempt_number=4),
        pulse=pulse(step=step, checkpoint_step=checkpoint_step, first_progress_at=NOW - 90),
        **fields,
    )


def fails(run: Run, end: Exit, cause: Cause = Cause.USER_ERROR) -> Run:
    return end_attempt(run, End(cause, f"It ended: `{end.last_line}`", exit=end), WORLD, NOW).run


def again(after: Run, step: int, checkpoint_step: int) -> Run:
    return running(step, checkpoint_step, last_failure=after.last_failure, counters=after.counters)


def test_the_same_exit_last_line_and_step_twice_is_final_whatever_was_checkpointed() -> None:
    first = fails(running(500, 400), BUG)
    assert first.status == Status.RECOVERING
    second = fails(again(first, 500, 480), BUG)
    assert (second.status, second.cause) == (Status.FAILED, Cause.USER_ERROR)
    text = status_text(second, NOW)
    assert "Not retried: the same exit, last line and step twice" in text


@pytest.mark.parametrize(
    ("step", "end"),
    [
        (501, BUG),
        (500, BUG._replace(code=2)),
        (500, BUG._replace(last_line="KeyError: 'loss'")),
        (500, BUG._replace(retry_named=True)),  # the user's own rules request it
    ],
)
def test_a_failure_elsewhere_is_tried_again(step: int, end: Exit) -> None:
    first = fails(running(500, 400), BUG._replace(retry_named=end.retry_named))
    assert fails(again(first, step, 480), end).status == Status.RECOVERING


def test_a_preemption_between_them_changes_nothing() -> None:
    first = fails(running(500, 400), BUG)
    lost = end_attempt(again(first, 450, 440), End(Cause.PREEMPTED, "taken"), WORLD, NOW).run
    assert lost.status == Status.RECOVERING
    assert fails(again(lost, 500, 480), BUG).status == Status.FAILED


def test_a_full_disk_is_tried_again_only_where_a_newer_checkpoint_leaves_the_rest_behind() -> None:
    assert fails(running(500, 400), FULL, Cause.DISK_FULL).status == Status.RECOVERING
    unchanged = fails(running(500, None), FULL, Cause.DISK_FULL)
    assert (unchanged.status, unchanged.cause, unchanged.asks) == (Status.WAITING, Cause.DISK_FULL, True)
    assert "Needs you: `spot retry digits-7`, or `spot stop digits-7`" in status_text(unchanged, NOW)
    first = fails(running(500, 400), FULL, Cause.DISK_FULL)
    assert fails(again(first, 500, 480), FULL, Cause.DISK_FULL).asks, "full again at the same step"


ERROR = "exit code 1: `ValueError: Image size must be less than 2^16`"
DONE = Done("1.4.1", "runs/digits-7/results/g1/", (), step=1000, total=1000, error=ERROR)


def ticked(run: Run, beat: Beat | None) -> Run:
    obs = Observation(
        machine=Seen(machine_of(attempt())),
        beat=Seen(beat) if beat is not None else Absent(source="listing"),
        baton=Seen(Baton("s", 1, done=DONE)),
        stop=Absent(source="store"),
        lookup=Absent(source="lookup"),
        verification=Seen(Verification("1.4.1", "ab", (), ())),
    )
    return decide(run, obs, WORLD, NOW).run


def test_a_failure_after_the_last_step_is_partial_and_nothing_is_repeated() -> None:
    end = BUG._replace(after_work=True, last_line="ValueError: Image size must be less than 2^16")
    beat = beat_of(attempt(), 12, FINISHED, step=1000, total=1000, exit=end)
    finishing = ticked(running(1000, 1000), beat)
    assert finishing.status == Status.FINISHING
    over = ticked(finishing, beat)
    assert (over.status, over.cause) == (Status.PARTIAL, Cause.FINISHED)
    assert "must be less than 2^16" in status_text(over, NOW)


def test_the_baton_carries_the_error() -> None:
    assert decode(encode(Baton("s", 1, done=DONE))).done == DONE
