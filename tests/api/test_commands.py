"""Commands beside a training over the API: who may, when, what stands in the history, what became of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from supervisor.contract import runfiles
from supervisor.contract.identifiers import nonce_hash
from supervisor.contract.runfiles import decode_orders
from supervisor.domain.callers import Caller, Scope
from supervisor.domain.status import Status
from supervisor.services.runs import orders
from supervisor.services.runs.orders import audited
from tests.bundles import bundle_of
from tests.services.bed import NONCE, Bed, Client, beat

RUN = "/v1/runs/digits-7"
EXEC = frozenset({Scope.READ, Scope.WRITE, Scope.EXEC})
PEOPLE = {
    "ann": Caller("ann", "ann", EXEC, "t-1"),
    "plain": Caller("ann", "ann's script", frozenset({Scope.READ, Scope.WRITE}), "t-2"),
    "only": Caller("ann", "only", frozenset({Scope.EXEC}), "t-3"),
    "bob": Caller("bob", "bob", EXEC, "t-4"),
    "ops": Caller("ops", "ops", frozenset({Scope.ADMIN}), "t-5"),
}


@pytest.fixture
def house(bed: Bed) -> Client:
    """A run of Ann's that trains. A client whose `Authorization` is the name of who asks."""

    def identify(authorization: str, request_id: str) -> Caller:
        return replace(PEOPLE[authorization], request_id=request_id)

    client = Client(replace(bed.services, identify=identify))
    name, raw = bundle_of()
    headers = {"content-type": "application/gzip"}
    ask(client, "ann", "PUT", f"/v1/code/{name}", content=raw, headers=headers)
    spec = {"command": ["python", "train.py"], "code": name}
    assert ask(client, "ann", "POST", "/v1/runs", json={"run_id": "digits-7", "spec": spec}).status_code == 201
    bed.train("digits-7")
    return client


def ask(client: Client, who: str, method: str, path: str, **more: Any) -> httpx.Response:
    return client.request(method, path, headers={"Authorization": who, **more.pop("headers", {})}, **more)


def send(client: Client, who: str = "ann", *words: str, **more: Any) -> httpx.Response:
    return ask(client, who, "POST", f"{RUN}/commands", json={"command": list(words or ("nvidia-smi",)), **more})


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def rows(bed: Bed) -> list[dict[str, Any]]:
    return [dict(row) for row in decode_orders(bed.objects.get(runfiles.orders("digits-7"))[0]).commands]


def test_a_command_is_signed_for_the_launch_and_audited(bed: Bed, house: Client) -> None:
    sent = send(house, "ann", "sh", "-c", "nvidia-smi -q", folder="lib", timeout_s=5)
    assert sent.status_code == 201, sent.text
    assert (sent.json()["state"], sent.json()["kind"]) == ("waiting", "exec")
    [row] = rows(bed)
    assert (row["id"], row["launch_id"]) == (sent.json()["command_id"], "1.1.1")
    assert row["words"] == ["sh", "-c", "nvidia-smi -q"]
    assert row["mac"] == runfiles.signature(row, nonce_hash(NONCE))
    assert row["mac"] != runfiles.signature({**row, "timeout_s": 6.0}, nonce_hash(NONCE))
    [event] = [each.event for each in bed.store.events("digits-7", 0, 100) if each.event.kind == "command_sent"]
    assert (event.actor, event.text) == ("ann", "Command sent by ann: sh -c nvidia-smi -q.")
    assert (event.data["command_id"], event.data["token_id"], event.data["attempt"]) == (row["id"], "t-1", 1)
    assert bed.inbox.receive("digits-7", _raw()).orders == 1


def _raw() -> bytes:
    from supervisor.contract.heartbeat import encode

    return encode(beat("digits-7", 9))


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        ("ann", 201), ("only", 201), ("plain", (403, "SCOPE_MISSING")), ("bob", (404, "RUN_NOT_FOUND")),
        ("ops", (403, "FORBIDDEN")),
    ],
)  # fmt: skip
def test_only_its_owner_with_the_scope_may(bed: Bed, house: Client, who: str, expected: Any) -> None:
    answer = send(house, who)
    assert (answer.status_code if expected == 201 else refusal(answer)) == expected
    if expected != 201:
        assert not [each for each in bed.events("digits-7") if each == "command_sent"]
        command_id = send(house, "ann").json()["command_id"]
        shown = ask(house, who, "GET", f"{RUN}/commands/{command_id}")
        assert shown.status_code in (403, 404), "its output is not for everyone who may read the run"


def test_a_setting_lets_admins_run_commands_for_others(bed: Bed, house: Client) -> None:
    def identify(authorization: str, request_id: str) -> Caller:
        return PEOPLE[authorization]

    client = Client(replace(bed.services, identify=identify, exec_for_others=True))
    assert send(client, "ops").status_code == 201
    assert refusal(send(client, "bob")) == (404, "RUN_NOT_FOUND")


def test_a_run_without_a_machine_refuses(bed: Bed, house: Client) -> None:
    for status in (Status.WAITING, Status.RECOVERING, Status.FINISHING):
        bed.change("digits-7", status=status)
        answer = send(house)
        assert refusal(answer) == (409, "COMMAND_REFUSED")
        assert str(status) in answer.json()["detail"]
    bed.end("digits-7")
    assert refusal(send(house)) == (409, "RUN_ENDED")
    assert not [each for each in bed.events("digits-7") if each == "command_sent"]


def test_secrets_are_not_in_the_history(bed: Bed, house: Client) -> None:
    send(house, "ann", "curl", "-H", "Authorization: Bearer abcdefghijklmnopqrstuvwx", "--api-key", "hunter2")
    [event] = [each.event for each in bed.store.events("digits-7", 0, 100) if each.event.kind == "command_sent"]
    assert "hunter2" not in event.text + json.dumps(event.data)
    assert "abcdefghijkl" not in event.text + json.dumps(event.data)
    assert event.text.startswith("Command sent by ann: curl -H")
    assert audited(["env", "TOKEN=hunter2xx", "train"]) == "env TOKEN=••• train"
    assert len(audited(["x" * 9000])) <= 300


def test_what_became_of_it(bed: Bed, house: Client) -> None:
    command_id = send(house).json()["command_id"]
    path, key = f"{RUN}/commands/{command_id}", runfiles.command_result("digits-7", command_id)

    def shown() -> dict[str, Any]:
        return dict(ask(house, "ann", "GET", path).json())

    assert shown()["state"] == "waiting"
    bed.objects.put(key, json.dumps({"kind": "exec", "state": "running", "output": "GPU 0\n"}).encode())
    assert (shown()["state"], shown()["output"]) == ("running", "GPU 0\n")
    done = {"kind": "exec", "state": "done", "output": "GPU 0\n", "exit_code": 0, "dropped": 7, "ran_s": 0.5}
    bed.objects.put(key, json.dumps(done).encode())
    assert (shown()["state"], shown()["exit_code"], shown()["dropped_bytes"]) == ("done", 0, 7)
    for torn in (b"{", b"[]", b"x" * 1_100_000):
        bed.objects.put(key, torn)
        assert shown()["state"] == "lost"
    bed.objects.put(key, json.dumps({"state": "done", "exit_code": "1", "output": 5, "ran_s": "x"}).encode())
    assert (shown()["exit_code"], shown()["output"], shown()["ran_s"]) == (None, "5", None)
    assert refusal(ask(house, "ann", "GET", f"{RUN}/commands/{'0' * 16}")) == (404, "COMMAND_NOT_FOUND")
    assert refusal(ask(house, "ann", "GET", f"{RUN}/commands/x")) == (404, "COMMAND_NOT_FOUND")


def test_one_that_no_machine_takes_is_taken_back(bed: Bed, house: Client) -> None:
    command_id = send(house).json()["command_id"]
    bed.clock.advance(orders.START_WITHIN_S + 1)
    shown = ask(house, "ann", "GET", f"{RUN}/commands/{command_id}").json()
    assert shown["state"] == "refused"
    assert bed.objects.stat(runfiles.command_result("digits-7", command_id)), "so its machine cannot begin it later"


def test_one_whose_machine_is_gone_is_lost(bed: Bed, house: Client) -> None:
    command_id = send(house).json()["command_id"]
    bed.objects.put(runfiles.command_result("digits-7", command_id), b'{"kind": "exec", "state": "running"}')
    bed.train("digits-7", 2)
    assert ask(house, "ann", "GET", f"{RUN}/commands/{command_id}").json()["state"] == "lost"


def test_one_that_has_left_the_orders_runs_no_more(bed: Bed, house: Client) -> None:
    """Broken variant: it was shown as running for ever, and `spot exec` waited as long."""
    command_id = send(house, timeout_s=600.0).json()["command_id"]
    bed.objects.put(runfiles.command_result("digits-7", command_id), b'{"kind": "exec", "state": "running"}')
    for after_s, state in ((orders.START_WITHIN_S + 600, "running"), (orders.LATE_S + 1, "lost")):
        bed.clock.advance(after_s)
        assert ask(house, "ann", "GET", f"{RUN}/commands/{command_id}").json()["state"] == state
    assert orders.KEPT_S > orders.START_WITHIN_S + 600 + orders.LATE_S, "its last words are due before it leaves"
    bed.clock.advance(orders.KEPT_S)
    assert send(house).status_code == 201
    assert command_id not in [row["id"] for row in rows(bed)]
    assert ask(house, "ann", "GET", f"{RUN}/commands/{command_id}").json()["state"] == "lost"


def test_there_are_bounds(bed: Bed, house: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "RESULTS_MAX", 3)
    for _ in range(orders.OPEN_MAX):
        command_id = send(house).json()["command_id"]
        bed.clock.advance(1)
        bed.objects.put(runfiles.command_result("digits-7", command_id), b"{}")
    assert refusal(send(house)) == (409, "COMMAND_REFUSED")
    bed.clock.advance(orders.KEPT_S)
    assert send(house).status_code == 201
    assert len(rows(bed)) == 1
    prefix = "runs/digits-7/commands/"
    assert len([info for page in bed.objects.pages(prefix) for info in page.objects]) == 3
    for words, more in (([], {}), (["a"] * 300, {}), (["x" * 8000] * 5, {}), (["x"], {"timeout_s": 601})):
        bad = {"command": words, **more}
        assert refusal(ask(house, "ann", "POST", f"{RUN}/commands", json=bad)) == (422, "INVALID_REQUEST")


def test_files_of_the_machine(bed: Bed, house: Client) -> None:
    sent = ask(house, "plain", "POST", f"{RUN}/code/collected", json={"paths": ["lib"]})
    assert (sent.status_code, sent.json()["kind"]) == (201, "collect")
    path = f"{RUN}/commands/{sent.json()['command_id']}"
    assert refusal(ask(house, "plain", "GET", f"{path}/files")) == (404, "COMMAND_NOT_FOUND")
    names = "digits-7", sent.json()["command_id"]
    bed.objects.put(runfiles.command_result(*names), b'{"kind": "collect", "state": "done", "files": 1}')
    bed.objects.put(runfiles.command_files(*names), b"gzip")
    assert ask(house, "plain", "GET", path).json()["files"] == 1
    answer = ask(house, "plain", "GET", f"{path}/files")
    assert (answer.content, answer.headers["content-type"]) == (b"gzip", "application/gzip")
    assert not [each for each in bed.events("digits-7") if each == "command_sent"]


ROW = {"id": "0" * 16, "kind": "exec", "launch_id": "1.1.1", "at": 0.0, "timeout_s": 1.0, "words": ["id"]}
DELTA = {"first": 1, "last": 1, "key": "runs/digits-7/sync/1", "sha256": "0", "size": 1}


def forged(*commands: object, **delta: object) -> dict[str, Any]:
    synced = {"code": bundle_of()[0], "revision": 1, "tree": "", "git": "", "deltas": [{**DELTA, **delta}]}
    return {"version": 1, "number": 3, "synced": synced if delta else None, "commands": commands}


@pytest.mark.parametrize(
    "orders",
    [
        forged({}),
        forged({**ROW, "at": "now"}),
        forged({**ROW, "at": None}),
        forged({**ROW, "id": ["x"]}),
        forged({**ROW, "timeout_s": {}}),
        forged(key=["x"]),
        forged(key="runs/cats-1/baton.json"),
        forged(last="x"),
    ],
)
def test_orders_that_a_training_has_forged_are_refused_as_torn(bed: Bed, house: Client, orders: dict[str, Any]) -> None:
    """Broken variant: internal errors, and the deltas of another run's folder were read and merged away."""
    bed.objects.put(runfiles.orders("digits-7"), json.dumps(orders).encode())
    for path in ("/code", "/code/files", f"/commands/{'0' * 16}"):
        answer = ask(house, "ann", "GET", RUN + path)
        assert (answer.status_code, "cannot be parsed" in answer.text) == (503, True), (path, answer.text)
    assert send(house).status_code == 503


def test_orders_of_any_length_are_not_read_whole(bed: Bed, house: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant: a training could fill the memory of its supervisor."""
    monkeypatch.setattr("supervisor.services.runs.orders.ORDERS_BYTES", 1000)
    bed.objects.put(runfiles.orders("digits-7"), json.dumps({**forged(), "more": "x" * 2000}).encode())
    monkeypatch.setattr(bed.objects, "get", None)
    answer = ask(house, "ann", "GET", RUN + "/code")
    assert (answer.status_code, "cannot be parsed" in answer.text) == (503, True)


def test_what_a_training_writes_about_its_code_may_be_anything(bed: Bed, house: Client) -> None:
    key = runfiles.applied("digits-7", 1)
    reports = b'{"kept": ["\\ud800"], "began": 0, "revision": 0}', b'{"kept": [], "began": Infinity}', b"[" * 100_000
    for report in reports:
        bed.objects.put(key, report)
        assert ask(house, "ann", "GET", f"{RUN}/code").status_code == 200, report[:40]
