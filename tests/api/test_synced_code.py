"""Code of a living run over the API: one revision after the other, each checked against the one before."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from supervisor.contract import runfiles
from supervisor.contract.bundle import Delta, Opened, read_delta
from supervisor.contract.runfiles import Orders, decode_orders
from supervisor.domain.status import Status
from supervisor.services.runs import synced
from tests.bundles import CODE, bundle_of
from tests.deltas import Files, content_of, delta_of, packed
from tests.services.bed import NONCE, Bed, Client, beat

GZIP = {"content-type": "application/gzip"}
RUN = "/v1/runs/digits-7/code"
CHANGED: Files = {"train.py": b"print(2)\n", "lib/model.py": b"x = 1\n", "lib/new.py": b"y = 2\n"}


@pytest.fixture
def code(bed: Bed, client: Client) -> str:
    """The bundle of a run that trains."""
    name, raw = bundle_of()
    client.request("PUT", f"/v1/code/{name}", content=raw, headers=GZIP)
    bed.submit("digits-7", {"command": ["python", "train.py"], "code": name})
    bed.train("digits-7")
    return name


def put(client: Client, revision: int, delta: tuple[str, bytes], git: str = "") -> httpx.Response:
    return client.request("PUT", f"{RUN}/{revision}?git={git}", content=delta[1], headers=GZIP)


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def orders(bed: Bed) -> Orders:
    return decode_orders(bed.objects.get(runfiles.orders("digits-7"))[0])


def tree(client: Client) -> dict[str, str]:
    return {file["path"]: file["content"] for file in client.get(f"{RUN}/files").json()["files"]}


def contents(files: Files) -> dict[str, str]:
    return {path: content_of(content) for path, content in files.items()}


def test_a_delta_is_the_next_revision(bed: Bed, client: Client, code: str) -> None:
    assert tree(client) == contents(CODE)
    answer = put(client, 1, delta_of(CODE, CHANGED), "ab" * 20 + "%2Bchanges")
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert (shown["code"], shown["revision"], shown["git"]) == (code, 1, "ab" * 20 + "+changes")
    assert tree(client) == contents(CHANGED)
    assert shown["tree"] == client.get(f"{RUN}/files").json()["tree"]
    sent = orders(bed).synced
    assert sent is not None
    assert (sent.code, sent.revision, [delta.last for delta in sent.deltas]) == (code, 1, [1])
    [event] = [each.event for each in bed.store.events("digits-7", 0, 100) if each.event.kind == "code_synced"]
    assert event.text == "Code changed by local to revision 1: 2 files changed, 1 removed."
    assert event.data["git"] == "ab" * 20 + "+changes"


def test_the_next_beat_names_the_orders_and_the_pace_is_fast(bed: Bed, client: Client, code: str) -> None:
    before = bed.inbox.receive("digits-7", _raw(1))
    assert (before.orders, before.next_s) == (None, bed.parts.knobs.beat_push_s)
    put(client, 1, delta_of(CODE, CHANGED))
    after = bed.inbox.receive("digits-7", _raw(2))
    assert (after.orders, after.next_s) == (orders(bed).number, 1.0)
    pushed = client.post("/v1/runs/digits-7/heartbeat", json=json.loads(_raw(3)))
    assert pushed.json()["orders"] == orders(bed).number
    bed.clock.advance(121)
    assert bed.inbox.receive("digits-7", _raw(4)).next_s == bed.parts.knobs.beat_push_s


def test_who_looks_at_the_code_makes_beats_come_fast(bed: Bed, client: Client, code: str) -> None:
    client.get(RUN)
    assert bed.inbox.receive("digits-7", _raw(1)).next_s == 1.0


def _raw(sequence: int) -> bytes:
    from supervisor.contract.heartbeat import encode

    return encode(beat("digits-7", sequence, nonce=NONCE))


def test_a_repeat_changes_nothing(bed: Bed, client: Client, code: str) -> None:
    first = put(client, 1, delta_of(CODE, CHANGED))
    before = orders(bed)
    assert put(client, 1, delta_of(CODE, CHANGED)).json() == first.json()
    assert orders(bed) == before


def test_who_does_not_know_the_newest_revision_is_refused(bed: Bed, client: Client, code: str) -> None:
    put(client, 1, delta_of(CODE, CHANGED))
    other = delta_of(CODE, {**CODE, "train.py": b"print(3)\n"})
    for revision in (1, 3):
        answer = put(client, revision, other)
        assert refusal(answer) == (409, "SYNC_CONFLICT")
        assert answer.json()["meta"]["revision"] == 1
    assert tree(client) == contents(CHANGED)


def test_who_is_overtaken_during_the_upload_is_not_in_the_history(
    bed: Bed, client: Client, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken variant: the history named the refused change as revision 1 too."""
    put_file = bed.objects.put_file

    def overtaken(key: str, path: Any) -> Any:
        monkeypatch.setattr(bed.objects, "put_file", put_file)
        stored = put_file(key, path)
        assert put(client, 1, delta_of(CODE, CHANGED)).status_code == 200
        return stored

    monkeypatch.setattr(bed.objects, "put_file", overtaken)
    answer = put(client, 1, delta_of(CODE, {**CODE, "train.py": b"print(3)\n"}))
    assert refusal(answer) == (409, "SYNC_CONFLICT")
    assert tree(client) == contents(CHANGED)
    assert bed.events("digits-7").count("code_synced") == 1


@pytest.mark.parametrize(
    ("delta", "why"),
    [
        (delta_of({"train.py": b"print(7)\n"}, {"train.py": b"print(8)\n"}), "present content of 'train.py'"),
        (delta_of({"gone.py": b"1"}, {}), "present content of 'gone.py'"),
        (delta_of({}, {"train.py": b"2"}), "present content of 'train.py'"),
        (delta_of({}, {"train.py/x": b"2"}), "lies below 'train.py'"),
        (delta_of({}, {"../x": b"2"}), "does not stay inside"),
        (packed(Delta({"x": ()}, {}), {"x": "/etc/passwd"}), "absolute path"),
        (packed(Delta({"x": ()}, {}), {"x": "../../x"}), "points out of the folder"),
        (packed(Delta({"x": (), "y": ()}, {}), {"x": b"1"}), "in the delta's list only"),
        (bundle_of(), "it is no delta"),
        (("", b"no gzip"), "not a gzip"),
        (packed(Delta({"x.sh": ()}, {}), {"x.sh": b"a\r\n"}), "Windows line ends"),
    ],
)
def test_a_delta_that_makes_no_bundle_is_refused(client: Client, code: str, delta: Any, why: str) -> None:
    answer = put(client, 1, delta)
    assert refusal(answer) == (422, "CODE_REFUSED")
    assert why in answer.json()["detail"]
    assert tree(client) == contents(CODE)


def test_sizes_are_those_of_a_bundle(client: Client, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.contract.bundle.MAX_FILES", 4)
    assert put(client, 1, delta_of({}, {"a": b"1"})).status_code == 200
    answer = put(client, 2, delta_of({}, {"b": b"1"}))
    assert refusal(answer) == (422, "CODE_REFUSED"), "each delta is small, the sum is not"


def test_an_ended_run_is_refused(bed: Bed, client: Client, code: str) -> None:
    bed.end("digits-7", Status.STOPPED)
    assert refusal(put(client, 1, delta_of(CODE, CHANGED))) == (409, "RUN_ENDED")


def test_a_run_without_a_bundle_is_refused(bed: Bed, client: Client) -> None:
    bed.submit("digits-7")
    assert refusal(client.get(RUN)) == (409, "NOT_SUPPORTED")
    assert refusal(put(client, 1, delta_of(CODE, CHANGED))) == (409, "NOT_SUPPORTED")


def test_a_waiting_run_gets_it_for_its_next_attempt(bed: Bed, client: Client) -> None:
    name, raw = bundle_of()
    client.request("PUT", f"/v1/code/{name}", content=raw, headers=GZIP)
    bed.submit("digits-7", {"command": ["python", "train.py"], "code": name})
    assert put(client, 1, delta_of(CODE, CHANGED)).status_code == 200


def test_other_code_begins_anew(bed: Bed, client: Client, code: str) -> None:
    put(client, 1, delta_of(CODE, CHANGED))
    other, raw = bundle_of({"train.py": b"other\n"})
    client.request("PUT", f"/v1/code/{other}", content=raw, headers=GZIP)
    bed.end("digits-7", Status.STOPPED)
    bed.resume("digits-7", {"command": ["python", "train.py"], "code": other}, replace_spec=True)
    assert client.get(RUN).json()["revision"] == 0
    assert put(client, 1, delta_of({"train.py": b"other\n"}, {"train.py": b"more\n"})).json()["code"] == other


def test_each_attempt_says_where_it_began(bed: Bed, client: Client, code: str) -> None:
    put(client, 1, delta_of(CODE, CHANGED))
    report = {"began": 0, "revision": 1, "kept": ["train.py.orig"]}
    bed.change("digits-7", attempt=_with_code(bed, code))
    bed.objects.put(runfiles.applied("digits-7", 1), json.dumps(report).encode())
    [attempt] = client.get(RUN).json()["attempts"]
    assert attempt == {"attempt": 1, "code": code, **report}
    for torn in (b"{", b"[]", b'{"began": "x"}'):
        bed.objects.put(runfiles.applied("digits-7", 1), torn)
        assert client.get(RUN).json()["attempts"][0]["revision"] == 0


def test_a_report_is_read_once_for_each_time_that_it_changes(bed: Bed, client: Client, code: str) -> None:
    """A client that waits looks twice in a second. Broken variant: each look read the reports of up to 50 attempts."""
    bed.change("digits-7", attempt=_with_code(bed, code))
    key = runfiles.applied("digits-7", 1)
    for revision in (1, 2):
        bed.objects.put(key, json.dumps({"began": 0, "revision": revision, "kept": []}).encode())
        assert [client.get(RUN).json()["attempts"][0]["revision"] for _ in range(3)] == [revision] * 3
        assert bed.objects.calls["get", key] == revision
    bed.objects.put(key, b'{"began": 0, "revision": 3, "kept": [], "more": "%s"}' % (b"x" * synced.REPORT_BYTES))
    assert client.get(RUN).json()["attempts"][0]["revision"] == 0, "no agent writes so much, so it is not read"
    assert bed.objects.calls["get", key] == 2


def _with_code(bed: Bed, code: str) -> Any:
    from dataclasses import replace

    return replace(bed.run("digits-7").attempt, code=code)


def test_many_deltas_are_merged(bed: Bed, client: Client, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synced, "MERGED_FROM", 3)
    states: list[Files] = [CODE, CHANGED, {"train.py": b"3", "a": "train.py"}, {"train.py": b"4", "lib/new.py": b"5"}]
    for number in range(1, 4):
        answer = put(client, number, delta_of(states[number - 1], states[number]))
        assert answer.status_code == 200, answer.text
    sent = orders(bed).synced
    assert sent is not None
    [merged] = sent.deltas
    assert (merged.first, merged.last) == (1, 3)
    keys = [info.key for page in bed.objects.pages(runfiles.synced("digits-7")) for info in page.objects]
    assert keys == [merged.key], "what was merged is deleted"
    assert tree(client) == contents(states[3])
    synced._files.cache_clear()
    assert tree(client) == contents(states[3]), "from the store alone"

    opened = Opened(iter([bed.objects.get(merged.key)[0]]))
    delta, files = read_delta(opened)
    assert {member.path: b"".join(content) for member, content in files} == {"train.py": b"4", "lib/new.py": b"5"}
    assert opened.sha256 == merged.sha256
    assert delta.changed["train.py"] == tuple(content_of(each["train.py"]) for each in states[:3])
    assert set(delta.removed) == {"lib/model.py", "run.sh", "a"}
    assert put(client, 4, delta_of(states[3], CODE)).status_code == 200
