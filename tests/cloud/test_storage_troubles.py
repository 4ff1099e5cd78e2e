"""Uploads to the fake Cloud Storage, what goes wrong there on request, and Google's own client at home in it."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from google.api_core import exceptions
from google.cloud import storage

from tests.cloud.storage import StorageFake
from tests.cloud.storage_troubles import spoilt
from tests.cloud.web import Hang, Reset
from tests.objectstores.gcs_bed import Waiting, cloud_storage

B = "spot-runs"
OBJECTS = f"/storage/v1/b/{B}/o"
UPLOADS = f"/upload/storage/v1/b/{B}/o"


@pytest.fixture
def time() -> Waiting:
    return Waiting(1_700_000_000.5)


@pytest.fixture
def fake(time: Waiting) -> Iterator[StorageFake]:
    with cloud_storage(time.clock) as fake:
        yield fake


@pytest.fixture
def web(fake: StorageFake) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=fake.url, timeout=30.0) as web:
        yield web


def insert(web: httpx.Client, name: str, data: bytes = b"", **query: Any) -> httpx.Response:
    headers = {"Content-Type": "text/plain"}
    query = {"uploadType": "media", "name": name, **query}
    return web.post(UPLOADS, params=query, content=data, headers=headers)


def reason(answer: httpx.Response) -> tuple[int, str]:
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    assert error["message"] == error["errors"][0]["message"]
    return answer.status_code, error["errors"][0]["reason"]


# --- uploads ----------------------------------------------------------------------------------------------------------


def begin(web: httpx.Client, name: str, **query: Any) -> str:
    answer = web.post(UPLOADS, params={"uploadType": "resumable", **query}, json={"name": name})
    assert (answer.status_code, answer.content) == (200, b"")
    return answer.headers["location"]


def test_a_resumable_upload_is_asked_how_far_it_is(fake: StorageFake, web: httpx.Client) -> None:
    step = 256 * 1024
    data = os.urandom(3 * step + 10)
    where = begin(web, "big")

    def send(span: str, piece: bytes = b"") -> tuple[int, str | None]:
        answer = web.put(where, content=piece, headers={"Content-Range": f"bytes {span}"})
        return answer.status_code, answer.headers.get("range")

    assert send("*/*") == (308, None)
    assert send(f"0-{step - 1}/*", data[:step]) == (308, f"bytes=0-{step - 1}")
    assert send(f"{step}-{step + 9}/*", data[step : step + 10])[0] == 400  # no whole piece, not the last one
    fake.break_upload(step + 5)
    with pytest.raises(httpx.RemoteProtocolError):
        send(f"{step}-{len(data) - 1}/{len(data)}", data[step:])
    assert send(f"*/{len(data)}") == (308, f"bytes=0-{2 * step - 1}")
    assert send(f"{2 * step + 1}-{len(data) - 1}/{len(data)}", data[2 * step + 1 :])[0] == 400  # a hole
    assert fake.find(B, "big") is None
    assert send(f"{2 * step}-{len(data) - 1}/{len(data)}", data[2 * step :])[0] == 200
    assert send(f"*/{len(data)}")[0] == 200
    assert fake.find(B, "big").data == data
    assert send("nonsense")[0] == 200  # it is done
    fake.forget_uploads()
    assert send("*/*")[0] == 404


def test_a_condition_counts_at_the_end_of_an_upload_and_at_its_beginning(fake: StorageFake, web: httpx.Client) -> None:
    where = begin(web, "big", ifGenerationMatch=0)
    fake.put(B, "big", b"theirs")
    assert reason(web.put(where, content=b"ours")) == (412, "conditionNotMet")
    query = {"uploadType": "resumable", "ifGenerationMatch": 0}
    assert reason(web.post(UPLOADS, params=query, json={"name": "big"})) == (412, "conditionNotMet")
    assert web.delete(where).status_code == 499
    assert web.put(where, content=b"ours").status_code == 404


def test_content_that_is_not_what_it_is_said_to_be_is_refused(fake: StorageFake, web: httpx.Client) -> None:
    parts = [
        "--x\r\nContent-Type: application/json\r\n\r\n", json.dumps({"name": "a", "md5Hash": "AAAA"}),
        "\r\n--x\r\nContent-Type: text/plain\r\n\r\n", "content", "\r\n--x--",
    ]  # fmt: skip
    headers = {"Content-Type": "multipart/related; boundary=x"}
    answer = web.post(UPLOADS, params={"uploadType": "multipart"}, content="".join(parts), headers=headers)
    assert reason(answer) == (400, "invalid")
    parts[1] = json.dumps({"name": "a", "metadata": {"k": "v"}})
    web.post(UPLOADS, params={"uploadType": "multipart"}, content="".join(parts), headers=headers)
    found = fake.find(B, "a")
    assert (found.data, found.content_type, found.metadata) == (b"content", "text/plain", {"k": "v"})


# --- what goes wrong on request ---------------------------------------------------------------------------------------


def test_one_write_a_second_of_one_name_where_that_is_on(fake: StorageFake, web: httpx.Client, time: Waiting) -> None:
    assert [insert(web, "a").status_code for _ in range(3)] == [200] * 3
    fake.write_limit = True
    time.now += 1.0
    assert insert(web, "a").status_code == 200
    time.now += 0.9
    assert reason(insert(web, "a")) == (429, "rateLimitExceeded")
    assert reason(web.patch(f"{OBJECTS}/a", json={"metadata": {}})) == (429, "rateLimitExceeded")
    assert insert(web, "b").status_code == 200
    time.now += 0.2
    assert web.delete(f"{OBJECTS}/a").status_code == 204


def test_troubles_come_as_often_as_asked_and_where_asked(fake: StorageFake, web: httpx.Client) -> None:
    fake.trouble(503, times=2, when="storage.objects.insert")
    assert web.get(OBJECTS).status_code == 200
    assert [insert(web, "a").status_code for _ in range(3)] == [503, 503, 200]
    fake.trouble(Reset(), when="storage.objects.insert", after=True)
    with pytest.raises(httpx.RemoteProtocolError):
        insert(web, "b", b"all the same")
    assert fake.find(B, "b").data == b"all the same"
    fake.trouble(Hang())
    with pytest.raises(httpx.ReadTimeout):
        web.get(OBJECTS, timeout=0.1)
    fake.trouble(spoilt(cut_after=3))
    with pytest.raises(httpx.RemoteProtocolError):
        web.get(OBJECTS)
    fake.trouble(429, times=None)
    assert reason(web.get(OBJECTS)) == reason(web.get(OBJECTS)) == (429, "rateLimitExceeded")
    fake.calm()
    assert web.get(OBJECTS).status_code == 200
    assert fake.counts["storage.objects.insert"] == 4


def test_rights_and_tokens(fake: StorageFake, web: httpx.Client) -> None:
    insert(web, "a/x")
    fake.deny("storage.objects.get", f"{B}/a/")
    assert reason(web.get(f"{OBJECTS}/a%2Fx")) == (403, "forbidden")
    fake.deny("storage.objects.list", f"{B}/a/b/")
    assert web.get(OBJECTS, params={"prefix": "a/"}).status_code == 403
    assert web.get(OBJECTS, params={"prefix": "a/c"}).status_code == 200
    fake.deny("storage.objects.create")
    asked = {"permissions": ["storage.objects.get", "storage.objects.create"]}
    assert web.get(f"/storage/v1/b/{B}/iam/testPermissions", params=asked).json()["permissions"] == [
        "storage.objects.get"
    ]
    fake.calm()
    fake.expire("old")
    assert reason(web.get(OBJECTS, headers={"Authorization": "Bearer old"})) == (401, "authError")
    assert web.get(OBJECTS, headers={"Authorization": "Bearer new"}).status_code == 200
    fake.drop_bucket(B)
    assert web.get(OBJECTS).json()["error"]["message"] == "The specified bucket does not exist."


# --- Google's own client ----------------------------------------------------------------------------------------------


def test_googles_client_is_at_home(fake: StorageFake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    client = storage.Client()
    bucket = client.get_bucket(B)
    blob = bucket.blob("runs/ü/x y")
    blob.metadata = {"beat": "1", "é": "\n"}
    blob.upload_from_string(b"hello", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string(b"again", if_generation_match=0)
    assert [found.metadata for found in client.list_blobs(B, prefix="runs/", page_size=1)] == [blob.metadata]
    blob.metadata = {"beat": "2"}
    blob.patch(if_metageneration_match=1)
    assert blob.metageneration == 2
    with pytest.raises(exceptions.NotFound):
        bucket.blob("nothing").download_as_bytes()
    big = os.urandom(9 << 20)
    sent = bucket.blob("big", chunk_size=1 << 20)
    sent.upload_from_file(io.BytesIO(big), size=len(big), if_generation_match=0, checksum="crc32c")
    assert bucket.blob("big").download_as_bytes(checksum="md5") == big
    assert bucket.blob("big").download_as_bytes(start=5, end=9) == big[5:10]
    sent.delete(if_generation_match=sent.generation)
    assert not sent.exists()
    assert bucket.test_iam_permissions(["storage.objects.get"]) == ["storage.objects.get"]
    client.close()


def test_what_the_api_does_not_know_is_refused() -> None:
    fake = StorageFake()  # no oracle: these requests are wrong on purpose
    fake.make_bucket(B)
    with httpx.Client(base_url=fake.url, timeout=60) as web:
        assert reason(insert(web, "a", ifGenerationMatch="x")) == (400, "invalidParameter")
        assert insert(web, "a", uploadType="other").status_code == 400
        headers = {"Content-Type": "multipart/related; boundary=x"}
        broken = web.post(UPLOADS, params={"uploadType": "multipart"}, content=b"--x", headers=headers)
        assert reason(broken) == (400, "badRequest")
        for fields in ("item(name)", "items(nam)", "items(name", "items)", ",", "items//name"):
            assert reason(web.get(OBJECTS, params={"fields": fields})) == (400, "invalidParameter"), fields
        assert web.get("/storage/v1/nothing").status_code == 404
        assert web.put(f"{OBJECTS}/a").status_code == 404
    fake.close()
