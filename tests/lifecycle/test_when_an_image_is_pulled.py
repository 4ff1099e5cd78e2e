"""When an image began and ended to be pulled is told by beats, once each, and kept with the attempt."""

from __future__ import annotations

from supervisor.contract.heartbeat import Beat
from supervisor.domain.attempt import Attempt
from supervisor.domain.machines import Machine, MachineState
from supervisor.domain.observation import BEATS, Absent, Observation, Seen, World
from supervisor.domain.policies import Knobs
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import only_pulse_moved
from supervisor.storage.rows.rows import attempt_doc, read_attempt
from tests.lifecycle.sample_runs import NOW, attempt, open_try, run_in

WORLD = World(Knobs("the-supervisor"), fresh=frozenset({BEATS}))
BOOTING = run_in(
    Status.LAUNCHING,
    try_=open_try(attempt_number=4),
    attempt=attempt(requested_at=NOW - 20, started_at=NOW - 10, up_at=NOW - 5),
)


def looked(run: Run, sequence: int, phase: str, at: float) -> tuple[Run, bool]:
    """(the run after a look that heard this beat, whether its row need not be written)"""
    beat = Beat("digits-7", 4, "1.4.1", "m", "b", sequence, phase)
    live = run.live_attempt
    assert live is not None
    machine = Machine("m", live.machine_name, live.placement.zone, MachineState.UP, "s", "digits-7", "1.4.1")
    obs = Observation(machine=Seen(machine), beat=Seen(beat), baton=Absent(), stop=Absent())
    decision = decide(run, obs, WORLD, at)
    return decision.run, only_pulse_moved(run, decision.run)


def of(run: Run) -> Attempt:
    assert run.attempt is not None
    return run.attempt


def test_the_first_beat_that_tells_of_it_and_the_first_that_tells_of_more() -> None:
    run, unwritten = looked(BOOTING, 1, "boot", NOW)
    assert (of(run).pull_at, unwritten) == (None, True)
    run, unwritten = looked(run, 2, "image", NOW + 10)
    assert (of(run).pull_at, of(run).pulled_at, unwritten) == (NOW + 10, None, False)
    run, unwritten = looked(run, 3, "image", NOW + 20)
    assert (of(run).pull_at, unwritten) == (NOW + 10, True)
    run, unwritten = looked(run, 4, "driver", NOW + 30)
    assert (of(run).pulled_at, unwritten) == (NOW + 30, False)
    run, _ = looked(run, 5, "image", NOW + 40)
    assert (of(run).pull_at, of(run).pulled_at) == (NOW + 10, NOW + 30), "one pull is on record"
    assert read_attempt(attempt_doc(of(run))) == of(run)


def test_a_training_that_begins_ends_the_pull() -> None:
    run, _ = looked(BOOTING, 1, "image", NOW)
    run, _ = looked(run, 2, "restore", NOW + 50)
    assert run.status == Status.RUNNING
    assert (of(run).pull_at, of(run).pulled_at, of(run).running_at) == (NOW, NOW + 50, NOW + 50)


def test_without_a_beat_of_it_nothing_is_told() -> None:
    run, _ = looked(BOOTING, 1, "restore", NOW)
    assert (of(run).pull_at, of(run).pulled_at) == (None, None)
