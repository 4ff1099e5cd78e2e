"""Beats show when the pull of an image started and ended; both times are kept with the attempt, once each."""

from __future__ import annotations

from supervisor.domain.attempt import Attempt
from supervisor.domain.observation import Absent, Observation, Seen
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import only_pulse_moved
from supervisor.storage.rows.rows import attempt_doc, read_attempt
from tests.lifecycle.sample_runs import NOW, WORLD, attempt, beat_of, machine_of, open_try, run_in

BOOTING = run_in(
    Status.LAUNCHING,
    try_=open_try(attempt_number=4),
    attempt=attempt(requested_at=NOW - 20, started_at=NOW - 10, up_at=NOW - 5),
)


def ticked(run: Run, sequence: int, phase: str, at: float) -> tuple[Run, bool]:
    """(the run after a tick with this beat, True = its row need not be written)"""
    live = run.live_attempt
    assert live is not None
    machine, beat = Seen(machine_of(live)), Seen(beat_of(live, sequence, phase))
    obs = Observation(machine=machine, beat=beat, baton=Absent(), stop=Absent())
    decision = decide(run, obs, WORLD, at)
    return decision.run, only_pulse_moved(run, decision.run)


def attempt_of(run: Run) -> Attempt:
    assert run.attempt is not None
    return run.attempt


def test_the_first_beat_in_phase_image_and_the_first_in_a_later_phase_count() -> None:
    run, unwritten = ticked(BOOTING, 1, "boot", NOW)
    assert (attempt_of(run).pull_at, unwritten) == (None, True)
    run, unwritten = ticked(run, 2, "image", NOW + 10)
    assert (attempt_of(run).pull_at, attempt_of(run).pulled_at, unwritten) == (NOW + 10, None, False)
    run, unwritten = ticked(run, 3, "image", NOW + 20)
    assert (attempt_of(run).pull_at, unwritten) == (NOW + 10, True)
    run, unwritten = ticked(run, 4, "driver", NOW + 30)
    assert (attempt_of(run).pulled_at, unwritten) == (NOW + 30, False)
    run, _ = ticked(run, 5, "image", NOW + 40)
    assert (attempt_of(run).pull_at, attempt_of(run).pulled_at) == (NOW + 10, NOW + 30), "one pull is on record"
    assert read_attempt(attempt_doc(attempt_of(run))) == attempt_of(run)


def test_the_start_of_a_training_ends_the_pull() -> None:
    run, _ = ticked(BOOTING, 1, "image", NOW)
    run, _ = ticked(run, 2, "restore", NOW + 50)
    assert run.status == Status.RUNNING
    assert (attempt_of(run).pull_at, attempt_of(run).pulled_at, attempt_of(run).running_at) == (NOW, NOW + 50, NOW + 50)


def test_without_a_beat_in_phase_image_nothing_is_recorded() -> None:
    run, _ = ticked(BOOTING, 1, "restore", NOW)
    assert (attempt_of(run).pull_at, attempt_of(run).pulled_at) == (None, None)
