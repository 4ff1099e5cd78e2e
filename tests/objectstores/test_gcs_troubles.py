"""Faults of Cloud Storage: bursts of errors, lost responses, permissions, expired tokens. Only waits take time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.objectstores.gcs import retry
from supervisor.objectstores.gcs.store import GcsStore
from supervisor.ports.objectstore import ABSENT, ObjectMissing, PreconditionFailed, StoreUnavailable
from tests.cloud.metadata import MetadataFake
from tests.cloud.storage import StorageFake
from tests.cloud.storage_objects import Refusal
from tests.cloud.web import Hang, Reset
from tests.objectstores.gcs_bed import BUCKET, URL, Waiting, cloud_storage, metadata_server, store_over

INSERT, GET, LIST, DELETE = (f"storage.objects.{name}" for name in ("insert", "get", "list", "delete"))


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


def everything(store: GcsStore) -> list[Callable[[], Any]]:
    """Each method of the store, for the object a/b."""
    return [
        lambda: store.put("a/b", b"new"),
        lambda: store.get("a/b"),
        lambda: list(store.read("a/b")),
        lambda: list(store.read("a/b", 1, 1)),
        lambda: store.stat("a/b"),
        lambda: list(store.pages("")),
        lambda: store.delete("a/b"),
        store.bucket,
        lambda: store.permissions(["storage.objects.get"]),
    ]


# --- storms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", [408, 429, 500, 502, 503, 504, Reset()], ids=str)
def test_a_trouble_that_passes_is_waited_for(fake: StorageFake, store: GcsStore, waiting: Waiting, what: Any) -> None:
    store.put("a/b", b"old")
    for ask in everything(store):
        fake.trouble(what, times=2)
        waiting.pauses.clear()
        ask()
        assert waiting.pauses == [0.25, 0.5]  # each longer than the last, within a bound


@pytest.mark.parametrize("status", [429, 503])
def test_a_storm_ends_in_a_clear_word_after_a_bounded_time(
    fake: StorageFake, store: GcsStore, waiting: Waiting, status: int
) -> None:
    store.put("a/b", b"old")
    fake.trouble(status, times=None)
    for ask in everything(store):
        began, asked = waiting.now, len(fake.requests)
        with pytest.raises(StoreUnavailable, match=f"gs://spot-runs/team: .*HTTP {status}"):
            ask()
        assert 8.0 < waiting.now - began <= 15.0
        assert len(fake.requests) - asked <= 8
    fake.calm()
    assert store.get("a/b")[0] == b"old"


def test_no_answer_at_all_is_given_up(fake: StorageFake) -> None:
    store = GcsStore(URL, patience_s=0.1)  # of real time: a socket waits
    fake.trouble(Hang())
    with pytest.raises(StoreUnavailable, match=r"no clear response.*[Tt]imed out"):
        store.stat("a/b")
    store.close()


def test_writes_faster_than_one_a_second_are_slowed_down_and_all_arrive(
    fake: StorageFake, store: GcsStore, waiting: Waiting
) -> None:
    fake.write_limit = True
    began = waiting.now
    generations = [store.put("beats/a", b"%d" % n).generation for n in range(4)]
    assert len(set(generations)) == 4
    assert 3.0 <= waiting.now - began < 8.0
    assert store.get("beats/a")[0] == b"3"


# --- lost answers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", [503, Reset()], ids=str)
@pytest.mark.parametrize("replaced", [False, True])
def test_a_write_whose_answer_was_lost_is_known_again(
    fake: StorageFake, store: GcsStore, what: Any, replaced: bool
) -> None:
    condition = store.put("baton", b"before").generation if replaced else ABSENT
    fake.trouble(what, when=INSERT, after=True)
    info = store.put("baton", b"mine", condition, {"n": "1"})
    assert fake.counts[INSERT] == 2 + replaced
    assert store.get("baton") == (b"mine", info)


@pytest.mark.parametrize(
    ("data", "metadata"), [(b"other", {"n": "1"}), (b"mine", {"n": "2"}), (b"mine", None)], ids=str
)
def test_anothers_object_is_never_taken_for_our_own(
    fake: StorageFake, store: GcsStore, data: bytes, metadata: dict[str, str] | None
) -> None:
    def theirs_first(response: Any) -> Any:
        fake.put(BUCKET, "team/baton", data, metadata)
        raise Refusal(503, "backendError", "We encountered an internal error. Please try again.")

    fake.trouble(theirs_first, when=INSERT)
    with pytest.raises(PreconditionFailed):
        store.put("baton", b"mine", ABSENT, {"n": "1"})
    assert store.get("baton")[0] == data


def test_the_same_content_written_by_another_is_not_ours_when_no_answer_was_lost(
    fake: StorageFake, store: GcsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def two_that_write_the_same() -> None:
        fake.put(BUCKET, "team/baton", b"same")
        fake.trouble(429, when=INSERT)  # refused for its pace: surely not carried out
        store.put("baton", b"same", ABSENT)

    with pytest.raises(PreconditionFailed):
        two_that_write_the_same()
    # A store that takes every failure for a lost response lets both of them win.
    real = retry.failure_of_status
    doubts_all = lambda status, text: replace(real(status, text), acted=True)  # noqa: E731
    monkeypatch.setattr(retry, "failure_of_status", doubts_all)
    two_that_write_the_same()


def test_a_delete_whose_answer_was_lost_is_a_delete(fake: StorageFake, store: GcsStore) -> None:
    for condition in (True, False):
        info = store.put("runs/a/.stop", b"")
        fake.trouble(503, when=DELETE, after=True)
        assert store.delete("runs/a/.stop", info.generation if condition else None) is True
        assert store.delete("runs/a/.stop") is False
    info = store.put("runs/a/.stop", b"")
    fake.trouble(Reset(), when=DELETE, after=True)
    fake.trouble(412, when=DELETE)  # the repeat finds no object that meets its condition
    assert store.delete("runs/a/.stop", info.generation) is True


# --- who may what -----------------------------------------------------------------------------------------------------


def test_a_right_that_is_missing_is_named(fake: StorageFake, store: GcsStore) -> None:
    store.put("a/b", b"old")
    for permission, ask in [
        ("storage.objects.create", lambda: store.put("a/c", b"")),
        ("storage.objects.delete", lambda: store.put("a/b", b"")),  # replacing takes both
        ("storage.objects.get", lambda: store.stat("a/b")),
        ("storage.objects.list", lambda: list(store.pages(""))),
        ("storage.objects.delete", lambda: store.delete("a/b")),
        ("storage.buckets.get", store.bucket),
    ]:
        fake.deny(permission)
        with pytest.raises(StoreUnavailable, match=rf"gs://spot-runs/team.*403.*{permission}"):
            ask()
        fake.calm()
    assert store.get("a/b")[0] == b"old"


def test_what_the_bucket_is_and_what_one_may_do_there(fake: StorageFake, store: GcsStore) -> None:
    fake.deny("storage.objects.delete")
    names = ["storage.objects.get", "storage.objects.delete"]
    assert store.permissions(names) == {"storage.objects.get"}
    assert store.bucket()["locationType"] == "region"


def test_a_bucket_that_is_not_there_is_no_missing_object(fake: StorageFake, store: GcsStore, waiting: Waiting) -> None:
    fake.drop_bucket(BUCKET)
    for ask in everything(store):
        with pytest.raises(StoreUnavailable, match=r"gs://spot-runs/team.*no such bucket \(404\)"):
            ask()
    assert waiting.pauses == []  # it is definite: nothing to wait for


def test_a_404_in_words_of_tomorrow_is_told_apart_by_a_listing(fake: StorageFake, store: GcsStore) -> None:
    other_words = Refusal(404, "notFound", "Nothing here.")
    for ask in (lambda: store.stat("a/b"), lambda: list(store.read("a/b"))):
        fake.trouble(other_words)
        with pytest.raises(ObjectMissing):
            ask()
    store.put("a/b", b"")
    fake.trouble(other_words, when=GET)
    fake.trouble(other_words, when=LIST)
    with pytest.raises(StoreUnavailable, match="no such bucket"):
        store.stat("a/b")


def test_a_token_that_ended_is_renewed_and_one_that_is_not_taken_is_named(waiting: Waiting, tmp_path: Path) -> None:
    with (
        MetadataFake() as metadata,
        metadata_server(metadata, tmp_path) as environment,
        cloud_storage(waiting.clock, **environment) as fake,
        store_over(waiting) as store,
    ):
        fake.takes_token = lambda token: token.startswith("ya29.")
        store.put("a/b", b"1")
        (first,) = {request.headers["authorization"].removeprefix("Bearer ") for request in fake.requests}
        fake.expire(first)
        metadata.revoke()
        assert store.get("a/b")[0] == b"1"
        assert fake.requests[-1].headers["authorization"] != f"Bearer {first}"
        fake.takes_token = lambda token: False
        with pytest.raises(StoreUnavailable, match=r"gs://spot-runs/team.*access token is not accepted \(401\)"):
            store.put("a/b", b"2")


def test_without_any_credentials_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    store = GcsStore(URL)
    for ask in (store.warm, lambda: list(store.pages("")), lambda: store.put("a", b"")):
        with pytest.raises(StoreUnavailable, match="no Application Default Credentials"):
            ask()
