"""Code bundles over the API: checked before they are stored, stored once, checked at each submit."""

from __future__ import annotations

import gzip
import tempfile
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.api.wire import middleware
from supervisor.contract import runfiles
from supervisor.services.runs import code
from tests.bundles import CODE, bundle_of, tar_of
from tests.fakes.callers import OPS
from tests.services.bed import Bed, Client

GZIP = {"content-type": "application/gzip"}


def put(client: Client, name: str, raw: bytes, headers: dict[str, str] = GZIP) -> httpx.Response:
    return client.request("PUT", f"/v1/code/{name}", content=raw, headers=headers)


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def submit(client: Client, name: str, command: Any = ("python", "train.py"), **spec: Any) -> httpx.Response:
    words = command if isinstance(command, str) else list(command)
    return client.post("/v1/runs", json={"run_id": "digits-7", "spec": {"command": words, "code": name, **spec}})


def test_stored_once(client: Client, bed: Bed) -> None:
    name, raw = bundle_of()
    assert refusal(client.get(f"/v1/code/{name}")) == (404, "CODE_NOT_FOUND")
    told = put(client, name, raw)
    shown = {"sha256": name, "files": 3, "size_bytes": 41, "stored_bytes": len(raw)}
    assert (told.status_code, told.json()) == (201, shown)
    assert bed.objects.get(runfiles.code(name))[0] == raw
    assert client.get(f"/v1/code/{name}").json() == shown

    [event] = [one.event for one in bed.store.events(None, 0, 100)]
    assert (event.kind, event.actor, event.data["sha256"]) == ("code_stored", "local", name)
    assert event.data["request_id"] == told.headers["x-request-id"]

    before = bed.objects.stat(runfiles.code(name)).generation
    told = put(client, name, gzip.compress(tar_of(), 1))
    assert (told.status_code, told.json()) == (200, shown)
    assert len(bed.store.events(None, 0, 100)) == 1, "nothing was stored"
    assert bed.objects.stat(runfiles.code(name)).generation == before


def test_two_uploads_at_once_are_one(client: Client, bed: Bed, tmp_path: Path) -> None:
    name, raw = bundle_of()
    (tmp_path / "bundle").write_bytes(raw)
    answers: list[tuple[Any, bool]] = []
    together = threading.Barrier(6)

    def send() -> None:
        together.wait(30)
        answers.append(code.keep(bed.parts, name, tmp_path / "bundle", OPS))

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert len({str(shown) for shown, _ in answers}) == 1
    assert bed.objects.get(runfiles.code(name))[0] == raw
    assert submit(client, name).status_code == 201


def test_a_bundle_that_differs_from_its_list_is_stored_again(client: Client, bed: Bed) -> None:
    name, raw = bundle_of()
    put(client, name, raw)
    for harm in (
        lambda: bed.objects.put(runfiles.code(name), raw[:-1]),
        lambda: bed.objects.delete(runfiles.code(name)),
        lambda: bed.objects.delete(runfiles.code_index(name)),
        lambda: bed.objects.put(runfiles.code_index(name), b"torn"),
    ):
        harm()
        assert refusal(client.get(f"/v1/code/{name}")) == (404, "CODE_NOT_FOUND")
        assert put(client, name, raw).status_code == 201
        assert bed.objects.get(runfiles.code(name))[0] == raw


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({"run.sh": b"#!/bin/sh\r\n", "b.sh": b"x\r\n", "c.py": b"y\r\n"}, r"sed -i 's/\r$//' run.sh b.sh"),
        ({"../x": b"1"}, "does not stay inside"),
        ({}, "no file"),
    ],
)
def test_what_breaks_a_rule_is_not_stored(client: Client, bed: Bed, files: dict[str, bytes], word: str) -> None:
    name, raw = bundle_of(files)
    told = put(client, name, raw)
    assert refusal(told) == (422, "CODE_REFUSED")
    assert word in told.json()["detail"]
    assert not [info for page in bed.objects.pages(runfiles.CODE) for info in page.objects]


def test_the_name_must_be_that_of_the_content(client: Client, bed: Bed) -> None:
    name, raw = bundle_of()
    other = "0" * 64
    told = put(client, other, raw)
    assert refusal(told) == (422, "CODE_REFUSED")
    assert told.json()["meta"] == {"code": other, "found": name}
    for wrong in (raw[:-3], raw + b"x", b"", b"no gzip", gzip.compress(b"no tar")):
        assert refusal(put(client, name, wrong)) == (422, "CODE_REFUSED")
    assert not [info for page in bed.objects.pages(runfiles.CODE) for info in page.objects]


def test_the_request_itself(client: Client, tmp_path: Path) -> None:
    name, raw = bundle_of()
    assert refusal(put(client, name, raw, {"content-type": "application/json"})) == (415, "UNSUPPORTED_MEDIA_TYPE")
    for wrong in ("abc", name.upper(), "..", name + "0"):
        assert refusal(put(client, wrong, raw))[0] in (404, 422)
    assert refusal(client.get(f"/v1/code/{name}?x=1")) == (422, "INVALID_REQUEST")
    assert refusal(put(client, name, raw, {**GZIP, "origin": "http://evil.example"})) == (403, "ORIGIN_REFUSED")
    assert refusal(client.post(f"/v1/code/{name}", content=raw)) == (405, "METHOD_NOT_ALLOWED")


def test_a_bundle_beyond_the_limits_is_refused(client: Client, bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    name, raw = bundle_of({"big": bytes(range(256)) * 8000})
    monkeypatch.setattr(middleware, "BODY_MAX_BYTES", 100)
    assert len(raw) > 100
    assert put(client, name, raw).status_code == 201, "a bundle has a bound of its own"
    monkeypatch.setattr(middleware, "MAX_GZIP_BYTES", len(raw) - 1)
    assert refusal(put(client, name, raw)) == (413, "BODY_TOO_LARGE")
    assert refusal(client.post("/v1/runs", content=b" " * 101)) == (413, "BODY_TOO_LARGE")


def test_nothing_of_a_request_is_left_on_the_disk(client: Client, bed: Bed) -> None:
    name, raw = bundle_of()
    put(client, name, raw)
    put(client, name, raw[:-1])
    assert not list(bed.services.around.data_dir.glob("tmp*"))


def test_a_submit_is_checked_against_the_list(client: Client, bed: Bed) -> None:
    name, raw = bundle_of()
    told = submit(client, name)
    assert refusal(told) == (404, "CODE_NOT_FOUND")
    assert told.json()["errors"] == [{"pointer": "#/spec/code", "detail": "is not stored"}]
    put(client, name, raw)
    for command, spec, pointer, word in (
        (["python", "trian.py"], {}, "#/spec/command", "did you mean train.py?"),
        (["python", "train.py"], {"workdir": "lib"}, "#/spec/command", "did you mean train.py?"),
        ("./missing.sh --fast", {}, "#/spec/command", "not in the bundle"),
        (["./train.py"], {}, "#/spec/command", "chmod +x train.py"),
        (["python", "train.py"], {"workdir": "/abs"}, "#/spec/workdir", "absolute"),
        (["python", "train.py"], {"workdir": "src"}, "#/spec/workdir", "not a folder"),
    ):
        told = submit(client, name, command, **spec)
        assert refusal(told) == (422, "CODE_REFUSED")
        assert word in told.json()["detail"]
        assert told.json()["errors"][0]["pointer"] == pointer
    assert bed.store.find("digits-7") is None
    assert submit(client, name, ["python", "model.py"], workdir="lib").status_code == 201
    assert bed.run("digits-7").policy.code == name


def test_a_submit_reads_no_object_without_code_and_one_list_with_it(client: Client, bed: Bed) -> None:
    name, raw = bundle_of()
    put(client, name, raw)
    bed.objects.calls.clear()
    client.post("/v1/runs", json={"spec": {"command": ["x"]}})
    assert not bed.objects.calls
    submit(client, name)
    assert {call for call in bed.objects.calls if isinstance(call, tuple)} == {
        ("get", runfiles.code_index(name)),
        ("stat", runfiles.code(name)),
        ("pages", "runs/digits-7/"),  # does a run of the older runner lie under this name?
    }


def test_an_unavailable_store_is_not_a_missing_bundle(client: Client, bed: Bed) -> None:
    name, raw = bundle_of()
    put(client, name, raw)
    bed.objects.fail_reads = True
    assert refusal(submit(client, name)) == (503, "UNAVAILABLE")
    assert refusal(client.get(f"/v1/code/{name}")) == (503, "UNAVAILABLE")
    assert refusal(put(client, name, raw)) == (503, "UNAVAILABLE")
    assert bed.store.find("digits-7") is None
    bed.objects.fail_reads = False
    assert submit(client, name).status_code == 201
    bed.objects.fail_reads = True
    assert submit(client, name).status_code == 200, "the live run needs no look at its code"


def test_a_store_that_is_full(client: Client, bed: Bed) -> None:
    name, raw = bundle_of()
    bed.objects.full = True
    told = put(client, name, raw)
    assert refusal(told) == (503, "UNAVAILABLE")
    assert "full" in told.json()["detail"]


def test_a_data_folder_that_is_full(client: Client, bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    name, raw = bundle_of()
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "w+b"))  # noqa: SIM115
    told = put(client, name, raw)
    assert refusal(told) == (503, "UNAVAILABLE")
    assert "No space left on device" in told.json()["detail"]
    assert client.get(f"/v1/code/{name}").status_code == 404


def test_a_kept_response_comes_again_without_the_code(client: Client, bed: Bed) -> None:
    name, raw = bundle_of()
    put(client, name, raw)
    body = {"spec": {"command": ["python", "train.py"], "code": name}}
    first = client.post("/v1/runs", json=body, headers={"idempotency-key": "k"})
    bed.objects.delete(runfiles.code_index(name))
    again = client.post("/v1/runs", json=body, headers={"idempotency-key": "k"})
    assert again.json() == first.json()
    fresh = client.post("/v1/runs", json=body, headers={"idempotency-key": "other"})
    assert refusal(fresh) == (404, "CODE_NOT_FOUND")


def test_a_resume_with_other_code_is_checked_too(client: Client, bed: Bed) -> None:
    name, raw = bundle_of()
    put(client, name, raw)
    submit(client, name)
    bed.end("digits-7")
    other, raw = bundle_of({**CODE, "train.py": b"print(2)\n"})
    wish = {"spec": {"command": ["python", "train.py"], "code": other}, "replace_spec": True}
    assert refusal(client.post("/v1/runs/digits-7/resume", json=wish)) == (404, "CODE_NOT_FOUND")
    assert bed.run("digits-7").generation == 1
    put(client, other, raw)
    assert client.post("/v1/runs/digits-7/resume", json=wish).status_code == 202
    assert bed.run("digits-7").policy.code == other
