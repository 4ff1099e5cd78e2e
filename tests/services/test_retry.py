"""Retry now; and health, the event and the patrol agree on runs that need a person."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.causes import NEEDS_PERSON, Cause
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Verdict, Where
from supervisor.domain.errors import InvalidRequest, NothingToRetry
from supervisor.domain.machines import ZoneRecord, offer_key
from supervisor.domain.run import Person, Refusal, Waiting
from supervisor.domain.status import Status
from supervisor.lifecycle.events.patrol import problem
from supervisor.services.runs.actions import retry
from supervisor.services.runs.changing import change
from supervisor.services.runs.submit import SubmitRequest, submit
from tests.scenarios.user_verbs import ACTOR
from tests.services.bed import COMMAND, Bed


def waits(bed: Bed, cause: Cause = Cause.QUOTA) -> float:
    bed.submit("digits-7")
    now = bed.clock.now()
    for offer in bed.provider.offers():
        bed.store.put_zone("local cell", offer_key(offer.placement), ZoneRecord(2, now + 600, cause, "no room"))
    bed.change(
        "digits-7", status=Status.WAITING, cause=cause, detail="no room", waiting=Waiting(since=now), next_at=now + 600
    )
    return now


def test_a_waiting_run_is_due_now_and_its_zones_are_tried_again(bed: Bed) -> None:
    now = waits(bed)
    bed.wake.wait(0.0)
    after = change(bed.parts, "digits-7", retry(bed.parts, ACTOR))
    assert (after.status, after.next_at) == (Status.WAITING, None)
    records = bed.store.zones("local cell")
    spot = [records[offer_key(one.placement)] for one in bed.provider.offers() if one.placement.spot]
    assert {(one.cool_until, one.failures) for one in spot} == {(now, 2)}
    assert bed.events("digits-7")[-1] == "retry_requested"
    assert bed.wake.wait(0.0), "the loop ticks at once"


def test_a_run_that_asks_goes_on_and_has_not_waited_for_capacity(bed: Bed) -> None:
    """Broken variant: the hours until the answer counted as a wait for capacity, and the next tick ended the run."""
    bed.submit("digits-7", {**COMMAND, "limits": {"wait_for_capacity_s": 600}})
    attempt, now = bed.train("digits-7").attempt, bed.clock.now()
    assert attempt is not None
    verdict = Verdict("U3.signal", Certainty.CERTAIN, Cause.KILLED, Where.MACHINE, True, Retry.ASK, "SIGTERM")
    over = replace(attempt, ended_at=now - 9000, gone_at=now - 9000, cause=Cause.KILLED, verdict=verdict)
    asking = bed.change(
        "digits-7", status=Status.WAITING, cause=Cause.KILLED, attempt=over, waiting=Waiting(since=now - 9000)
    )
    assert asking.asks
    after = change(bed.parts, "digits-7", retry(bed.parts, ACTOR))
    assert (after.status, after.waiting, after.asks) == (Status.RECOVERING, Waiting(), False)
    assert bed.events("digits-7")[-1] == "retry_requested"
    assert (after.counters, after.attempt) == (asking.counters, asking.attempt)


@pytest.mark.parametrize(
    ("status", "words"),
    [(Status.RUNNING, "does not wait for a next try"), (Status.FAILED, "spot resume digits-7"),
     (Status.FINISHING, "retries by itself")],
)  # fmt: skip
def test_a_run_without_a_wait_is_refused_with_advice(bed: Bed, status: Status, words: str) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    bed.change("digits-7", status=status, person=Person(why="1 file" if status == Status.FINISHING else ""))
    with pytest.raises(NothingToRetry, match=words):
        change(bed.parts, "digits-7", retry(bed.parts, ACTOR))


@pytest.mark.parametrize("status", [Status.WAITING, Status.RECOVERING])
def test_a_waiting_run_asks_places_again_whose_gpus_did_not_work(bed: Bed, status: Status) -> None:
    waits(bed, Cause.GPU_UNAVAILABLE)
    refused = Refusal("local-a", "cpu", True, bed.clock.now() - 60, Cause.GPU_UNAVAILABLE, "cuInit says 803")
    bed.change("digits-7", status=status, refusals=(refused,))
    after = change(bed.parts, "digits-7", retry(bed.parts, ACTOR))
    assert after.refusals == (() if status == Status.WAITING else (refused,))


def test_a_run_that_is_being_launched_is_left_as_it_is(bed: Bed) -> None:
    bed.submit("digits-7")
    run = bed.change("digits-7", status=Status.LAUNCHING)
    assert change(bed.parts, "digits-7", retry(bed.parts, ACTOR)) == run


@pytest.mark.parametrize("cause", [*sorted(NEEDS_PERSON), Cause.NO_CAPACITY])
def test_health_event_and_patrol_agree_on_who_is_needed(bed: Bed, cause: Cause) -> None:
    waits(bed, cause)
    run = bed.run("digits-7")
    needed = cause != Cause.NO_CAPACITY
    found = problem(run, bed.clock.now())
    assert found is not None
    assert found.of_person is needed
    assert bed.services.queries.show("digits-7")["needs_person"] == ("no room" if needed else "")


def test_a_secret_that_cannot_be_read_here_is_refused_at_the_submit(bed: Bed, tmp_path: Path) -> None:
    missing, there = tmp_path / "missing", tmp_path / "there"
    there.write_text("value")
    spec = {**COMMAND, "secrets": {"API_KEY": f"file:{missing}"}}
    with pytest.raises(InvalidRequest, match=r"secret API_KEY: .*cannot be read") as refused:
        submit(bed.parts, SubmitRequest(spec, run_id="digits-7"), ACTOR)
    assert refused.value.errors[0][0] == "#/spec/secrets/API_KEY"
    assert bed.store.find("digits-7") is None
    readable = replace(SubmitRequest(spec, run_id="digits-7"), spec={**spec, "secrets": {"API_KEY": f"file:{there}"}})
    assert submit(bed.parts, readable, ACTOR).status == 201
