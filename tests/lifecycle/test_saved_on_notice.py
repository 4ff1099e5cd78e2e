"""A preemption that lost no step is counted as saved: by the last step before it, and the step that was restored."""

from dataclasses import replace

import pytest

from supervisor.contract import heartbeat
from supervisor.domain.attempt import Attempt
from supervisor.domain.causes import Cause
from supervisor.domain.events import SAVED_ON_NOTICE
from supervisor.domain.observation import BEATS, Absent, Observation, Seen, Unknown
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.living.beats import with_beat
from supervisor.lifecycle.phases.beginning import begin_attempt, training_event
from tests.lifecycle.sample_runs import NOW, WORLD, attempt, beat_of, open_try, run_in


def ended(cause: Cause = Cause.PREEMPTED, **fields: object) -> Attempt:
    changes = {"ended_at": NOW - 60, "cause": cause, "training_at": NOW - 600, "step_last": 500, **fields}
    return replace(attempt(), **changes)  # type: ignore[arg-type]


def begun(last: "Attempt | None", step_from: "int | None" = 500) -> Run:
    """The next attempt trains, from this step."""
    run = run_in(Status.LAUNCHING, attempt=last)
    after = begin_attempt(run, open_try(attempt_number=5), "m2", NOW)
    assert after.attempt is not None
    assert after.attempt.begins_saved is None, "it does not train yet"
    beat = beat_of(after.attempt, 3, heartbeat.TRAINING, resumed_from=step_from)
    obs = Observation(machine=Unknown("", NOW), beat=Seen(beat, 1.0, BEATS), baton=Absent(), stop=Absent())
    return with_beat(after, obs, WORLD, NOW)


@pytest.mark.parametrize(
    ("last", "step_from", "saved"),
    [
        (ended(), 500, True),
        (ended(), 503, True),  # it went on while it saved
        (ended(), 499, False),
        (ended(), None, False),  # nothing was restored
        (ended(step_last=None), 500, None),  # it reports no steps
        (ended(Cause.USER_ERROR), 400, None),
        (ended(generation=7), 400, None),  # a person resumed it
        (None, None, None),
    ],
)
def test_what_counts_as_saved(last: "Attempt | None", step_from: "int | None", saved: "bool | None") -> None:
    run = begun(last, step_from)
    assert run.attempt is not None
    assert run.attempt.begins_saved is saved
    event = training_event(run, replace(run.attempt, number=2), NOW)
    assert event.data[SAVED_ON_NOTICE] is saved


def test_a_machine_that_never_trained_loses_nothing_of_its_own() -> None:
    """Broken variant: after a boot that failed the preemption before it was forgotten."""
    booted = ended(Cause.BOOT_TIMEOUT, training_at=None, step_last=None, preempted_at_step=500)
    run = begun(booted, 480)
    assert run.attempt is not None
    assert run.attempt.begins_saved is False
