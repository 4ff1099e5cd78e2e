"""A stop, a torn or a deleted baton while results are unverified: an event names the loss, a person is needed."""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract.baton import Baton
from supervisor.domain.attempt import Attempt, Retiring
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.observation import Absent, Observation, Seen, Unknown
from supervisor.domain.run import Files, Person, StopRequest
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.living.checkpoints import with_fresh_start
from supervisor.lifecycle.phases.stopping import _end
from tests.lifecycle.sample_runs import NOW, WORLD, H, attempt, beat_of, machine_of, pulse, run_in
from tests.lifecycle.test_finishing import DONE, finishing, ticked

TORN = Unknown("the baton cannot be understood", torn=True)
STOP = StopRequest("ann", NOW)


def test_a_stop_of_unverified_results_says_what_is_lost() -> None:
    stopping = ticked(finishing(stop=STOP, person=Person(why="results differ")), Seen(Baton("s", 1, done=DONE))).run
    assert (stopping.status, stopping.person.why) == (Status.STOPPING, "")
    assert stopping.detail.startswith("results not verified: a.txt is missing")
    held = ticked(stopping, Seen(Baton("s", 1, done=DONE))).run
    assert held.status == Status.STOPPING  # the work does not count as done a second time
    over = _end(replace(stopping, attempt=None, try_=None), NOW)
    assert (over.run.status, over.run.cause) == (Status.STOPPED, Cause.STOP_REQUESTED)
    assert "results not verified: a.txt is missing" in over.events[0].text
    assert "results not verified" in over.run.detail


def test_a_torn_baton_notifies_a_person_once_and_is_forgotten_when_fixed() -> None:
    waiting_for_fix = ticked(finishing(), TORN)
    assert [event.kind for event in waiting_for_fix.events] == [EventKind.NEEDS_PERSON]
    assert "put back an earlier version of runs/digits-7/baton.json" in waiting_for_fix.run.person.why
    assert ticked(waiting_for_fix.run, TORN).events == ()
    fixed = ticked(waiting_for_fix.run, Seen(Baton("s", 1))).run
    assert (fixed.person.why, fixed.person.since, fixed.hold) == ("", None, "")


def test_a_torn_baton_does_not_hold_up_a_stop() -> None:
    late = run_in(Status.STOPPING, attempt=attempt(), stop=STOP, status_since=NOW - H, cause=Cause.STOP_REQUESTED)
    assert ticked(late, TORN).run.live_attempt is None
    assert ticked(late, Unknown("away")).run.live_attempt is not None


def test_a_deleted_baton_is_named_at_once_and_a_stop_still_ends() -> None:
    assert ticked(finishing(), Absent()).run.person.why == "the baton of this run is gone from the store"
    late = run_in(Status.STOPPING, attempt=attempt(), stop=STOP, status_since=NOW - H)
    assert ticked(late, Absent()).run.live_attempt is None


def test_the_last_message_of_a_slow_upload_is_shown() -> None:
    slow = finishing(status_since=NOW - 2 * H, pulse=pulse("finishing", message="uploading 3 of 9"))
    assert "last message: uploading 3 of 9" in ticked(slow, Seen(Baton("s", 1))).run.person.why


def test_a_machine_is_named_as_soon_as_the_listing_names_it() -> None:
    named = ticked(finishing(attempt=attempt(machine_id="")), Seen(Baton("s", 1))).run
    assert isinstance(named.attempt, Attempt)
    assert named.attempt.machine_id == "m"


def test_a_start_from_nothing_is_an_event_and_keeps_no_checkpoint() -> None:
    before = attempt()
    run = run_in(Status.RUNNING, attempt=replace(before, training_at=NOW), files=Files(checkpoint_step=200))
    beat = beat_of(attempt(), 3)
    after, events = with_fresh_start(run, before, beat)
    assert after.files.checkpoint_step is None
    assert "begins from nothing" in events[0].text
    restored = replace(run, attempt=replace(before, training_at=NOW, step_from=200))
    assert with_fresh_start(restored, before, beat) == (restored, ())


def test_a_running_machine_gets_its_id_from_its_beat() -> None:
    run = run_in(Status.RUNNING, attempt=attempt(machine_id="", running_at=NOW - 5))
    beat = beat_of(attempt(), 3)
    up = machine_of(attempt(), machine_id="")
    after = decide(run, Observation(machine=Seen(up), beat=Seen(beat)), WORLD, NOW).run
    assert after.attempt is not None
    assert after.attempt.machine_id == "m"


def test_the_machine_of_a_run_that_ended_with_a_torn_baton_is_released() -> None:
    item = Retiring(attempt().ref, "1.4.1", NOW - 60, NOW - 60)
    over = run_in(Status.FAILED, attempt=attempt(ended_at=NOW - 60), retiring=(item,))
    obs = Observation(baton=TORN, retiring=(Seen(machine_of(attempt())),))
    assert [type(action).__name__ for action in decide(over, obs, WORLD, NOW).actions] == ["Release"]
    away = replace(obs, baton=Unknown("away"))
    assert decide(over, away, WORLD, NOW).actions == ()
