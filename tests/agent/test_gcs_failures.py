"""The agent's Cloud Storage client when the network, the bucket or the account fail: retried, resumed, or reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.agent.store.gcs import GcsStore
from supervisor.contract.stores.promise import ABSENT, PreconditionFailed, StoreUnavailable
from tests.agent.bench import ManualClock
from tests.agent.bucket import BUCKET, DELETE, INSERT, LIST, PREFIX, READ, RETRY_FOR_S, store_at
from tests.cloud.metadata import MetadataFake
from tests.cloud.storage import StorageFake
from tests.cloud.storage_troubles import spoilt
from tests.cloud.web import Reset


@pytest.mark.parametrize("url", ["gs://", "gs:///a", "file:///x", "gs://b?x=1", "gs://b/a//b", "gs://b/../x"])
def test_a_url_without_a_bucket_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL of a bucket|key"):
        GcsStore.at(url)


@pytest.mark.parametrize("key", ["new\nline", "a\rb"])
def test_a_key_that_cloud_storage_cannot_keep_is_refused(store: GcsStore, key: str) -> None:
    with pytest.raises(ValueError, match="no line break"):
        store.put(key, b"")


def test_keys_are_below_the_prefix(cloud: StorageFake, store: GcsStore) -> None:
    assert store.url == "gs://spot-test/team/a"
    store.put("beats/x", b"1")
    assert cloud.names(BUCKET) == ["team/a/beats/x"]
    assert [info.key for page in store.pages("beats/") for info in page.objects] == ["beats/x"]


def test_unchanged_content_is_not_read_again(cloud: StorageFake, store: GcsStore) -> None:
    first = store.put("baton", b"1")
    assert [store.get("baton") for _ in range(3)] == [(b"1", first)] * 3
    assert cloud.counts[READ] == 4, "each look, and the content once"
    second = store.put("baton", b"2", metadata={"n": "2"})
    assert store.get("baton") == (b"2", second)


# --- busy, broken, away ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_temporary_outage_is_retried(cloud: StorageFake, store: GcsStore, clock: ManualClock, status: int) -> None:
    cloud.trouble(status, times=4)
    began = clock.now
    assert store.get(store.put("a", b"1").key)[0] == b"1"
    assert clock.now - began > 1.0, "it was not paced"


def test_an_endless_outage_is_unavailable_with_the_last_reason(
    cloud: StorageFake, store: GcsStore, clock: ManualClock
) -> None:
    cloud.trouble(503, times=None)
    began = clock.now
    for call in (lambda: store.put("a", b"1"), lambda: store.stat("a"), lambda: list(store.read("a"))):
        with pytest.raises(StoreUnavailable, match=r"HTTP 503: We encountered an internal error"):
            call()
    assert 3 * RETRY_FOR_S <= clock.now - began <= 3 * (RETRY_FOR_S + 8.0)
    assert len(cloud.requests) < 60


def test_a_missing_store_is_unavailable(clock: ManualClock) -> None:
    fake = StorageFake()
    store = store_at(fake, clock)
    fake.close()
    with pytest.raises(StoreUnavailable, match="cannot read 'a'"):
        store.stat("a")


def test_writes_of_one_object_faster_than_the_bucket_takes_them(clock: ManualClock) -> None:
    cloud = StorageFake(clock=clock)
    cloud.make_bucket(BUCKET)
    cloud.write_limit = True
    store = store_at(cloud, clock)
    generation = ABSENT
    for n in range(5):
        generation = store.put("beats/x", b"%d" % n, generation).generation
    assert store.get("beats/x")[0] == b"4"
    store.close()
    cloud.close()


# --- answers that were lost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", [503, Reset()])
def test_a_conditional_write_whose_response_was_lost_counts(
    cloud: StorageFake, store: GcsStore, what: int | Exception
) -> None:
    first = store.put("baton", b"1")
    cloud.trouble(what, when=INSERT, after=True)
    second = store.put("baton", b"2", first.generation, {"n": "2"})
    assert store.get("baton") == (b"2", second)
    cloud.trouble(what, when=INSERT, after=True)
    assert store.put("new", b"1", ABSENT) == store.stat("new")


def test_a_condition_that_does_not_hold_costs_one_request(cloud: StorageFake, store: GcsStore) -> None:
    first = store.put("baton", b"1")
    store.put("baton", b"2")
    cloud.counts.clear()
    with pytest.raises(PreconditionFailed):
        store.put("baton", b"3", first.generation)
    assert cloud.counts == {INSERT: 1}


def test_another_write_instead_of_a_lost_one_is_not_ours(cloud: StorageFake, store: GcsStore) -> None:
    first = store.put("baton", b"1")
    cloud.put(BUCKET, f"{PREFIX}/baton", b"theirs")
    cloud.trouble(Reset(), when=INSERT)
    with pytest.raises(PreconditionFailed):
        store.put("baton", b"ours", first.generation)
    assert store.get("baton")[0] == b"theirs"


def test_equal_content_of_an_older_generation_is_not_ours(cloud: StorageFake, store: GcsStore) -> None:
    """Its generation is older than the expected one: nothing was written."""
    there = store.put("baton", b"same")
    cloud.trouble(Reset(), when=INSERT)
    with pytest.raises(PreconditionFailed):
        store.put("baton", b"same", str(int(there.generation) + 1))


def test_a_deletion_whose_response_was_lost_counts(cloud: StorageFake, store: GcsStore) -> None:
    info = store.put("a", b"1")
    cloud.trouble(Reset(), when=DELETE, after=True)
    assert store.delete("a", info.generation) is True
    assert store.delete("a") is False


# --- reading --------------------------------------------------------------------------------------------------------


def media(request: object, method: str) -> bool:
    return method == READ and "alt" in request.query  # type: ignore[attr-defined]


def test_a_read_that_breaks_off_continues_where_it_was(cloud: StorageFake, store: GcsStore, large: Path) -> None:
    store.put_file("model", large)
    for cut_after in (0, 1, 3_000_000):
        cloud.trouble(spoilt(cut_after=cut_after), when=media)
    cloud.trouble(503, when=media)
    assert b"".join(store.read("model")) == large.read_bytes()
    ranges = [request.headers["range"] for request in cloud.requests if "range" in request.headers]
    assert len(ranges) >= 2
    assert all(value.startswith("bytes=") and value != "bytes=0-" for value in ranges)


def test_a_read_that_breaks_off_never_continues_in_another_generation(cloud: StorageFake, store: GcsStore) -> None:
    store.put("log", bytes(2_000_000))
    cloud.trouble(spoilt(cut_after=1_000_000), when=media)
    stream = store.read("log")
    next(stream)
    cloud.put(BUCKET, f"{PREFIX}/log", b"x" * 2_000_000)
    with pytest.raises(StoreUnavailable, match="replaced while it was read"):
        list(stream)


def test_damaged_content_is_noticed(cloud: StorageFake, store: GcsStore) -> None:
    store.put("model", b"as it was trained")
    cloud.damage(BUCKET, f"{PREFIX}/model", b"as it was trainee")
    for look in (store.get, lambda key: list(store.read(key))):
        with pytest.raises(StoreUnavailable, match="differs from its checksum"):
            look("model")
    assert b"".join(store.read("model", 0, 5)) == b"as it"


def test_folders_of_a_clouds_console_are_no_objects_of_ours(cloud: StorageFake, store: GcsStore) -> None:
    """They are objects whose names end with a slash: no key can name them for a read or a deletion."""
    store.put("runs/a/checkpoints/1", b"1")
    for name in ("runs/", "runs/a/checkpoints/", "runs/a//b"):
        cloud.put(BUCKET, f"{PREFIX}/{name}", b"")
    assert [info.key for page in store.pages("runs/") for info in page.objects] == ["runs/a/checkpoints/1"]
    assert [info.key for page in store.pages("runs/", 1) for info in page.objects] == ["runs/a/checkpoints/1"]


def test_a_listing_that_breaks_off_is_retried(cloud: StorageFake, store: GcsStore) -> None:
    for n in range(5):
        store.put(f"beats/{n}", b"")
    cloud.trouble(spoilt(cut_after=20), when=LIST)
    cloud.trouble(503, when=LIST)
    pages = list(store.pages("beats/", 2))
    assert [info.key for page in pages for info in page.objects] == [f"beats/{n}" for n in range(5)]


def test_an_invalid_response_is_unavailable(clock: ManualClock) -> None:
    cloud = StorageFake()
    cloud.make_bucket(BUCKET)
    store = store_at(cloud, clock)
    for body in (b"<html>", b"[]", b'{"items": [{"name": "x"}]}', b'{"items": 5}'):
        cloud.trouble(spoilt(body=body), when=LIST)
        with pytest.raises(StoreUnavailable):
            list(store.pages(""))
    store.close()
    cloud.close()


# --- accounts -------------------------------------------------------------------------------------------------------


@pytest.fixture
def machine(cloud: StorageFake, monkeypatch: pytest.MonkeyPatch) -> Iterator[MetadataFake]:
    with MetadataFake("p", {"id": "1", "name": "vm", "zone": "us-east1-b"}) as fake:
        monkeypatch.setenv("GCE_METADATA_HOST", fake.host)
        cloud.takes_token = lambda token: fake.accepts("Bearer " + token)
        yield fake


def test_a_token_is_requested_once_and_again_when_it_is_refused(
    cloud: StorageFake, machine: MetadataFake, clock: ManualClock
) -> None:
    store = store_at(cloud, clock)
    for n in range(5):
        store.put("a", b"%d" % n)
    assert machine.tokens_issued == 1
    assert len(machine.requests) == 1
    machine.revoke()
    assert store.get("a")[0] == b"4"
    assert machine.tokens_issued == 2
    store.close()


def test_a_token_is_renewed_before_its_end(cloud: StorageFake, machine: MetadataFake, clock: ManualClock) -> None:
    store = store_at(cloud, clock)
    store.put("a", b"1")
    clock.now += 3599.0 - 245.0
    store.put("a", b"2")
    assert len(machine.requests) == 1
    clock.now += 10.0
    store.put("a", b"3")
    assert len(machine.requests) == 2
    store.close()


def test_without_a_token_the_store_is_unavailable(
    cloud: StorageFake, machine: MetadataFake, clock: ManualClock
) -> None:
    store = store_at(cloud, clock)
    machine.close()
    with pytest.raises(StoreUnavailable, match="cannot read 'a'"):
        store.stat("a")
    assert cloud.requests == []


def test_a_denied_account_is_reported(cloud: StorageFake, store: GcsStore) -> None:
    store.put("a", b"1")
    cloud.deny()
    for call in (
        lambda: store.stat("a"), lambda: list(store.read("a")), lambda: store.put("a", b"2"),
        lambda: store.delete("a"), lambda: list(store.pages("")),
    ):  # fmt: skip
        with pytest.raises(StoreUnavailable, match=r"this machine's account may not \(HTTP 403: .*Permission"):
            call()
    assert len(cloud.requests) == 6, "a refusal is repeated"


def test_a_missing_bucket_is_not_a_missing_object(cloud: StorageFake, clock: ManualClock) -> None:
    store = store_at(cloud, clock, "nobody")
    for call in (
        lambda: store.stat("a"), lambda: store.get("a"), lambda: list(store.read("a")),
        lambda: store.put("a", b"2"), lambda: store.delete("a"), lambda: list(store.pages("")),
    ):  # fmt: skip
        with pytest.raises(StoreUnavailable, match=r"no such bucket \(HTTP 404: The specified bucket does not"):
            call()
    store.close()
