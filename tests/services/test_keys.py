"""Idempotency keys on requests about a run: the first response is repeated, although the run has changed since."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import httpx
import pytest
import sqlalchemy as sa

from supervisor.domain.run import Files, Outcome, Person
from supervisor.domain.status import Status
from supervisor.ports.objectstore import StoreUnavailable
from supervisor.ports.store import KeptResponse, KeyHeld
from supervisor.storage.engine.statements import Statement
from supervisor.storage.rows import access
from supervisor.storage.store import open_store
from tests.api.test_owners import ask, people
from tests.services.bed import COMMAND, Bed, Client

RUN = "/v1/runs/a-1"


def keyed(client: Client, path: str, key: str = "k-1", body: object = None, who: str = "ann") -> httpx.Response:
    return ask(client, who, "POST", path, json=body, headers={"Idempotency-Key": key})


@pytest.fixture
def client(any_bed: Bed) -> Client:
    client = people(any_bed)
    ask(client, "ann", "POST", "/v1/runs", json={"run_id": "a-1", "spec": COMMAND})
    return client


def same(first: httpx.Response, again: httpx.Response) -> None:
    assert first.status_code < 300
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    for name in ("etag", "content-type"):
        assert again.headers[name] == first.headers[name]
    assert (again.status_code, again.text) == (first.status_code, first.text)


def test_a_late_repeat_of_a_stop_stops_no_later_generation(client: Client, any_bed: Bed) -> None:
    first = keyed(client, f"{RUN}/stop")
    any_bed.end("a-1")
    any_bed.resume("a-1")
    same(first, keyed(client, f"{RUN}/stop"))
    assert any_bed.run("a-1").stop is None
    assert keyed(client, f"{RUN}/stop", "k-2").json()["stop"] is not None


def test_a_stop_that_changed_nothing_is_remembered_too(client: Client, any_bed: Bed) -> None:
    any_bed.end("a-1", Status.FAILED)
    first = keyed(client, f"{RUN}/stop")
    assert first.status_code == 200
    any_bed.resume("a-1")
    same(first, keyed(client, f"{RUN}/stop"))
    assert any_bed.run("a-1").stop is None


def test_a_late_repeat_of_a_resume_starts_no_other_generation(client: Client, any_bed: Bed) -> None:
    any_bed.end("a-1")
    body = {"spec": {**COMMAND, "labels": {"team": "new"}}, "replace_spec": True}
    first = keyed(client, f"{RUN}/resume", body=body)
    assert (first.status_code, first.json()["generation"]) == (202, 2)
    assert first.json()["labels"] == {"team": "new"}
    any_bed.end("a-1", Status.AWAITING_TEARDOWN)  # which alone would be refused now
    same(first, keyed(client, f"{RUN}/resume", body=body))
    any_bed.end("a-1", Status.FAILED)
    same(first, keyed(client, f"{RUN}/resume", body=body))
    assert any_bed.run("a-1").generation == 2
    other = keyed(client, f"{RUN}/resume", body={"rerun": True})
    assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


def test_a_repeated_approval_is_answered_when_nothing_awaits_it_any_more(client: Client, any_bed: Bed) -> None:
    outcome = Outcome("ab" * 32, 3, 33, any_bed.clock.now(), 100)
    any_bed.train("a-1")
    any_bed.change("a-1", status=Status.AWAITING_TEARDOWN, files=Files(outcome=outcome), person=Person(why="look"))
    body = {"machine_id": "id-1", "results_sha256": "ab" * 32}
    first = keyed(client, f"{RUN}/approve", body=body)
    any_bed.change("a-1", status=Status.COMPLETED)
    same(first, keyed(client, f"{RUN}/approve", body=body))
    assert keyed(client, f"{RUN}/approve", "k-2", {**body, "machine_id": "x"}).status_code == 409


def test_a_late_repeat_of_a_purge_deletes_nothing_of_a_later_generation(client: Client, any_bed: Bed) -> None:
    any_bed.end("a-1", settled=True)
    first = keyed(client, f"{RUN}/purge", body={"confirm": "a-1"})
    any_bed.resume("a-1")
    any_bed.end("a-1", Status.COMPLETED, settled=True)
    any_bed.objects.put("runs/a-1/results/g2/model.pt", b"new")
    same(first, keyed(client, f"{RUN}/purge", body={"confirm": "a-1"}))
    assert any_bed.objects.stat("runs/a-1/results/g2/model.pt").size == 3
    assert keyed(client, f"{RUN}/purge", body={"confirm": "a-2"}).json()["code"] == "IDEMPOTENCY_KEY_REUSED"


def test_no_answer_is_made_with_a_second_connection(
    client: Client, any_bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Postgres as many simultaneous requests as connections would wait for each other."""
    database = any_bed.store.database  # type: ignore[attr-defined]
    writing, reading, open_ones = database.writing_as, database.reading, []

    @contextmanager
    def writes(made: Callable[[object], object]) -> Iterator[object]:
        with writing(made) as session:
            open_ones.append(session)
            yield session
            open_ones.pop()

    def reads() -> object:
        assert not open_ones
        return reading()

    monkeypatch.setattr(database, "writing_as", writes)
    monkeypatch.setattr(database, "reading", reads)
    assert keyed(client, f"{RUN}/stop").status_code == 202
    any_bed.end("a-1")
    assert keyed(client, f"{RUN}/stop", "k-2").status_code == 200
    assert keyed(client, f"{RUN}/resume", body={"replace_spec": False}).status_code == 202
    any_bed.train("a-1")
    outcome = Outcome("ab" * 32, 3, 33, any_bed.clock.now(), 100)
    any_bed.change("a-1", status=Status.AWAITING_TEARDOWN, files=Files(outcome=outcome), person=Person(why="look"))
    body = {"machine_id": any_bed.run("a-1").attempt.machine_id, "results_sha256": "ab" * 32}  # type: ignore[union-attr]
    assert keyed(client, f"{RUN}/approve", body=body).status_code == 202
    assert keyed(client, "/v1/runs", body={"run_id": "a-9", "spec": COMMAND}).status_code == 201


def test_a_refusal_uses_up_no_key(client: Client, any_bed: Bed) -> None:
    assert keyed(client, f"{RUN}/resume", body={"spec": {"command": "other"}}).status_code == 409
    any_bed.end("a-1")
    assert keyed(client, f"{RUN}/resume").status_code == 202


def test_keys_are_of_one_token_one_method_and_one_path(client: Client, any_bed: Bed) -> None:
    ask(client, "ann", "POST", "/v1/runs", json={"run_id": "a-2", "spec": COMMAND})
    for who, path in (("ann", f"{RUN}/stop"), ("ann", "/v1/runs/a-2/stop"), ("ops", f"{RUN}/stop")):
        assert "idempotency-replayed" not in keyed(client, path, who=who).headers
    twice = [("Authorization", "ann"), ("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    assert client.post(f"{RUN}/stop", headers=twice).json()["code"] == "INVALID_REQUEST"


def test_the_first_answer_comes_again_while_the_object_store_is_away(
    client: Client, any_bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_bed.end("a-1")
    body = {"run_id": "a-1", "spec": COMMAND}
    first = keyed(client, "/v1/runs", body=body)
    any_bed.end("a-1")

    def away(*_: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(any_bed.objects, "stat", away)
    same(first, keyed(client, "/v1/runs", body=body))
    assert keyed(client, "/v1/runs", "k-2", body).status_code == 503


def test_a_request_during_the_first_one_gets_its_response(any_bed: Bed) -> None:
    store, now, answer = any_bed.store, any_bed.clock.now(), KeptResponse("print", 202, "{}", "")
    found: list[KeptResponse | None] = []

    def second() -> None:
        with store.begin(now) as tx:
            found.append(tx.take_key("s", "k", "print", now))

    thread = threading.Thread(target=second)
    with store.begin(now) as tx:
        tx.take_key("s", "k", "print", now)
        thread.start()
        tx.keep_response("s", "k", answer)
    thread.join(20)
    assert found == [answer]


def test_a_request_that_waits_too_long_is_told_to_retry(postgres_database: str) -> None:
    with (
        closing(open_store(postgres_database, migrate=True)) as store,
        store.database.writing() as first,
        store.database.writing() as second,
    ):
        assert access.take_key(first, "s", "k", "print", 0.0) is None
        second.run(Statement(lambda _: sa.text("SET LOCAL lock_timeout = '50ms'")), {})
        with pytest.raises(KeyHeld):
            access.take_key(second, "s", "k", "print", 0.0)


def test_that_is_a_conflict_with_a_pause(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def held(*_: object) -> None:
        raise KeyHeld

    monkeypatch.setattr(access, "take_key", held)
    answer = keyed(client, f"{RUN}/stop")
    assert (answer.status_code, answer.json()["code"]) == (409, "IDEMPOTENCY_KEY_IN_FLIGHT")
    assert answer.headers["retry-after"] == "1"
