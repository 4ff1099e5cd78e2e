"""The audit: one event and one log line for each change, with its caller and request; none where nothing changed."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from supervisor.domain.callers import LOCAL
from supervisor.domain.events import EventKind
from supervisor.domain.status import Status
from supervisor.ports.provider import LaunchRequest
from supervisor.ports.store import StoreDown
from supervisor.storage.rows import access
from supervisor.telemetry import logs as telemetry
from tests.api.test_owners import ask, people
from tests.services.bed import PLACE, Bed, Client

FIELDS = (telemetry.EVENT, telemetry.ACTOR, telemetry.OWNER, telemetry.RUN_ID, telemetry.REQUEST_ID)
SPEC = {"command": ["python", "train.py"], "env": {"PLACE": "kept-from-the-log"}}


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def lines(log: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    found = [vars(record) for record in log.records if vars(record).get(telemetry.ACTION) == "audit"]
    return [tuple(one[field] for field in FIELDS) for one in found]


def data(client: Client, run_id: str, kind: str) -> Any:
    events = ask(client, "ops", "GET", f"/v1/runs/{run_id}/events").json()["events"]
    return next(event["data"] for event in events if event["kind"] == kind)


def test_each_change_is_one_line_and_one_event(any_bed: Bed, log: pytest.LogCaptureFixture) -> None:
    client = people(any_bed)

    def post(who: str, path: str, body: object, number: int) -> None:
        headers = {"X-Request-ID": f"r-{number}"}
        ask(client, who, "POST", path, json=body, headers=headers)

    post("ann", "/v1/runs", {"run_id": "a-1", "spec": SPEC}, 1)
    post("ops", "/v1/runs/a-1/stop", {}, 2)
    post("ann", "/v1/runs/a-1/stop", {}, 3)  # it is being stopped already
    any_bed.change("a-1", status=Status.STOPPED)
    post("ann", "/v1/runs/a-1/resume", {}, 4)
    post("ann", "/v1/runs/a-1/resume", {}, 5)  # it is live already
    post("ann", "/v1/runs/a-1/approve", {"machine_id": "m"}, 6)  # refused
    post("ann", "/v1/runs", {"run_id": "a-2", "spec": {"command": 7}}, 7)  # refused
    post("ann", "/v1/runs?validate_only=true", {"run_id": "a-2", "spec": SPEC}, 8)  # only asked about
    assert lines(log) == [
        ("submitted", "ann's laptop", "ann", "a-1", "r-1"),
        ("stop_requested", "ops", "ann", "a-1", "r-2"),
        ("resumed", "ann's laptop", "ann", "a-1", "r-4"),
    ]
    assert "kept-from-the-log" not in log.text
    assert data(client, "a-1", "submitted") == {
        "request_id": "r-1", "token_id": "t-ann", "before": {"status": None, "generation": None},
        "after": {"status": "pending", "generation": 1},
    }  # fmt: skip
    told = data(client, "a-1", "resumed")
    assert (told["before"], told["after"]) == (
        {"status": "stopped", "generation": 1},
        {"status": "pending", "generation": 2},
    )
    assert data(client, "a-1", "stop_requested")["token_id"] == "t-ops"


def test_a_change_without_a_run_has_an_event_and_a_line_too(bed: Bed, log: pytest.LogCaptureFixture) -> None:
    client = people(bed)
    stockout = ask(client, "ops", "POST", "/v1/dev/stockout", json={"zones": ["local-a"], "for_s": 5})
    assert stockout.status_code == 200
    [line] = lines(log)
    assert line[:4] == ("disaster", "ops", "", "")
    [event] = ask(client, "ops", "GET", "/v1/events", params={"actor": "ops"}).json()["events"]
    assert event["data"]["zones"] == ["local-a"]


def test_a_disaster_is_in_the_history_of_its_run(bed: Bed) -> None:
    client = people(bed)
    bed.submit("digits-7")
    request = LaunchRequest("m-a1", "r", PLACE, bed.store.supervisor_id, "digits-7", "1.1.1", 3600.0)
    bed.train("digits-7", machine_id=bed.provider.launch(request).machine_id)
    for _ in range(2):  # the second time there is no machine left
        ask(client, "ops", "POST", "/v1/dev/kill", json={"run_id": "digits-7"})
    assert bed.events("digits-7").count("disaster") == 1
    assert data(client, "digits-7", "disaster")["machine"] == "m-a1"


def test_nothing_is_logged_that_was_not_committed(
    any_bed: Bed, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variant that logs inside the transaction tells of a run that there is not."""
    client = people(any_bed)

    def full(*_: object) -> None:
        raise StoreDown("the disk is full")

    monkeypatch.setattr(access, "keep_response", full)
    body = {"run_id": "a-1", "spec": SPEC}
    answer = ask(client, "ann", "POST", "/v1/runs", json=body, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 503
    assert any_bed.store.find("a-1") is None
    assert lines(log) == []


def test_only_what_differs_is_kept() -> None:
    event = LOCAL.changed(
        EventKind.CHANGED, "changed", {"labels": {"a": "1"}, "budget_usd": 5}, {"budget_usd": 5, "zones": ["b"]}
    )
    assert event.data == {"before": {"labels": {"a": "1"}, "zones": None}, "after": {"labels": None, "zones": ["b"]}}
