"""The fake Cloud Storage keeps to the documented semantics: objects and listings, requested over HTTP by hand."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.cloud.storage import StorageFake
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


# --- one object -------------------------------------------------------------------------------------------------------


def test_an_object_as_google_describes_it(fake: StorageFake, web: httpx.Client) -> None:
    found = insert(web, "runs/ü x", b"123456789").json()
    assert found["kind"] == "storage#object"
    assert found["crc32c"] == base64.b64encode((0xE3069283).to_bytes(4, "big")).decode()  # the check value of CRC-32C
    assert found["md5Hash"] == base64.b64encode(hashlib.md5(b"123456789", usedforsecurity=False).digest()).decode()
    assert found["updated"] == found["timeCreated"] == "2023-11-14T22:13:20.500Z"
    assert (found["size"], found["metageneration"], found["contentType"]) == ("9", "1", "text/plain")
    assert found["generation"] == "1700000000500000"  # 64-bit numbers are strings
    answer = web.get(f"{OBJECTS}/{quote('runs/ü x', safe='')}")
    assert answer.json() == found
    assert answer.headers["date"] == "Tue, 14 Nov 2023 22:13:20 GMT"


def test_generations_go_up_while_the_clock_stands(web: httpx.Client) -> None:
    generations = [int(insert(web, "a").json()["generation"]) for _ in range(3)]
    web.delete(f"{OBJECTS}/a")
    generations.append(int(insert(web, "a").json()["generation"]))
    assert generations == sorted(set(generations))


def test_conditions(web: httpx.Client) -> None:
    assert insert(web, "a", ifGenerationMatch=0).status_code == 200
    assert reason(insert(web, "a", ifGenerationMatch=0)) == (412, "conditionNotMet")
    assert reason(insert(web, "b", ifGenerationMatch=7)) == (412, "conditionNotMet")
    now = web.get(f"{OBJECTS}/a").json()["generation"]
    assert reason(insert(web, "a", ifGenerationNotMatch=now)) == (412, "conditionNotMet")
    assert web.get(f"{OBJECTS}/a", params={"ifGenerationNotMatch": now}).status_code == 304
    assert web.get(f"{OBJECTS}/a", params={"ifMetagenerationNotMatch": 1}).content == b""
    assert reason(web.get(f"{OBJECTS}/a", params={"ifGenerationMatch": 7})) == (412, "conditionNotMet")
    assert reason(web.get(f"{OBJECTS}/b", params={"ifGenerationMatch": 0})) == (404, "notFound")
    assert reason(web.get(f"{OBJECTS}/a", params={"generation": 7})) == (404, "notFound")
    assert reason(web.delete(f"{OBJECTS}/a", params={"ifGenerationMatch": 7})) == (412, "conditionNotMet")
    assert web.delete(f"{OBJECTS}/a", params={"ifGenerationMatch": now}).status_code == 204
    assert reason(web.delete(f"{OBJECTS}/a")) == (404, "notFound")


def test_metadata_is_patched_key_by_key_and_has_a_limit(web: httpx.Client) -> None:
    insert(web, "a", b"x")
    found = web.patch(f"{OBJECTS}/a", json={"metadata": {"k": "1", "l": "2"}}).json()
    assert (found["metadata"], found["metageneration"]) == ({"k": "1", "l": "2"}, "2")
    found = web.patch(f"{OBJECTS}/a", json={"metadata": {"k": None, "m": "3"}}, params={"ifMetagenerationMatch": 2})
    assert found.json()["metadata"] == {"l": "2", "m": "3"}
    stale = web.patch(f"{OBJECTS}/a", json={"metadata": {"k": "1"}}, params={"ifMetagenerationMatch": 2})
    assert reason(stale) == (412, "conditionNotMet")
    assert web.patch(f"{OBJECTS}/a", json={"metadata": {"m": "x" * 8188}}).status_code == 200
    assert web.patch(f"{OBJECTS}/a", json={"metadata": {"m": "x" * 8190}}).status_code == 400
    assert "metadata" not in web.patch(f"{OBJECTS}/a", json={"metadata": None}).json()


@pytest.mark.parametrize("name", ["", "a\nb", "a\rb", ".", "..", "x" * 1025, ".well-known/acme-challenge/x"])
def test_names_that_are_not_taken(web: httpx.Client, name: str) -> None:
    assert insert(web, name).status_code == 400


def test_parts_of_an_object(web: httpx.Client) -> None:
    insert(web, "a", b"0123456789")

    def part(wanted: str) -> tuple[int, bytes, str | None]:
        answer = web.get(f"/download{OBJECTS}/a", params={"alt": "media"}, headers={"Range": wanted})
        return answer.status_code, answer.content, answer.headers.get("content-range")

    assert part("bytes=2-4") == (206, b"234", "bytes 2-4/10")
    assert part("bytes=8-99") == (206, b"89", "bytes 8-9/10")
    assert part("bytes=7-") == (206, b"789", "bytes 7-9/10")
    assert part("bytes=-3") == (206, b"789", "bytes 7-9/10")
    assert part("bytes=10-")[0] == 416
    assert part("nonsense") == (200, b"0123456789", None)
    missing = web.get(f"{OBJECTS}/b", params={"alt": "media"})
    assert (missing.status_code, missing.text) == (404, f"No such object: {B}/b")  # a line, no JSON, as at Google


# --- listings ---------------------------------------------------------------------------------------------------------


def test_pages_of_at_most_1000_in_the_order_of_bytes(fake: StorageFake, web: httpx.Client) -> None:
    names = sorted([f"beats/{n}" for n in range(1200)] + ["beats/é", "beats/日", "beats-"], key=str.encode)
    fake.fill(B, ((name, b"", {}) for name in reversed(names)))
    listed: list[str] = []
    query = {"maxResults": "5000", "fields": "items(name),nextPageToken"}
    sizes = []
    while True:
        page = web.get(OBJECTS, params=query).json()
        assert {tuple(item) for item in page["items"]} == {("name",)}
        listed += [item["name"] for item in page["items"]]
        sizes.append(len(page["items"]))
        if "nextPageToken" not in page:
            break
        query["pageToken"] = page["nextPageToken"]
    assert listed == names
    assert sizes == [1000, 203]


def test_what_a_listing_may_be_asked(fake: StorageFake, web: httpx.Client) -> None:
    for name in ("a/1", "a/b/2", "a/b/3", "a/c/4", "a/d", "z"):
        fake.put(B, name, b"")

    def listed(**query: str) -> list[list[str]]:
        page = web.get(OBJECTS, params=query).json()
        return [[item["name"] for item in page.get("items", [])], page.get("prefixes", [])]

    assert listed(prefix="a/", delimiter="/") == [["a/1", "a/d"], ["a/b/", "a/c/"]]
    assert listed(startOffset="a/b/3", endOffset="a/d") == [["a/b/3", "a/c/4"], []]
    assert listed(prefix="nothing") == [[], []]
    assert web.get(OBJECTS, params={"prefix": "nothing"}).json() == {"kind": "storage#objects"}
    assert web.get(OBJECTS, params={"fields": "kind", "maxResults": "1"}).json() == {"kind": "storage#objects"}
    assert web.get(OBJECTS, params={"fields": "items/name,items/size", "prefix": "z"}).json() == {
        "items": [{"name": "z", "size": "0"}]
    }
    page = web.get(OBJECTS, params={"prefix": "a/", "delimiter": "/", "maxResults": "2"}).json()
    assert page["prefixes"] == ["a/b/"]
    page = web.get(OBJECTS, params={"prefix": "a/", "delimiter": "/", "pageToken": page["nextPageToken"]}).json()
    assert (page["prefixes"], page["items"][0]["name"]) == (["a/c/"], "a/d")
    assert web.get(OBJECTS, params={"pageToken": "?"}).status_code == 400
