"""Submit: the table of RULES section 5, generated ids, idempotency, and nothing but the database in the request."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from supervisor.contract.identifiers import is_run_id
from supervisor.domain.errors import (
    CellFixed,
    InvalidRequest,
    KeyInFlight,
    KeyReused,
    RunActive,
    RunCompleted,
    RunIdTaken,
    RunStopping,
    SpecDiffers,
)
from supervisor.domain.run import Files, StopRequest
from supervisor.domain.status import Status
from supervisor.ports.store import KeptResponse
from supervisor.services.runs.keys import scope_of
from supervisor.services.runs.submit import SCOPE
from tests.fakes.callers import MEMBER
from tests.services.bed import COMMAND, Bed, body

OTHER = {"command": ["python", "other.py"], "limits": {"max_attempts": 3}}


def test_a_new_run_is_pending_and_the_loop_is_woken(bed: Bed) -> None:
    reply = bed.submit("digits-7", {**COMMAND, "labels": {"team": "a"}})
    assert (reply.status, reply.location) == (201, "/v1/runs/digits-7")
    assert body(reply)["status"] == "pending"
    assert body(reply)["labels"] == {"team": "a"}
    run = bed.run("digits-7")
    assert (run.generation, run.cell, run.owner) == (1, "local cell", "local")
    assert bed.events("digits-7") == ["submitted"]
    assert bed.wake.sets == 1


def test_the_request_asks_for_no_machine_and_touches_no_object(bed: Bed) -> None:
    bed.submit()
    assert not bed.objects.calls
    bed.submit("digits-7")
    assert not bed.provider.calls
    assert dict(bed.objects.calls) == {"pages": 1, ("pages", "runs/digits-7/"): 1}, "does an old run lie there?"
    bed.submit("digits-7")
    assert bed.objects.calls["pages"] == 1


def test_a_generated_id_is_a_readable_run_id(bed: Bed) -> None:
    names = {body(bed.submit())["run_id"] for _ in range(20)}
    assert len(names) == 20
    assert all(is_run_id(name) and len(name) == 10 and name.startswith("run-") for name in names)


def test_a_live_run_with_the_same_spec_is_given_back_unchanged(bed: Bed) -> None:
    bed.submit("digits-7")
    before = bed.run("digits-7")
    reply = bed.submit("digits-7")
    assert reply.status == 200
    assert bed.run("digits-7") == before
    assert bed.events("digits-7") == ["submitted"]


def test_a_live_run_with_another_spec_is_refused_with_the_difference(bed: Bed) -> None:
    bed.submit("digits-7", {**COMMAND, "env": {"TOKEN": "first-secret"}})
    with pytest.raises(RunActive) as refused:
        bed.submit("digits-7", {**OTHER, "env": {"TOKEN": "second-secret"}}, replace_spec=True)
    assert [pointer for pointer, _ in refused.value.errors] == ["#/spec/command", "#/spec/env/TOKEN", "#/spec/limits"]
    assert "secret" not in refused.value.detail
    assert bed.store.spec(bed.run("digits-7").key)["command"] == COMMAND["command"]


@pytest.mark.parametrize("status", [Status.STOPPED, Status.FAILED, Status.PARTIAL])
def test_an_ended_run_is_resumed_as_its_next_generation(bed: Bed, status: Status) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    bed.end("digits-7", status)
    reply = bed.submit("digits-7")
    assert reply.status == 200
    run = bed.run("digits-7")
    assert (run.status, run.generation) == (Status.PENDING, 2)
    assert bed.events("digits-7") == ["submitted", "resumed"]


def test_an_ended_run_takes_another_spec_only_with_replace_spec(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.end("digits-7")
    with pytest.raises(SpecDiffers):
        bed.submit("digits-7", OTHER)
    assert bed.run("digits-7").generation == 1
    reply = bed.submit("digits-7", OTHER, replace_spec=True)
    assert body(reply)["differs"] == ["#/spec/command", "#/spec/limits"]
    run = bed.run("digits-7")
    assert run.policy.limits.max_attempts == 3
    assert bed.store.spec(run.key) == OTHER


def test_a_completed_run_is_only_started_over(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.end("digits-7", Status.COMPLETED, files=Files(checkpoint_step=900))
    with pytest.raises(RunCompleted):
        bed.submit("digits-7")
    bed.submit("digits-7", rerun=True)
    run = bed.run("digits-7")
    assert (run.status, run.generation, run.rerun, run.files.checkpoint_step) == (Status.PENDING, 2, True, None)


def test_another_owners_run_id_is_taken_without_details(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.change("digits-7", owner="somebody")
    for status in (Status.PENDING, Status.STOPPED):
        bed.change("digits-7", status=status)
        with pytest.raises(RunIdTaken) as refused:
            bed.submit("digits-7", OTHER)
        assert not refused.value.errors
        assert not refused.value.meta


def test_the_cell_of_a_run_is_fixed(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.end("digits-7", cell="local other-bucket")
    with pytest.raises(CellFixed):
        bed.submit("digits-7")


def test_a_run_that_is_being_stopped_is_not_said_to_go_on(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.change("digits-7", stop=StopRequest("local", bed.clock.now()))
    with pytest.raises(RunStopping):
        bed.submit("digits-7")


def test_a_refused_spec_leaves_no_trace(bed: Bed) -> None:
    with pytest.raises(InvalidRequest):
        bed.submit("digits-7", {**COMMAND, "zones": ["mars-a"]}, key="k1")
    assert bed.store.find("digits-7") is None
    assert bed.submit("digits-7", key="k1").status == 201, "the key was not used up by a refusal"


# --- Idempotency-Key --------------------------------------------------------------------------------------------------


def test_the_same_key_and_body_give_the_first_answer_again(bed: Bed) -> None:
    first = bed.submit(key="k1")
    bed.clock.advance(60)
    again = bed.submit(key="k1")
    assert again == replace(first, replayed=True)
    assert len(bed.store.events(None, 0, 10)) == 1


def test_a_replay_does_not_validate_again(bed: Bed) -> None:
    """The deadline has passed: the stored response is still the response."""
    at = "2027-01-15T08:00:10+00:00"
    first = bed.submit("digits-7", {**COMMAND, "limits": {"deadline": at}}, key="k1")
    bed.clock.advance(60)
    assert bed.submit("digits-7", {**COMMAND, "limits": {"deadline": at}}, key="k1").body == first.body


def test_a_key_with_another_body_is_refused(bed: Bed) -> None:
    bed.submit(key="k1")
    with pytest.raises(KeyReused):
        bed.submit(spec=OTHER, key="k1")


def test_a_key_whose_first_request_is_not_answered_yet(bed: Bed) -> None:
    bed.submit(key="k1")
    with bed.store.begin(bed.clock.now()) as tx:
        kept = tx.take_key(scope_of(MEMBER, SCOPE), "k1", "", bed.clock.now())
        assert kept is not None
        tx.keep_response(scope_of(MEMBER, SCOPE), "k1", KeptResponse(kept.fingerprint, 0, "", ""))
    with pytest.raises(KeyInFlight):
        bed.submit(key="k1")


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", "ä"])
def test_a_key_must_be_short_and_plain(bed: Bed, key: str) -> None:
    with pytest.raises(InvalidRequest):
        bed.submit(key=key)


def test_many_at_once_make_one_run_per_key_and_one_per_id(any_bed: Bed) -> None:
    replies, errors = [], []

    def client(number: int) -> None:
        try:
            for turn in range(10):
                replies.append(any_bed.submit(key=f"key-{turn}"))
                replies.append(any_bed.submit(f"run-{turn}"))
        except Exception as error:  # noqa: BLE001 - told by the assertion below
            errors.append((number, error))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    created = [reply for reply in replies if reply.status == 201 and not reply.replayed]
    assert len(created) == 20
