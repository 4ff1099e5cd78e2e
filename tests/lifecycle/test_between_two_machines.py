"""Runs whose machine is lost, not there yet, or not requested yet: which source counts, and which events follow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.contract.baton import Baton, Done
from supervisor.domain.attempt import Retiring
from supervisor.domain.causes import Cause
from supervisor.domain.observation import BEATS, NOT_READ, Absent, Observation, Seen, Unknown, World, machines_in
from supervisor.domain.policies import Limits, Policy
from supervisor.domain.run import Run, StopRequest
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.ending.machines import UNANSWERED
from tests.lifecycle.sample_runs import NOW, WORLD, H, attempt, ended, machine_of, open_try, pulse, run_in

DONE = Seen(Baton("s", 1, done=Done("1.4.1", "runs/digits-7/results/g1/", ())))
LOOKUP_FAILED = Observation(
    machine=Absent(source="listing"), beat=Absent(source="listing"), lookup=Unknown("timeout"),
    baton=Unknown("timeout"),
)  # fmt: skip


def lost(status: Status, world: World, **times: object) -> Decision:
    run = run_in(status, attempt=attempt(**times), try_=open_try(attempt_number=4))
    return decide(run, LOOKUP_FAILED, world, NOW)


def test_silence_is_the_second_signal_only_where_beats_are_due_and_the_store_is_proven_fresh() -> None:
    assert lost(Status.RUNNING, WORLD, running_at=NOW - 7000).run.live_attempt is None
    assert lost(Status.LAUNCHING, WORLD).run.live_attempt is not None, "no beat is due while it boots"
    stale, doubted = replace(WORLD, fresh=frozenset()), replace(WORLD, breakers_open=frozenset({BEATS}))
    for world in (stale, doubted):
        assert lost(Status.RUNNING, world, running_at=NOW - 7000).run.live_attempt is not None


def test_an_unreadable_platform_gets_time_to_report_a_preemption() -> None:
    """A preemption is free, a machine that is merely gone is not: while the lookup fails, silence proves too little."""
    assert lost(Status.RUNNING, WORLD, started_at=NOW - 700, running_at=NOW - 700).run.live_attempt is not None
    waits = lost(Status.RUNNING, WORLD, started_at=NOW - 700, running_at=NOW - 700)
    assert waits.run.hold == f"{UNANSWERED}: {LOOKUP_FAILED.lookup.reason}"
    assert waits.events == ()
    assert waits.again, "limits apply in the same tick"
    assert decide(waits.run, LOOKUP_FAILED, WORLD, NOW).run.hold == waits.run.hold
    late = lost(Status.RUNNING, WORLD, started_at=NOW - 800, running_at=NOW - 800).run
    assert late.attempt is not None
    assert late.attempt.cause == Cause.ORPHANED
    blind = replace(WORLD, observing_since={machines_in(attempt().placement.zone): NOW - 60})
    read_anew = lost(Status.RUNNING, blind, started_at=NOW - 7000, running_at=NOW - 7000).run
    assert read_anew.live_attempt is not None, "the zone could not be read until a minute ago"


def over(**fields: object) -> Run:
    late = Policy(limits=Limits(deadline=NOW - 1))
    return run_in(
        Status.RECOVERING, **{"attempt": ended(Cause.ORPHANED, H), "policy": late, "pulse": pulse(), **fields}
    )


def test_at_the_deadline_the_baton_is_read_to_see_whether_the_lost_attempt_had_finished() -> None:
    assert decide(over(), Observation(), WORLD, NOW).wants == {"baton"}
    assert decide(over(), Observation(baton=DONE), WORLD, NOW).run.status == Status.FINISHING
    for baton in (Absent(), Seen(Baton("s", 1))):
        assert decide(over(), Observation(baton=baton), WORLD, NOW).run.cause == Cause.DEADLINE
    pending = replace(over(), status=Status.PENDING, attempt=None)
    assert decide(pending, Observation(baton=NOT_READ), WORLD, NOW).run.status == Status.FAILED


@pytest.mark.parametrize("status", [Status.PENDING, Status.WAITING, Status.RECOVERING])
@pytest.mark.parametrize("source", ["api", "marker"])
def test_a_stop_while_an_old_machine_is_still_there_is_one_event(status: Status, source: str) -> None:
    old = attempt()
    retiring = (Retiring(old.ref, old.launch_id, NOW, NOW),)
    run = replace(over(stop=StopRequest("ops", NOW, source=source), retiring=retiring), status=status)
    decision = decide(run, Observation(), WORLD, NOW)
    assert decision.run.status == Status.STOPPING
    kinds = [event.kind for event in decision.events]
    assert kinds == ([] if source == "api" else ["stop_requested"]), "the API has recorded it already"


def test_a_machine_after_the_stop_is_an_event_and_so_is_work_that_was_done_before_it() -> None:
    run = run_in(Status.STOPPING, try_=open_try(attempt_number=4), stop=StopRequest("ops", NOW))
    came = decide(run, Observation(machine=Seen(machine_of(attempt())), baton=Seen(Baton("s", 1))), WORLD, NOW)
    assert came.run.live_attempt is not None
    assert [event.kind for event in came.events] == ["obtained"]
    finished = decide(run, Observation(baton=DONE), WORLD, NOW)
    assert (finished.run.status, [event.kind for event in finished.events]) == ("finishing", ["finishing"])
