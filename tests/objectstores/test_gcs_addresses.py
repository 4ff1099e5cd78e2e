"""Addresses for others: an upload session of one object with its condition, and a signed address to read one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from google.auth.exceptions import RefreshError

from supervisor.objectstores.gcs.store import GcsStore
from supervisor.ports.objectstore import ObjectInfo, PreconditionFailed, ReachableStore, StoreUnavailable
from tests.cloud.storage import StorageFake
from tests.cloud.storage_signed import SigningAccount
from tests.objectstores.gcs_bed import BUCKET, cloud_storage

KEY = "runs/digits-7/checkpoints/ä b/model.pt"
DATA = b"0123456789" * 40_000


@pytest.fixture
def fake() -> Iterator[StorageFake]:
    with cloud_storage() as fake:
        yield fake


@pytest.fixture
def store(fake: StorageFake) -> Iterator[GcsStore]:
    store = GcsStore("gs://spot-runs/team", patience_s=0.5)
    yield store
    store.close()


def sign(store: GcsStore, account: Any = None) -> None:
    store._client().session.credentials = account or SigningAccount()


def uploaded(url: str, data: bytes = DATA) -> requests.Response:
    return requests.put(url, data=data, timeout=20)


def test_a_session_writes_one_object_with_its_metadata(store: GcsStore, fake: StorageFake) -> None:
    assert isinstance(store, ReachableStore)
    url = store.begin_upload(KEY, len(DATA), None, {"a": "ä"})
    assert fake.names(BUCKET) == []
    assert uploaded(url).status_code == 200
    assert fake.names(BUCKET) == [f"team/{KEY}"]
    assert (store.get(KEY)[0], store.stat(KEY).metadata) == (DATA, {"a": "ä"})


def test_a_session_keeps_its_condition(store: GcsStore) -> None:
    first = store.put(KEY, b"1").generation
    with pytest.raises(PreconditionFailed):
        store.begin_upload(KEY, 5, "0", {})
    with pytest.raises(PreconditionFailed):
        store.begin_upload(KEY, 5, "no generation", {})
    url = store.begin_upload(KEY, 5, first, {})
    store.put(KEY, b"meanwhile")
    assert uploaded(url, b"later").status_code == 412
    assert store.get(KEY)[0] == b"meanwhile"


def test_a_session_is_for_so_many_bytes(store: GcsStore, fake: StorageFake) -> None:
    url = store.begin_upload(KEY, len(DATA), None, {})
    assert uploaded(url, DATA + b"more").status_code == 400
    assert fake.names(BUCKET) == []


def test_a_bucket_that_does_not_respond(store: GcsStore, fake: StorageFake) -> None:
    fake.deny("storage.objects.create", f"{BUCKET}/team/")
    with pytest.raises(StoreUnavailable):
        store.begin_upload(KEY, 5, None, {})


def test_a_signed_address_reads_one_generation(store: GcsStore, fake: StorageFake) -> None:
    sign(store)
    info = store.put(KEY, DATA)
    url = store.address_to_read(info, 3600.0)
    assert url is not None
    answer = requests.get(url, timeout=20)
    assert (answer.status_code, answer.content, answer.headers["X-Goog-Generation"]) == (200, DATA, info.generation)
    part = requests.get(url, headers={"Range": "bytes=5-9"}, timeout=20)
    assert (part.status_code, part.content) == (206, b"56789")
    store.put(KEY, b"newer")
    assert requests.get(url, timeout=20).status_code == 404


@pytest.mark.parametrize(
    "change",
    [
        lambda url: url.replace("model.pt", "other.pt"),
        lambda url: url.replace("digits-7", "digits-8"),
        lambda url: url.replace("X-Goog-Expires=3600", "X-Goog-Expires=360000"),
        lambda url: url[:-2] + ("00" if url[-2:] != "00" else "11"),
    ],
)
def test_a_changed_address_is_refused(store: GcsStore, change: Any) -> None:
    sign(store)
    info = store.put(KEY, DATA)
    for other in ("runs/digits-7/checkpoints/ä b/other.pt", "runs/digits-8/checkpoints/ä b/model.pt"):
        store.put(other, b"secret")
    url = store.address_to_read(info, 3600.0)
    assert url is not None
    assert change(url) != url
    assert requests.get(change(url), timeout=20).status_code == 403
    assert requests.delete(url, timeout=20).status_code == 403


def test_an_address_ends(store: GcsStore, fake: StorageFake, monkeypatch: pytest.MonkeyPatch) -> None:
    sign(store)
    url = store.address_to_read(store.put(KEY, DATA), 60.0)
    assert url is not None
    clock = fake.clock
    fake.clock = lambda: clock() + 61.0
    assert requests.get(url, timeout=20).status_code == 400


def test_an_account_that_cannot_sign(store: GcsStore) -> None:
    assert store.address_to_read(ObjectInfo(KEY, 5, "1", 0.0), 60.0) is None


def test_an_account_that_may_not_sign(store: GcsStore) -> None:
    class Denied(SigningAccount):
        def sign_bytes(self, message: bytes) -> bytes:
            raise RefreshError("iam.serviceAccounts.signBlob denied")

    sign(store, Denied())
    assert store.address_to_read(ObjectInfo(KEY, 5, "1", 0.0), 60.0) is None


def test_the_address_of_a_session_is_at_the_bucket(store: GcsStore, fake: StorageFake) -> None:
    assert urlsplit(store.begin_upload(KEY, 5, None, {})).netloc == urlsplit(fake.url).netloc
