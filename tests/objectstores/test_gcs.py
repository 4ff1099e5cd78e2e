"""Cloud Storage's adapter: addresses, listings with the store's time, threads."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from typing import Any
from unittest.mock import patch

import pytest

from supervisor.contract.stores import bucket
from supervisor.objectstores.gcs import session as gcs_session
from supervisor.objectstores.gcs import transfer
from supervisor.objectstores.gcs.store import GcsStore
from supervisor.ports.objectstore import ABSENT, ObjectMissing, StoreUnavailable
from tests.cloud.storage import StorageFake
from tests.cloud.storage_troubles import spoilt
from tests.cloud.web import Reset, Response
from tests.objectstores.gcs_bed import BUCKET, Waiting, cloud_storage, store_over

INSERT, GET, LIST = "storage.objects.insert", "storage.objects.get", "storage.objects.list"


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


@pytest.fixture
def fake(waiting: Waiting) -> Iterator[StorageFake]:
    with cloud_storage(waiting.clock) as fake:
        yield fake


@pytest.fixture
def store(fake: StorageFake, waiting: Waiting) -> Iterator[GcsStore]:
    with store_over(waiting) as store:
        yield store


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("gs://spot-runs", "gs://spot-runs"),
        ("gs://spot-runs/", "gs://spot-runs"),
        ("gs://spot-runs/team/a/", "gs://spot-runs/team/a"),
        ("gs://a.b_c-1/ü x", "gs://a.b_c-1/ü x"),
    ],
)
def test_a_store_is_a_bucket_and_a_folder(url: str, named: str) -> None:
    assert GcsStore.at(url).url == named


@pytest.mark.parametrize(
    "url", ["", "gs://", "gs:///a", "gs://B", "gs://b", "s3://spot-runs", "gs://spot-runs/a//b", "gs://spot-runs/../x"]
)
def test_anything_else_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"gs://|key"):
        GcsStore.at(url)


def test_a_folder_keeps_two_stores_of_a_bucket_apart(fake: StorageFake, store: GcsStore) -> None:
    other = GcsStore("gs://spot-runs/te")
    whole = GcsStore("gs://spot-runs")
    store.put("beats/a", b"1")
    with pytest.raises(ObjectMissing):
        other.stat("beats/a")
    assert [page.objects for page in other.pages("")] == [()]
    assert [info.key for page in whole.pages("t") for info in page.objects] == ["team/beats/a"]
    other.close()
    whole.close()


def test_where_googles_client_is_missing_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        raise ModuleNotFoundError(name)

    for find_spec in (lambda _: None, nothing):
        monkeypatch.setattr(gcs_session, "find_spec", find_spec)
        with pytest.raises(ImportError, match=r"spot-supervisor\[google\]"):
            GcsStore.at("gs://spot-runs")


def test_a_supervisor_without_a_cloud_never_loads_googles_client() -> None:
    code = "import sys; from supervisor.objectstores.gcs.store import GcsStore; GcsStore.at('gs://abc')"
    code += "; assert 'google.auth' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- listings ---------------------------------------------------------------------------------------------------------


def test_a_listing_asks_for_what_it_needs_in_pages_of_1000(fake: StorageFake, store: GcsStore) -> None:
    fake.fill(BUCKET, ((f"team/beats/{n:04d}", b"x", {"beat": str(n)}) for n in range(2001)))
    found = [info for page in store.pages("beats/") for info in page.objects]
    assert [dict(info.metadata) for info in found] == [{"beat": str(n)} for n in range(2001)]
    assert fake.counts[LIST] == 3
    assert {request.one("fields") for request in fake.requests} == {transfer.FIELDS}


def test_the_time_is_the_stores_and_no_object_is_from_tomorrow(
    fake: StorageFake, store: GcsStore, waiting: Waiting
) -> None:
    waiting.now = 1_600_000_000.75  # the Date header says .00
    info = store.put("beats/a", b"")
    assert info.updated == 1_600_000_000.75
    (page,) = store.pages("beats/")
    assert page.server_time == 1_600_000_000.75
    waiting.now += 99.0
    (page,) = store.pages("beats/")
    assert page.server_time == 1_600_000_099.0
    store.put("canary/b", b"")
    times = [page.server_time for page in store.pages("", 1)]
    assert times == sorted(times) == [1_600_000_099.0, 1_600_000_099.75]


def test_a_listing_without_the_stores_time_is_none(fake: StorageFake, store: GcsStore, monkeypatch: Any) -> None:
    def no_date(_: str) -> None:
        raise ValueError("no date")

    assert parsedate_to_datetime("Fri, 20 Nov 2026 00:00:00 GMT").timestamp() > 0
    monkeypatch.setattr(bucket, "parsedate_to_datetime", no_date)
    with pytest.raises(StoreUnavailable, match="listing cannot be read"):
        list(store.pages(""))


def test_an_item_that_cannot_be_read_makes_the_listing_unreadable() -> None:
    waiting = Waiting()
    with patch.dict(os.environ):
        fake = StorageFake(waiting.clock)  # no oracle: these responses are wrong on purpose
        fake.make_bucket(BUCKET)
        os.environ["STORAGE_EMULATOR_HOST"] = fake.url
        with store_over(waiting) as store:
            for body in ([], {"items": [{"name": "team/a"}]}, {"items": [None]}, b"{"):
                fake.trouble(lambda _, body=body: Response(200, body), times=None)
                with pytest.raises(StoreUnavailable, match="listing cannot be read"):
                    list(store.pages(""))
                fake.calm()
        fake.close()


@pytest.mark.parametrize("what", [403, 404, 503, Reset()], ids=str)
def test_a_listing_that_breaks_in_the_middle_is_worthless(fake: StorageFake, store: GcsStore, what: Any) -> None:
    for n in range(5):
        store.put(f"beats/{n}", b"")
    fake.trouble(what, times=None, when=lambda request, _: request.one("pageToken") is not None)
    with pytest.raises(StoreUnavailable):
        list(store.pages("beats/", 2))


def test_a_page_that_breaks_off_is_asked_for_again(fake: StorageFake, store: GcsStore) -> None:
    for n in range(5):
        store.put(f"beats/{n}", b"")
    fake.trouble(spoilt(cut_after=40), when=LIST)
    assert [len(page.objects) for page in store.pages("beats/", 2)] == [2, 2, 1]
    assert fake.counts[LIST] == 4


def test_the_folders_of_googles_console_are_no_objects(fake: StorageFake, store: GcsStore) -> None:
    for name in ("runs/", "runs/x//y", "runs/./z", "runs/../z", "/runs", "runs/x/.stop", "runs/..z"):
        fake.put(BUCKET, "team/" + name, b"")
    assert [info.key for page in store.pages("") for info in page.objects] == ["runs/..z", "runs/x/.stop"]


# --- threads ----------------------------------------------------------------------------------------------------------


def test_32_threads_share_one_store_and_its_connections(
    fake: StorageFake, store: GcsStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    def work(n: int) -> bool:
        info = store.put(f"runs/{n}", b"%d" % n, ABSENT)
        return store.get(f"runs/{n}") == (b"%d" % n, info)

    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(work, range(64)))
    # Not those of a thread that an earlier test left behind.
    assert [
        record for record in caplog.records if record.name.startswith(("urllib3", "google", "supervisor.objectstores"))
    ] == []


def test_an_errors_text_is_googles_message_and_not_its_json(fake: StorageFake, store: GcsStore) -> None:
    fake.deny()
    with pytest.raises(StoreUnavailable) as caught:
        store.put("a", b"")
    assert "{" not in str(caught.value)
    assert json.dumps(str(caught.value)).count("does not have storage.objects.create") == 1


@pytest.mark.parametrize("key", ["new\nline", "a\rb"])
def test_a_key_that_cloud_storage_cannot_keep_is_refused_by_its_name(store: GcsStore, key: str) -> None:
    with pytest.raises(ValueError, match="no line break"):
        store.put(key, b"")
