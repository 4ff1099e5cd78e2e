"""Large objects to and from Cloud Storage: a broken transfer continues, and damaged bytes are not returned."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.objectstores.gcs import store as gcs
from supervisor.objectstores.gcs import transfer
from supervisor.objectstores.gcs.retry import BadStatus
from supervisor.objectstores.gcs.store import GcsStore
from supervisor.objectstores.gcs.transfer import PIECE_BYTES, Download
from supervisor.ports.objectstore import ABSENT, PreconditionFailed, StoreUnavailable
from tests.cloud.storage import StorageFake
from tests.cloud.storage_troubles import spoilt
from tests.cloud.web import Request, Reset, Response
from tests.objectstores.gcs_bed import BUCKET, Waiting, cloud_storage, store_over

INSERT, GET, LIST = "storage.objects.insert", "storage.objects.get", "storage.objects.list"
LARGE = os.urandom(1 << 16) * 96  # 6 MiB: two pieces


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


# --- uploads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrived", [0, 1 << 20])
def test_a_broken_upload_goes_on_where_it_was(fake: StorageFake, store: GcsStore, large: Path, arrived: int) -> None:
    fake.break_upload(arrived)
    info = store.put_file("model.bin", large, ABSENT)
    assert store.get("model.bin") == (LARGE, info)
    ranges = [request.headers["content-range"] for request in fake.requests if request.method == "PUT"]
    size, piece = len(LARGE), PIECE_BYTES
    middle = [f"bytes {arrived}-{arrived + piece - 1}/{size}"]
    end = [f"bytes {arrived + piece}-{size - 1}/{size}"]
    assert ranges[:2] == [f"bytes 0-{piece - 1}/{size}", f"bytes */{size}"]
    assert ranges[2:] == (middle + end)


@pytest.mark.parametrize("what", [503, Reset()], ids=str)
def test_an_upload_whose_last_answer_was_lost_is_known_again(
    fake: StorageFake, store: GcsStore, large: Path, what: Any
) -> None:
    last = f"-{len(LARGE) - 1}/{len(LARGE)}"
    fake.trouble(what, when=lambda request, _: request.headers.get("content-range", "").endswith(last), after=True)
    info = store.put_file("model.bin", large, ABSENT)
    assert store.stat("model.bin") == info
    with pytest.raises(PreconditionFailed):
        store.put_file("model.bin", large, ABSENT)


def test_a_condition_counts_when_the_last_byte_arrives(fake: StorageFake, store: GcsStore, large: Path) -> None:
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
    with pytest.raises(StoreUnavailable, match="session has ended"):
        store.put_file("model.bin", large)
    fake.trouble(lambda _: Response(308), times=None, when=is_part)
    with pytest.raises(StoreUnavailable, match="accepts only 0"):
        store.put_file("model.bin", large)
    assert fake.names(BUCKET) == []


@pytest.mark.parametrize("size", [5, 5 << 20], ids=["small", "large"])
def test_content_that_is_damaged_on_its_way_up_never_becomes_an_object(
    fake: StorageFake, store: GcsStore, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    before = store.put("model.bin", b"before")
    monkeypatch.setattr(gcs, "crc32c", lambda _: ("AAAAAA==", size))  # of other bytes than those that are sent
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
    with pytest.raises(StoreUnavailable, match="broke 6 times"):
        list(store.read("log"))


def test_a_download_never_mixes_two_generations(fake: StorageFake, store: GcsStore) -> None:
    fake.put(BUCKET, "team/log", LARGE)
    fake.trouble(spoilt(cut_after=3_000_000), when=is_media)
    stream = store.read("log")
    read = [next(stream)]
    fake.put(BUCKET, "team/log", LARGE[::-1])
    with pytest.raises(StoreUnavailable, match="replaced while it was read"):
        read.extend(stream)
    assert LARGE.startswith(b"".join(read))


def test_a_download_that_forgot_its_generation_would_mix_two(
    fake: StorageFake, store: GcsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgets(transfer.Download):
        generation = property(lambda _: None, lambda _, __: None)  # type: ignore[assignment]

    monkeypatch.setattr(gcs, "Download", Forgets)
    fake.put(BUCKET, "team/log", LARGE)
    fake.trouble(spoilt(cut_after=3_000_000), when=is_media)
    stream = store.read("log", 0, len(LARGE))
    read = [next(stream)]
    fake.put(BUCKET, "team/log", LARGE[::-1])
    mixed = b"".join([*read, *stream])
    assert mixed not in {LARGE, LARGE[::-1]}
    assert len(mixed) == len(LARGE)


def test_what_was_damaged_in_the_store_is_not_read(
    fake: StorageFake, store: GcsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("model.bin", b"weights")
    fake.damage(BUCKET, "team/model.bin", b"weighty")
    for look in (store.get, lambda key: list(store.read(key))):
        with pytest.raises(StoreUnavailable, match="CRC32C"):
            look("model.bin")
    # A store that compares nothing returns the damaged bytes.
    monkeypatch.setattr(transfer, "_crc32c", lambda _: None)
    assert store.get("model.bin")[0] == b"weighty"


class Headerless:
    """A response through a proxy that removes Google's own headers."""

    status_code, headers = 200, dict[str, str]()

    def close(self) -> None:
        pass


class Once:
    def call(self, call: Any) -> Any:
        return call((1.0, 1.0))


def test_an_answer_without_a_generation_is_no_crash() -> None:
    """It does not identify the object; a request for one generation does not need the header."""
    unnamed = Download(Once(), lambda *_, **__: Headerless(), "http://127.0.0.1/o/a", None)  # type: ignore[arg-type]
    with pytest.raises(BadStatus, match="generation"):
        unnamed._open(0, None, (1.0, 1.0))
    named = Download(Once(), lambda *_, **__: Headerless(), "http://127.0.0.1/o/a", "17")  # type: ignore[arg-type]
    named._open(0, None, (1.0, 1.0))
    assert named.generation == "17"
