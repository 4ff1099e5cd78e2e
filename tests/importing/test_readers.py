"""The places of an old run: a bucket that is not ours, and a copy in a folder of this computer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.objectstores.filesystem import PlainFolder
from supervisor.objectstores.reading import open_objects
from supervisor.ports.objectstore import ObjectMissing, StoreForbidden, StoreMissing
from supervisor.services.migration import oldrun
from tests.cloud.storage import StorageFake
from tests.importing.oldrunner import LAST, OLD_ID, old_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for key, data in old_run().items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(data)
    return tmp_path


def test_a_copy_in_a_folder_is_read_like_the_bucket(folder: Path) -> None:
    with open_objects(folder.as_uri()) as reader:
        old = oldrun.read(reader, oldrun.place_of(f"{folder.as_uri()}/runs/{OLD_ID}"))
        assert b"".join(reader.read(f"runs/{OLD_ID}/checkpoint_sync/checkpoints/last.pt")) == LAST
        assert b"".join(reader.read(f"runs/{OLD_ID}/status.txt", 2, 3)) == b"OPP"
    assert (old.state, old.results, len(old.records), old.troubles) == ("STOPPED", 1, 7, ())


def test_a_folder_is_not_left(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    secret = tmp_path_factory.mktemp("elsewhere") / "secret"
    secret.write_text("hunter2")
    os.symlink(secret, folder / "runs" / OLD_ID / "restart.lock")
    reader = PlainFolder(folder.as_uri())
    with pytest.raises(ObjectMissing):
        reader.stat(f"runs/{OLD_ID}/restart.lock")
    with pytest.raises(ValueError, match=r"no '\.\.'"):
        reader.stat("runs/../../secret")
    keys = [info.key for page in reader.pages("runs/", 3) for info in page.objects]
    assert keys == sorted(old_run())


def test_a_folder_that_is_not_there_is_not_an_empty_one(tmp_path: Path) -> None:
    reader = PlainFolder((tmp_path / "nothing").as_uri())
    with pytest.raises(StoreMissing):
        reader.stat("runs/x/state.json")
    with pytest.raises(StoreMissing):
        next(reader.pages("runs/x/"))


@pytest.mark.parametrize("url", ["file://host/x", "file:///x?y", "s3://b", "file:x"])
def test_other_addresses_are_none(url: str) -> None:
    with pytest.raises(ValueError, match=r"file:///FOLDER|gs://BUCKET"), open_objects(url):
        pass


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[StorageFake]:
    storage = StorageFake()
    storage.make_bucket("old-bucket")
    for key, data in old_run().items():
        storage.put("old-bucket", key, data)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", storage.url)
    yield storage
    storage.close()


def test_another_bucket_is_read_and_nothing_else(bucket: StorageFake) -> None:
    before = [(name, bucket.find("old-bucket", name)) for name in bucket.names("old-bucket")]
    with open_objects("gs://old-bucket") as reader:
        old = oldrun.read(reader, oldrun.place_of(f"gs://old-bucket/runs/{OLD_ID}"))
        assert b"".join(reader.read(f"runs/{OLD_ID}/checkpoint_sync/checkpoints/last.pt")) == LAST
    assert (old.state, old.results, len(old.records), old.troubles) == ("STOPPED", 1, 7, ())
    assert [(name, bucket.find("old-bucket", name)) for name in bucket.names("old-bucket")] == before
    assert set(bucket.counts) <= {"storage.objects.get", "storage.objects.list"}


def test_a_bucket_that_may_not_be_read_says_so_in_kind(bucket: StorageFake) -> None:
    bucket.deny("storage.objects.get")
    with open_objects("gs://old-bucket") as reader, pytest.raises(StoreForbidden, match=r"\(403\)"):
        reader.stat(f"runs/{OLD_ID}/state.json")


def test_a_bucket_that_is_not_there(bucket: StorageFake) -> None:
    with open_objects("gs://other-bucket") as reader, pytest.raises(StoreMissing):
        next(reader.pages(f"runs/{OLD_ID}/"))
