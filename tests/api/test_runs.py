"""The routes of runs: statuses, headers, fields; the client compares every response with its declaration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.contract import runfiles
from supervisor.contract.heartbeat import encode
from supervisor.domain.attempt import Bill
from supervisor.domain.machines import How
from supervisor.domain.run import Files, Outcome
from supervisor.domain.status import Status
from supervisor.ports.provider import LaunchRequest
from supervisor.services.reading.health import LoopStatus
from tests.fakes.meters import meters_of
from tests.services.bed import PLACE, Bed, Client, beat

SPEC = {"spec": {"command": ["python", "train.py"]}}


def submit(client: Client, run_id: str = "digits-7", **more: Any) -> Any:
    return client.post("/v1/runs", json={"run_id": run_id, **SPEC, **more})


def test_submit_and_look(client: Client) -> None:
    created = submit(client)
    assert created.status_code == 201
    assert created.headers["location"] == "/v1/runs/digits-7"
    run = created.json()
    assert (run["status"], run["warnings"], run["differs"]) == ("pending", [], [])
    assert client.get(created.headers["location"]).json()["run_id"] == "digits-7"


def test_a_run_without_an_id_gets_one(client: Client) -> None:
    created = client.post("/v1/runs", json=SPEC)
    assert client.get(created.headers["location"]).json()["run_id"] == created.json()["run_id"]


def test_an_image_is_accepted_with_a_warning(client: Client) -> None:
    created = client.post("/v1/runs", json={"spec": {**SPEC["spec"], "image": "repo/image@sha256:ab"}})
    assert created.status_code == 201
    assert "image" in created.json()["warnings"][0]


def test_an_idempotency_key_repeats_the_answer(client: Client, bed: Bed) -> None:
    headers = {"Idempotency-Key": "k-1"}
    first = client.post("/v1/runs", json=SPEC, headers=headers)
    bed.clock.advance(10)
    again = client.post("/v1/runs", json=SPEC, headers=headers)
    assert (again.status_code, again.text, again.headers["location"]) == (201, first.text, first.headers["location"])
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    other = client.post("/v1/runs", json={"spec": {"command": "other"}}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


@pytest.mark.parametrize(
    ("status", "more", "answer", "code"),
    [
        (None, {}, 200, None),
        (None, {"spec": {"command": "other"}}, 409, "RUN_ACTIVE"),
        (Status.STOPPING, {}, 409, "RUN_STOPPING"),
        (Status.STOPPED, {}, 200, None),
        (Status.FAILED, {"spec": {"command": "other"}}, 409, "SPEC_DIFFERS"),
        (Status.PARTIAL, {"spec": {"command": "other"}, "replace_spec": True}, 200, None),
        (Status.COMPLETED, {}, 409, "RUN_COMPLETED"),
        (Status.COMPLETED, {"rerun": True}, 200, None),
    ],
)
def test_a_known_run_id(
    client: Client, bed: Bed, status: Status | None, more: dict[str, Any], answer: int, code: str | None
) -> None:
    submit(client)
    if status is not None:
        bed.change("digits-7", status=status)
    told = submit(client, **more)
    assert told.status_code == answer
    if code is not None:
        assert told.json()["code"] == code


def test_the_list_has_filters_counts_and_pages(client: Client, bed: Bed) -> None:
    for number in range(5):
        labels = {"team": "a" if number % 2 else "b=c"}
        client.post("/v1/runs", json={"run_id": f"run-{number}", "spec": {**SPEC["spec"], "labels": labels}})
    bed.end("run-0", Status.FAILED)
    page = client.get("/v1/runs").json()
    assert [run["run_id"] for run in page["runs"]] == [f"run-{number}" for number in reversed(range(5))]
    assert page["summary"]["counts"] == {"pending": 4, "failed": 1}
    assert page["summary"]["last_tick_age_s"] == 1.0

    def found(**params: Any) -> list[str]:
        return [run["run_id"] for run in client.get("/v1/runs", params=params).json()["runs"]]

    assert found(status="failed") == ["run-0"]
    assert found(status=["failed", "pending"], label="team=b=c") == ["run-4", "run-2", "run-0"]
    assert found(label=["team=a", "team=b=c"]) == []
    assert found(q="n-3") == ["run-3"]
    assert found(owner="somebody") == []
    assert found(zone="local-a") == []
    assert found(created_after="2027-01-15T08:00:01+00:00") == []
    assert len(found(created_after="2027-01-15T07:59:59Z")) == 5
    assert len(found(page_size=0)) == 5
    assert len(found(page_size=10**12)) == 5
    first = client.get("/v1/runs", params={"page_size": 2}).json()
    second = client.get("/v1/runs", params={"page_size": 2, "cursor": first["next_cursor"]}).json()
    assert [run["run_id"] for run in second["runs"]] == ["run-2", "run-1"]


def test_attempts_events_and_logs(client: Client, bed: Bed) -> None:
    submit(client)
    bed.train("digits-7")
    bed.objects.put(runfiles.log_chunk("digits-7", 1, 1), b"hello\n")
    assert client.get("/v1/runs/digits-7/attempts").json()["attempts"][0]["machine_id"] == "id-1"
    events = client.get("/v1/runs/digits-7/events").json()["events"]
    assert [event["kind"] for event in events] == ["submitted"]
    assert len(client.get("/v1/events", params={"newest_first": "true"}).json()["events"]) == 1
    log = client.get("/v1/runs/digits-7/logs", params={"attempt": 1, "offset": 1})
    assert log.json()["text"] == "ello\n"
    assert log.headers["x-next-offset"] == "6"


def test_stop_and_resume(client: Client, bed: Bed) -> None:
    submit(client)
    stopped = client.post("/v1/runs/digits-7/stop")
    assert stopped.status_code == 202
    assert stopped.json()["stop"]["actor"] == "local"
    assert client.post("/v1/runs/digits-7/resume").json()["code"] == "RUN_STOPPING"
    bed.end("digits-7")
    assert client.post("/v1/runs/digits-7/stop").status_code == 200
    resumed = client.post("/v1/runs/digits-7/resume", json={"spec": {"command": "x"}, "replace_spec": True})
    assert resumed.status_code == 202
    run = resumed.json()
    assert (run["generation"], run["status"], run["differs"]) == (2, "pending", ["#/spec/command"])
    assert client.post("/v1/runs/digits-7/resume").status_code == 200


def test_approve(client: Client, bed: Bed) -> None:
    submit(client)
    seen = {"machine_id": "id-1", "results_sha256": "ab" * 32}
    assert client.post("/v1/runs/digits-7/approve", json=seen).json()["code"] == "NOTHING_TO_APPROVE"
    bed.train("digits-7")
    bed.end("digits-7", Status.AWAITING_TEARDOWN, files=Files(outcome=Outcome("ab" * 32, 3, 412, bed.clock.now(), 10)))
    other = client.post("/v1/runs/digits-7/approve", json={**seen, "machine_id": "id-2"})
    assert (other.status_code, other.json()["code"]) == (409, "APPROVAL_MISMATCH")
    shown = client.get("/v1/runs/digits-7").json()
    assert (shown["machine_id"], shown["results_manifest_sha256"]) == ("id-1", "ab" * 32)
    assert client.post("/v1/runs/digits-7/approve", json=seen).status_code == 202


def test_a_host_is_given_back_by_one_verb_and_its_end_is_confirmed_by_an_approval(client: Client, bed: Bed) -> None:
    bed.provider.meters = meters_of("local-a", how=How.ASK)
    submit(client)
    bed.train("digits-7")
    bed.end("digits-7", Status.AWAITING_TEARDOWN, files=Files(outcome=Outcome("ab" * 32, 3, 412, bed.clock.now(), 10)))
    (item,) = bed.run("digits-7").retiring
    bed.change("digits-7", retiring=(replace(item, bill=Bill(How.ASK, "terminate", announced=True)),))
    shown = client.get("/v1/runs/digits-7/teardown").json()
    assert (shown["host"], shown["how"], shown["approved"]) == ("local-a", "ask", None)
    assert [verb["verb"] for verb in shown["verbs"] if verb["usual"]] == ["terminate"]
    seen = {"machine_id": shown["machine_id"], "results_sha256": shown["results_manifest_sha256"]}
    odd = client.post("/v1/runs/digits-7/approve", json={**seen, "verb": "explode"})
    assert (odd.status_code, odd.json()["code"]) == (409, "VERB_NOT_OFFERED")
    assert client.post("/v1/runs/digits-7/approve", json={**seen, "verb": "stop"}).status_code == 202
    confirmed = client.post("/v1/runs/digits-7/approve", json={**seen, "meter_stopped": True})
    assert confirmed.status_code == 202
    approved = client.get("/v1/runs/digits-7/teardown").json()["approved"]
    assert (approved["verb"], approved["meter_stopped"]) == ("stop", True)
    (meter,) = client.get("/v1/machines").json()["meters"]
    assert (meter["host"], meter["state"], meter["runs"]) == ("local-a", "to_end", ["digits-7"])


def test_heartbeats(client: Client, bed: Bed) -> None:
    submit(client)
    bed.train("digits-7")
    address = "/v1/runs/digits-7/heartbeat"
    pushed = client.post(address, content=encode(beat("digits-7", 9)))
    assert pushed.json() == {"next_s": 10.0, "stop": False, "follow_logs": False}
    forged = client.post(address, content=encode(beat("digits-7", 10, nonce="guess")))
    assert (forged.status_code, forged.json()["code"]) == (403, "NONCE_REFUSED")
    assert client.post(address, content=b"x" * 11_000).status_code == 413
    assert client.post(address, content=b"[]").status_code == 422
    assert client.post("/v1/runs/nobody/heartbeat", content=encode(beat("nobody"))).status_code == 404
    assert bed.events("digits-7").count("beat_rejected") == 1, "one event for all of them"
    bed.end("digits-7")
    bed.inbox.forget("digits-7")
    ended = client.post(address, content=encode(beat("digits-7", 11)))
    assert (ended.status_code, ended.json()["code"]) == (409, "RUN_ENDED")


def test_health(client: Client, bed: Bed) -> None:
    assert client.get("/livez").json() == {"live": True}
    assert client.get("/readyz").json() == {"ready": True}
    checks = client.get("/readyz?verbose").json()["checks"]
    assert [check["name"] for check in checks] == ["database", "schema", "lease", "tick", "writes"]
    bed.loop = LoopStatus(None)
    not_ready = client.get("/readyz")
    assert not_ready.status_code == 503
    assert not not_ready.json()["ready"]
    assert client.get("/v1/doctor").json()["worst"] == "fail"


def test_disasters(client: Client, bed: Bed) -> None:
    submit(client)
    request = LaunchRequest("m-a1", "r", PLACE, bed.store.supervisor_id, "digits-7", "1.1.1", 3600.0)
    machine = bed.provider.launch(request)
    bed.train("digits-7", machine_id=machine.machine_id)
    for disaster, more in (("freeze", {}), ("preempt", {"notice_s": 5}), ("kill", {})):
        assert client.post(f"/v1/dev/{disaster}", json={"run_id": "digits-7", **more}).json()["done"] == disaster
    assert client.post("/v1/dev/kill", json={"run_id": "digits-7"}).status_code == 409
    stockout = client.post("/v1/dev/stockout", json={"zones": ["local-a"], "for_s": 60})
    assert stockout.json()["zones"] == ["local-a"]
    assert client.post("/v1/dev/stockout", json={"zones": ["mars-a"]}).status_code == 422


def test_a_list_of_named_runs_with_their_lines(bed: Bed, client: Client) -> None:
    for name in ("a-1", "a-2", "a-3"):
        bed.submit(name)
    told = client.get("/v1/runs?run_id=a-3&run_id=a-1&run_id=nobody&include=sparkline").json()
    assert [(run["run_id"], run["sparkline"]) for run in told["runs"]] == [("a-3", []), ("a-1", [])]
    assert told["summary"]["counts"] == {"pending": 2}
    assert "sparkline" not in client.get("/v1/runs").json()["runs"][0]
