"""Cloud Storage's adapter: addresses, listings with the store's time, what breaks in the middle, what is damaged."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from supervisor.objectstores import gcs, gcs_reading
from supervisor.objectstores.gcs import GcsStore
from supervisor.ports.objectstore import ABSENT, ObjectMissing, PreconditionFailed, StoreUnavailable
from tests.cloud.storage import StorageFake
from tests.cloud.storage_troubles import spoilt
from tests.cloud.web import Request, Reset, Response
from tests.objectstores.gcs_bed import BUCKET, Waiting, cloud_storage, store_over

INSERT, GET, LIST = "storage.objects.insert", "storage.objects.get", "storage.objects.list"
LARGE = os.urandom(1 << 16) * 160  # 10 MiB: two pieces


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


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "model.bin"
    path.write_bytes(LARGE)
    return path


def is_part(request: Request, method: str) -> bool:
    return method == INSERT and request.method == "PUT"


def is_media(request: Request, method: str) -> bool:
    return method == GET and request.one("alt") == "media"


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
    "url",
    [
        "",
        "gs://",
        "gs:///a",
        "gs://B",
        "gs://b",
        "s3://spot-runs",
        "gs://spot-runs/a//b",
        "gs://spot-runs/../x",
    ],
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


def test_a_supervisor_without_a_cloud_never_loads_googles_client() -> None:
    code = "import sys; from supervisor.objectstores.gcs import GcsStore; GcsStore.at('gs://abc')"
    code += "; assert 'google.auth' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- listings ---------------------------------------------------------------------------------------------------------


def test_a_listing_asks_for_what_it_needs_in_pages_of_1000(fake: StorageFake, store: GcsStore) -> None:
    fake.fill(BUCKET, ((f"team/beats/{n:04d}", b"x", {"beat": str(n)}) for n in range(2001)))
    found = [info for page in store.pages("beats/") for info in page.objects]
    assert [dict(info.metadata) for info in found] == [{"beat": str(n)} for n in range(2001)]
    assert fake.counts[LIST] == 3
    assert {request.one("fields") for request in fake.requests} == {gcs_reading.FIELDS}


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


def test_a_listing_without_the_stores_time_is_none(
    fake: StorageFake, store: GcsStore, monkeypatch: Any
) -> None:
    def no_date(_: str) -> None:
        raise ValueError("no date")

    assert parsedate_to_datetime("Fri, 20 Nov 2026 00:00:00 GMT").timestamp() > 0
    monkeypatch.setattr(gcs_reading, "parsedate_to_datetime", no_date)
    with pytest.raises(StoreUnavailable, match="listing cannot be read"):
        list(store.pages(""))


@pytest.mark.parametrize("what", [403, 404, 503, Reset()], ids=str)
def test_a_listing_that_breaks_in_the_middle_is_worthless(
    fake: StorageFake, store: GcsStore, what: Any
) -> None:
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


# --- uploads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrived", [0, 1 << 20])
def test_a_broken_upload_goes_on_where_it_was(
    fake: StorageFake, store: GcsStore, large: Path, arrived: int
) -> None:
    fake.break_upload(arrived)
    info = store.put_file("model.bin", large, ABSENT)
    assert store.get("model.bin") == (LARGE, info)
    ranges = [request.headers["content-range"] for request in fake.requests if request.method == "PUT"]
    size, piece = len(LARGE), 8 << 20
    middle = [f"bytes {arrived}-{arrived + piece - 1}/{size}"]
    end = [f"bytes {arrived + piece}-{size - 1}/{size}"]
    assert ranges[:2] == [f"bytes 0-{piece - 1}/{size}", f"bytes */{size}"]
    assert ranges[2:] == (middle + end)


@pytest.mark.parametrize("what", [503, Reset()], ids=str)
def test_an_upload_whose_last_answer_was_lost_is_known_again(
    fake: StorageFake, store: GcsStore, large: Path, what: Any
) -> None:
    last = f"-{len(LARGE) - 1}/{len(LARGE)}"
    fake.trouble(
        what, when=lambda request, _: request.headers.get("content-range", "").endswith(last), after=True
    )
    info = store.put_file("model.bin", large, ABSENT)
    assert store.stat("model.bin") == info
    with pytest.raises(PreconditionFailed):
        store.put_file("model.bin", large, ABSENT)


def test_a_condition_counts_when_the_last_byte_arrives(
    fake: StorageFake, store: GcsStore, large: Path
) -> None:
    def meanwhile(request: Request, method: str) -> bool:
        if is_part(request, method) and not fake.names(BUCKET):
            fake.put(BUCKET, "team/model.bin", b"theirs")
        return False

    fake.trouble(503, when=meanwhile)
    with pytest.raises(PreconditionFailed):
        store.put_file("model.bin", large, ABSENT)
    assert store.get("model.bin")[0] == b"theirs"


def test_an_upload_whose_session_is_gone_or_that_gets_nowhere_writes_nothing(
    fake: StorageFake, store: GcsStore, large: Path
) -> None:
    def forget(response: Response) -> Response:
        fake.forget_uploads()
        return response

    fake.trouble(forget, when=is_part)
    with pytest.raises(StoreUnavailable):
        store.put_file("model.bin", large)
    fake.trouble(lambda _: Response(308), times=None, when=is_part)
    with pytest.raises(StoreUnavailable, match="takes only 0"):
        store.put_file("model.bin", large)
    assert fake.names(BUCKET) == []


@pytest.mark.parametrize("size", [5, 9 << 20], ids=["small", "large"])
def test_content_that_is_damaged_on_its_way_up_never_becomes_an_object(
    fake: StorageFake, store: GcsStore, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    before = store.put("model.bin", b"before")
    monkeypatch.setattr(
        gcs, "crc32c", lambda _: ("AAAAAA==", size)
    )  # of other bytes than those that are sent
    with pytest.raises(StoreUnavailable, match=r"400.*CRC32C"):
        store.put("model.bin", bytes(size))
    assert store.get("model.bin") == (b"before", before)


# --- downloads --------------------------------------------------------------------------------------------------------


def test_a_broken_download_goes_on_where_it_was(fake: StorageFake, store: GcsStore) -> None:
    fake.put(BUCKET, "team/log", LARGE)
    for begin, length in [(0, None), (1000, None), (7, 5_000_000)]:
        end = len(LARGE) if length is None else begin + length
        fake.trouble(spoilt(cut_after=1_234_567), times=2, when=is_media)
        fake.trouble(Reset(), when=is_media)
        assert b"".join(store.read("log", begin, length)) == LARGE[begin:end]
    assert {request.one("generation") for request in fake.requests if request.headers.get("range")} > {None}


def test_a_download_that_breaks_without_end_is_given_up(fake: StorageFake, store: GcsStore) -> None:
    fake.put(BUCKET, "team/log", LARGE)
    fake.trouble(spoilt(cut_after=0), times=None, when=is_media)
    with pytest.raises(StoreUnavailable, match="broke off 6 times"):
        list(store.read("log"))


def test_a_download_never_mixes_two_generations(fake: StorageFake, store: GcsStore) -> None:
    fake.put(BUCKET, "team/log", LARGE)
    fake.trouble(spoilt(cut_after=3_000_000), when=is_media)
    stream = store.read("log")
    read = [next(stream)]
    fake.put(BUCKET, "team/log", LARGE[::-1])
    with pytest.raises(StoreUnavailable):
        read.extend(stream)
    assert LARGE.startswith(b"".join(read))


def test_what_was_damaged_in_the_store_is_not_read(
    fake: StorageFake, store: GcsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("model.bin", b"weights")
    fake.damage(BUCKET, "team/model.bin", b"weighty")
    for look in (store.get, lambda key: list(store.read(key))):
        with pytest.raises(StoreUnavailable, match="CRC32C"):
            look("model.bin")
    # A store that compares nothing hands the damage on.
    monkeypatch.setattr(gcs_reading, "_crc32c", lambda _: None)
    assert store.get("model.bin")[0] == b"weighty"


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
    assert caplog.records == []


def test_an_errors_text_is_googles_message_and_not_its_json(fake: StorageFake, store: GcsStore) -> None:
    fake.deny()
    with pytest.raises(StoreUnavailable) as caught:
        store.put("a", b"")
    assert "{" not in str(caught.value)
    assert json.dumps(str(caught.value)).count("does not have storage.objects.create") == 1
