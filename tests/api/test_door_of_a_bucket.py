"""The door in front of Cloud Storage: many bytes go past the supervisor, few through it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests

from supervisor.agent.store.door.store import DoorStore
from supervisor.agent.store.googleapi import RetryPolicy
from supervisor.api.routes import door as routes
from supervisor.contract import runfiles
from supervisor.objectstores.gcs.store import GcsStore
from supervisor.ports.objectstore import ObjectMissing, PreconditionFailed
from tests.api.listening import serving
from tests.api.test_door import FOLDER, KEY, ask, code
from tests.cloud.storage import StorageFake
from tests.cloud.storage_signed import SigningAccount
from tests.objectstores.gcs_bed import URL, cloud_storage
from tests.services.bed import Bed
from tests.services.door_bed import RUN_ID, DoorBed, make_door

LARGE = b"0123456789" * 200_000


@pytest.fixture
def fake() -> Iterator[StorageFake]:
    with cloud_storage() as fake:
        yield fake


@pytest.fixture
def store(fake: StorageFake) -> Iterator[GcsStore]:
    store = GcsStore(URL, patience_s=0.5)
    yield store
    store.close()


@pytest.fixture
def door(bed: Bed, tmp_path: Path, store: GcsStore) -> DoorBed:
    door = make_door(bed, tmp_path, store)
    door.launching()
    return door


def begin(door: DoorBed, **body: Any) -> httpx.Response:
    return door.ask("POST", "uploads", door.pass_of(), json={"key": KEY, "size": len(LARGE), **body})


def test_a_large_upload_goes_to_the_bucket(door: DoorBed, store: GcsStore) -> None:
    began = begin(door, if_generation="0", metadata={"a": "b"})
    assert began.headers["Cache-Control"] == "no-store"
    assert requests.put(began.json()["url"], data=LARGE, timeout=20).status_code == 200
    assert (store.get(KEY)[0], store.stat(KEY).metadata) == (LARGE, {"a": "b"})
    assert code(begin(door, if_generation="0")) == (412, "PRECONDITION_FAILED")


@pytest.mark.parametrize("key", [runfiles.baton("digits-8"), runfiles.orders("digits-7"), "code/x.tar.gz", "../x", "x"])
def test_no_upload_is_begun_for_another_object(door: DoorBed, fake: StorageFake, key: str) -> None:
    before = fake.counts["storage.objects.insert"]
    assert code(begin(door, key=key)) == (403, "PASS_REFUSED")
    assert fake.counts["storage.objects.insert"] == before


def test_the_door_takes_eight_mebibytes_itself(door: DoorBed) -> None:
    assert ask(door, "PUT", KEY, content=LARGE).json()["size"] == len(LARGE)
    for announced in (True, False):
        body: Any = b"x" * (routes.SMALL_BYTES + 1)
        refused = ask(door, "PUT", KEY, content=body if announced else _pieces(body))
        assert code(refused) == (413, "BODY_TOO_LARGE")
    assert ask(door, "PUT", KEY, content=b"x" * routes.SMALL_BYTES).status_code == 200


async def _pieces(data: bytes) -> Any:
    yield data


def test_a_large_download_is_redirected_where_the_account_signs(door: DoorBed, store: GcsStore) -> None:
    store._client().session.credentials = SigningAccount()
    info = store.put(KEY, LARGE)
    answer = ask(door, "GET", KEY, headers={"Range": "bytes=5-9"})
    assert (answer.status_code, answer.content) == (307, b"")
    assert answer.headers["X-Spot-Generation"] == info.generation
    assert answer.headers["Cache-Control"] == "no-store"
    address = answer.headers["Location"]
    assert door.pass_of() not in address
    assert requests.get(address, timeout=20).content == LARGE
    small = FOLDER + "baton.json"
    assert ask(door, "GET", small).status_code == 200


def test_it_is_streamed_where_the_account_cannot_sign(door: DoorBed, store: GcsStore) -> None:
    store.put(KEY, LARGE)
    answer = ask(door, "GET", KEY)
    assert (answer.status_code, answer.content) == (200, LARGE)
    part = ask(door, "GET", KEY, headers={"Range": "bytes=5-9"})
    assert (part.status_code, part.content) == (206, b"56789")


def test_a_key_that_a_bucket_cannot_have(door: DoorBed) -> None:
    assert code(ask(door, "GET", FOLDER + "a\nb")) == (404, "NOT_FOUND")
    assert code(ask(door, "GET", FOLDER + "a//b")) == (422, "INVALID_REQUEST")
    assert code(begin(door, key=FOLDER + "a\nb")) == (422, "INVALID_REQUEST")


def test_a_bucket_that_is_away(door: DoorBed, fake: StorageFake) -> None:
    fake.deny("*", "")
    for answer in (ask(door, "GET", KEY), ask(door, "PUT", KEY, content=b"x"), begin(door)):
        assert code(answer) == (503, "STORE_UNAVAILABLE")


def test_the_agents_own_store(door: DoorBed, store: GcsStore, tmp_path: Path) -> None:
    """Past the door in both directions, and through it."""
    store._client().session.credentials = SigningAccount()
    large = tmp_path / "model.pt"
    large.write_bytes(LARGE * 6)
    with serving(door.services) as served:
        (tmp_path / "pass.json").write_text(json.dumps({"text": door.pass_of(), "expires_at": 0.0}))
        url = f"door:http://127.0.0.1:{served.port}/v1/door/{RUN_ID}"
        agents = DoorStore.at(url, str(tmp_path / "pass.json"), policy=RetryPolicy(retry_for_s=0.0))
        with closing(agents):
            info = agents.put_file(KEY, str(large), "0")
            assert info == store.stat(KEY)
            assert b"".join(agents.read(KEY)) == LARGE * 6
            assert b"".join(agents.read(KEY, 11_999_995)) == b"56789"
            assert agents.put(FOLDER + "small", b"x", None, {"a": "b"}).metadata == {"a": "b"}
            assert [each.key for page in agents.pages(FOLDER) for each in page.objects] == [
                runfiles.baton(RUN_ID), KEY, FOLDER + "small"
            ]  # fmt: skip
            with pytest.raises(PreconditionFailed):
                agents.put_file(KEY, str(large), "0")
            assert agents.delete(KEY, info.generation)
            with pytest.raises(ObjectMissing):
                agents.stat(KEY)
