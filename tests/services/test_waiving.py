"""Waivers: kept with the run and in its history, for the checks of G0 to G4 alone."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.domain.errors import CheckNotWaivable
from supervisor.domain.gates.checks import CHECKS, STRICT, Gate
from supervisor.services.gates.gates import show_gates
from supervisor.services.runs.changing import change
from supervisor.services.runs.waiving import WaiveRequest, waive
from tests.fakes.callers import MEMBER
from tests.services.bed import COMMAND, Bed, Client, body

REASON = "a disk of this box shows too little"
INODES = (WaiveRequest("inodes", REASON),)


def last_event(bed: Bed) -> Any:
    return bed.store.events("digits-7", 0, 1000)[-1].event


def test_a_waiver_at_the_submit_is_in_the_run_and_in_the_event_of_the_submit(bed: Bed) -> None:
    bed.submit("digits-7", waive=INODES)
    [waiver] = bed.run("digits-7").waivers
    assert (waiver.check, waiver.reason, waiver.actor) == ("inodes", REASON, MEMBER.actor)
    event = last_event(bed)
    assert event.kind == "submitted"
    assert event.text == f"Submitted by {MEMBER.actor}. {MEMBER.actor} waived inodes (G0): {REASON}."
    assert event.data["checks"] == ["inodes"]


def test_a_submit_without_waivers_says_nothing_of_them(bed: Bed) -> None:
    bed.submit("digits-7")
    assert bed.run("digits-7").waivers == ()
    assert "checks" not in last_event(bed).data


def test_a_waiver_of_an_existing_run_is_an_event_of_its_own_and_once(bed: Bed) -> None:
    bed.submit("digits-7")
    for _ in range(2):
        run = change(bed.parts, "digits-7", waive(INODES[0], MEMBER))
    assert [waiver.check for waiver in run.waivers] == ["inodes"]
    assert bed.events("digits-7").count("check_waived") == 1
    data = last_event(bed).data
    assert (data["before"], data["after"]) == ({"waivers.inodes": None}, {"waivers.inodes": REASON})


def test_another_reason_replaces_the_first(bed: Bed) -> None:
    bed.submit("digits-7", waive=INODES)
    run = change(bed.parts, "digits-7", waive(WaiveRequest("inodes", "measured again"), MEMBER))
    assert [waiver.reason for waiver in run.waivers] == ["measured again"]
    assert last_event(bed).data["before"] == {"waivers.inodes": REASON}


def test_a_repeated_submit_of_a_live_run_adds_its_waivers(bed: Bed) -> None:
    bed.submit("digits-7")
    reply = bed.submit("digits-7", waive=INODES)
    assert reply.status == 200
    assert [waiver.check for waiver in bed.run("digits-7").waivers] == ["inodes"]
    assert bed.events("digits-7") == ["submitted", "check_waived"]


def test_a_resumed_run_keeps_its_waivers_and_gets_new_ones(bed: Bed) -> None:
    bed.submit("digits-7", waive=INODES)
    bed.end("digits-7")
    bed.submit("digits-7", waive=(WaiveRequest("notice", "saves are small"),))
    assert [waiver.check for waiver in bed.run("digits-7").waivers] == ["inodes", "notice"]
    assert last_event(bed).kind == "resumed"


def test_one_key_with_other_waivers_is_another_request(bed: Bed) -> None:
    first = bed.submit(key="k", waive=INODES)
    assert body(bed.submit(key="k", waive=INODES))["run_id"] == body(first)["run_id"]
    client = Client(bed.services)
    request = {"spec": COMMAND, "waive": [{"check": "notice", "reason": "x"}]}
    answer = client.post("/v1/runs", json=request, headers={"Idempotency-Key": "k2"})
    again = client.post("/v1/runs", json={"spec": COMMAND}, headers={"Idempotency-Key": "k2"})
    assert (answer.status_code, again.status_code) == (201, 422)


@pytest.mark.parametrize("check", [name for name, check in CHECKS.items() if check.gate in STRICT])
def test_nothing_of_the_last_two_gates_can_be_waived(bed: Bed, check: str) -> None:
    bed.submit("digits-7")
    with pytest.raises(CheckNotWaivable, match="spot approve RUN") as refusal:
        change(bed.parts, "digits-7", waive(WaiveRequest(check, REASON), MEMBER))
    assert refusal.value.meta["gate"] in ("G5", "G6")
    assert bed.run("digits-7").waivers == ()


def test_the_api_refuses_them_at_the_submit_too_and_stores_nothing(bed: Bed) -> None:
    request = {"run_id": "digits-7", "spec": COMMAND, "waive": [{"check": "approved", "reason": "hurry"}]}
    answer = Client(bed.services).post("/v1/runs", json=request)
    assert (answer.status_code, answer.json()["code"]) == (409, "CHECK_NOT_WAIVABLE")
    assert answer.json()["errors"][0]["pointer"] == "#/waive/0/check"
    assert bed.store.find("digits-7") is None


def test_an_unknown_check_is_refused_with_the_nearest_name(bed: Bed) -> None:
    bed.submit("digits-7")
    client = Client(bed.services)
    for name, hint in (("inode", "did you mean inodes?"), ("zzz", "docs/providers/gates.md lists them")):
        answer = client.post("/v1/runs/digits-7/gates/waivers", json={"check": name, "reason": REASON})
        assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST")
        assert hint in answer.json()["detail"]
    assert bed.run("digits-7").waivers == ()


def test_a_waived_fail_lets_the_gate_pass_and_is_shown_as_waived(bed: Bed) -> None:
    bed.submit("digits-7", {"command": "pip install torch && python train.py"})
    answer = Client(bed.services).post(
        "/v1/runs/digits-7/gates/waivers", json={"check": "own_environment", "reason": "it is quick"}
    )
    assert answer.status_code == 200
    services = bed.services
    shown = show_gates(services.parts, services.queries, services.loop, "digits-7")
    [audit] = [gate for gate in shown["gates"] if gate["gate"] == Gate.AUDIT]
    assert [item["check"] for item in audit["verdicts"] if item["waived"]] == ["own_environment"]
    assert "own_environment" in audit["text"].partition("is waived")[2]
    assert shown["waivers"][0]["reason"] == "it is quick"


def test_waivers_survive_a_restart(bed: Bed) -> None:
    bed.submit("digits-7", waive=INODES)
    key = bed.run("digits-7").key
    again = bed.store.active(bed.run("digits-7").cell, {})[0]
    assert [waiver.reason for run in again if run.key == key for waiver in run.waivers] == [REASON]
