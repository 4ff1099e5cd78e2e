"""Large files into a bucket: in one session that continues where it broke, or fails."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.agent.store.gcs import GcsStore
from supervisor.contract.stores.promise import ABSENT, ObjectMissing, PreconditionFailed, StoreUnavailable
from tests.agent.bucket import BUCKET, INSERT, LARGE, PREFIX
from tests.cloud.storage import StorageFake
from tests.cloud.web import Reset


def sent(cloud: StorageFake) -> list[str]:
    return [r.headers["content-range"] for r in cloud.requests if "content-range" in r.headers]


def test_a_broken_upload_continues_where_it_was(cloud: StorageFake, store: GcsStore, large: Path) -> None:
    cloud.break_upload(5_000_000)
    info = store.put_file("model", large, ABSENT)
    assert cloud.find(BUCKET, f"{PREFIX}/model").data == large.read_bytes()  # type: ignore[union-attr]
    assert info == store.stat("model")
    arrived = 5_000_000 // (256 * 1024) * (256 * 1024)
    assert sent(cloud) == [
        f"bytes 0-{LARGE - 1}/{LARGE}", f"bytes */{LARGE}", f"bytes {arrived}-{LARGE - 1}/{LARGE}",
    ]  # fmt: skip


def test_an_expired_upload_session_is_started_again(cloud: StorageFake, store: GcsStore, large: Path) -> None:
    cloud.break_upload(2_000_000)
    cloud.trouble(404, when=lambda request, _: request.headers.get("content-range") == f"bytes */{LARGE}")
    store.put_file("model", large)
    assert cloud.find(BUCKET, f"{PREFIX}/model").data == large.read_bytes()  # type: ignore[union-attr]
    assert len(sent(cloud)) == 3


def test_a_large_conditional_write_whose_response_was_lost_counts(
    cloud: StorageFake, store: GcsStore, large: Path
) -> None:
    cloud.trouble(Reset(), when=lambda request, method: method == INSERT and request.method == "PUT", after=True)
    assert store.put_file("model", large, ABSENT) == store.stat("model")


def test_wrong_content_is_removed_and_reported(cloud: StorageFake, store: GcsStore, large: Path) -> None:
    cloud.trouble(
        lambda answer: replace(answer, body={**answer.body, "md5Hash": "1B2M2Y8AsgTpgAmY7PhCfg=="}),
        when=lambda request, _: request.method == "PUT",
    )
    with pytest.raises(StoreUnavailable, match="differs from the sent content"):
        store.put_file("model", large)
    assert cloud.names(BUCKET) == []


def test_a_large_write_over_an_existing_object_sends_nothing(cloud: StorageFake, store: GcsStore, large: Path) -> None:
    store.put("model", b"first")
    with pytest.raises(PreconditionFailed):
        store.put_file("model", large, ABSENT)
    assert sent(cloud) == []


def test_an_upload_without_progress_is_given_up(cloud: StorageFake, store: GcsStore, large: Path) -> None:
    cloud.trouble(503, times=None, when=lambda request, _: request.method == "PUT")
    with pytest.raises(StoreUnavailable, match="HTTP 503"):
        store.put_file("model", large)
    with pytest.raises(ObjectMissing):
        store.stat("model")


def test_a_file_that_shrinks_during_its_upload_is_no_object(
    cloud: StorageFake, store: GcsStore, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fstat
    larger = LARGE + 1_000
    monkeypatch.setattr(
        "supervisor.agent.store.gcs.os.fstat",
        lambda descriptor: os.stat_result((*real(descriptor)[:6], larger, *real(descriptor)[7:])),
    )
    with pytest.raises(StoreUnavailable, match="became shorter"):
        store.put_file("model", large)
    assert cloud.names(BUCKET) == []
