"""Ends after which a person decides: what asks, what it costs, how it is announced, and what never asks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.contract.heartbeat import FINISHED, Exit
from supervisor.contract.signs import Signs
from supervisor.contract.signs import encode as encode_signs
from supervisor.domain.causes import FIRST_SIGNAL, UNANSWERED, Cause
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Verdict, Where
from supervisor.domain.events import EventKind, announced
from supervisor.domain.machines import Capacity
from supervisor.domain.observation import Absent, Observation, Seen
from supervisor.domain.run import Run, StopRequest
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision, moved
from supervisor.lifecycle.ending.ending import End, end_attempt
from supervisor.lifecycle.ending.exits import end_in
from supervisor.lifecycle.events.patrol import problem
from supervisor.lifecycle.offers.queueing import with_queue
from supervisor.services.runs.altering import warnings
from supervisor.wording.attempt import counts_text
from supervisor.wording.forecast import needs_person, next_action
from supervisor.wording.run import status_text
from tests.lifecycle.sample_runs import NOW, WORLD, attempt, beat_of, pulse, run_in

LIVE = attempt(agent_at=NOW - 40_000, running_at=NOW - 40_000, training_at=NOW - 40_000)
KILLED = Exit(None, 15, False, 40.0, oom_kills=0)
FULL = Exit(1, None, False, 900.0, "OSError: [Errno 28] No space left on device", oom_kills=0)
NO_STEP = pulse(checkpoint_step=100)
DAY = 86_400.0


def running(**fields: object) -> Run:
    """From checkpoint 100, killed once since."""
    killed_before = (f"{FIRST_SIGNAL} @100",)
    files = replace(run_in(Status.RUNNING).files, checkpoint_step=100)
    live = replace(LIVE, step_from=100)
    return run_in(Status.RUNNING, attempt=live, pulse=NO_STEP, once=killed_before, files=files, **fields)


def ended(exit_: Exit, run: Run | None = None, **fields: object) -> Decision:
    run = run or running()
    beat = beat_of(LIVE, 12, FINISHED, exit=exit_, up_s=39_990.0)._replace(**fields)  # type: ignore[arg-type]
    end = end_in(run, beat, Observation(), WORLD)
    assert end is not None
    return end_attempt(run, end, WORLD, NOW)


ASKING = ended(KILLED).run
NOTHING_NEW = Observation(machine=Absent(), beat=Absent(), baton=Absent(), stop=Absent(), lookup=Absent())


def test_where_the_spec_keeps_the_machine_of_a_failure_the_run_fails_and_the_machine_stays() -> None:
    policy = replace(running().policy, on_failure="keep")
    run = ended(FULL, running(policy=policy)).run
    assert (run.status, run.cause, run.asks) == (Status.FAILED, Cause.DISK_FULL, False)
    assert run.kept_until is not None


@pytest.mark.parametrize("exit_", [KILLED, FULL])
def test_such_an_end_asks_and_costs_nothing(exit_: Exit) -> None:
    run = ended(exit_).run
    assert (run.status, run.asks, run.next_at) == (Status.WAITING, True, None)
    assert run.counters == running().counters
    assert [item.launch_id for item in run.retiring] == [LIVE.launch_id], "the machine is given up as usual"
    assert run.attempt is not None
    assert run.attempt.verdict is not None
    assert run.attempt.verdict.retry == Retry.ASK, "the verdict's word is what follows"
    assert "`spot retry digits-7` lets it go on; `spot stop digits-7` ends it" in needs_person(run)
    assert next_action(run, NOW).what == "needs you"
    reported = problem(run, NOW)
    assert reported is not None
    assert reported.of_person


def test_the_question_is_announced_once_and_the_end_beside_it_is_not() -> None:
    names = [announced(event) for event in ended(KILLED).events]
    assert [name for name in names if name] == ["needs_person"]
    question = next(event for event in ended(KILLED).events if event.kind == EventKind.NEEDS_PERSON)
    assert question.data["cause"] == Cause.KILLED
    assert question.data["rule"] == "U3.signal"
    assert "fails in 24 h" in question.text


def test_the_same_kill_with_a_newer_checkpoint_is_free_and_asks_nobody() -> None:
    newer = replace(running(), pulse=replace(NO_STEP, checkpoint_step=200))
    assert ended(KILLED, newer).run.status == Status.RECOVERING


def test_a_question_waits_through_every_tick_until_its_limit() -> None:
    for later_s in (30.0, DAY - 60.0):
        decision = decide(replace(ASKING, retiring=()), NOTHING_NEW, WORLD, NOW + later_s)
        assert (decision.run.asks, decision.actions, decision.events) == (True, (), ())
    over = decide(replace(ASKING, retiring=()), NOTHING_NEW, WORLD, NOW + DAY).run
    assert (over.status, over.cause) == (Status.FAILED, Cause.KILLED)
    assert f"{UNANSWERED} within 24 h" in over.detail
    short = replace(ASKING.policy.limits, wait_for_capacity_s=60.0, deadline=NOW + 3600.0)
    hurried = replace(ASKING, retiring=(), policy=replace(ASKING.policy, limits=short))
    assert decide(hurried, NOTHING_NEW, WORLD, NOW + 3000.0).run.asks, "it does not wait for capacity"
    assert not warnings(hurried, hurried, NOW + 3000.0)
    late = decide(hurried, NOTHING_NEW, WORLD, NOW + 3601.0).run
    assert (late.status, late.cause) == (Status.FAILED, Cause.DEADLINE)


def test_a_stop_wins_over_the_question() -> None:
    stopped = decide(replace(ASKING, retiring=(), stop=StopRequest("ops", NOW)), NOTHING_NEW, WORLD, NOW + 30.0).run
    assert (stopped.status, stopped.attempt) == (Status.STOPPED, ASKING.attempt)
    marked = replace(NOTHING_NEW, stop=Seen("77"))
    assert decide(replace(ASKING, retiring=()), marked, WORLD, NOW + 30.0).run.status == Status.STOPPED


def test_after_the_answer_the_end_counts_as_no_failure() -> None:
    going_on = moved(ASKING, Status.RECOVERING, NOW + 60.0)
    assert not going_on.asks
    assert not needs_person(going_on)
    assert counts_text(going_on) == "Does not count as a failure"
    assert "Does not count as a failure" in status_text(going_on, NOW + 60.0)


def test_a_run_that_asks_takes_no_capacity_from_others() -> None:
    capacity = {"gce": Capacity(1)}
    world = with_queue(WORLD, [replace(ASKING, retiring=(), try_=None)], capacity, lambda _: False, NOW)
    assert ASKING.key not in world.may_launch


# --- what never asks --------------------------------------------------------------------------------------------------


def test_a_hint_never_asks() -> None:
    guess = Verdict("X", Certainty.HINT, None, Where.UNKNOWN, None, Retry.ASK, "")
    for cause, status in ((Cause.KILLED, Status.RECOVERING), (Cause.DISK_FULL, Status.FAILED)):
        for verdict in (guess, replace(guess, cause=cause)):
            run = end_attempt(running(), End(cause, "it ended", verdict=verdict), WORLD, NOW).run
            assert (run.status, run.asks) == (status, False)


def test_a_kill_that_may_have_been_the_kernels_is_paid_for_and_asks_nobody() -> None:
    unread = ended(KILLED._replace(signal=9, oom_kills=None)).run
    assert (unread.status, unread.counters.counted) == (Status.RECOVERING, 1)


def test_a_disk_at_its_limit_explains_no_other_error() -> None:
    signs = encode_signs(Signs(error="KeyError: 'x'"))
    other = Exit(1, None, False, 900.0, "KeyError: 'x'", disk_full="checkpoints: 0 B free of 64 MiB", oom_kills=0)
    run = ended(other, signs=signs).run
    assert (run.status, run.cause) == (Status.FAILED, Cause.USER_ERROR)
