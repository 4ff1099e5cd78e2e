"""A folder store with a faulty disk: full, missing, unreadable, frozen. The result is never "absent", never half."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract.stores import durable
from supervisor.contract.stores.folder import FolderStore
from supervisor.contract.stores.promise import StoreFull, StoreUnavailable


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore.create(tmp_path / "objects")


def keys(store: FolderStore, prefix: str = "", page_size: int = 1000) -> list[str]:
    return [info.key for page in store.pages(prefix, page_size) for info in page.objects]


def failing(real: Any, code: int, turn: Callable[[], bool] = lambda: True) -> Any:
    """`real`, but each selected call fails with the error `code`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if turn():
            raise OSError(code, os.strerror(code))
        return real(*args, **kwargs)

    return call


def nth(k: int) -> Callable[[], bool]:
    calls = itertools.count(1)
    return lambda: next(calls) == k


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_write_that_fails_at_any_step_leaves_one_whole_object(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Call after call into the system fails once, until a write gets through with none failing."""
    answers = []
    for k in itertools.count(1):
        old = store.put("runs/a/baton.json", b"old", metadata={"n": "old"})
        turn = nth(k)
        answer: StoreUnavailable | None = None
        with monkeypatch.context() as patch:
            for name in ("open", "write", "utime", "fsync", "rename"):
                patch.setattr(os, name, failing(getattr(os, name), code, turn))
            try:
                store.put("runs/a/baton.json", b"new", metadata={"n": "new"})
            except StoreUnavailable as error:
                answer = error
        data, info = store.get("runs/a/baton.json")
        assert dict(info.metadata) == {"n": data.decode()}
        assert os.listdir(Path(store.root, ".tmp")) == []
        if answer is None:
            break
        answers.append((type(answer), data))
        assert (info == old) == (data == b"old")
        assert "runs/a/baton.json" in str(answer)
    refused, unclear = ((StoreUnavailable if code == errno.EIO else StoreFull, b"old"), (StoreUnavailable, b"new"))
    assert answers == [refused] * (len(answers) - 2) + [unclear] * 2  # the folder's own open and fsync come last
    assert len(answers) > 12


def test_no_inode_is_left_for_a_folder(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", failing(os.mkdir, errno.ENOSPC))
        with pytest.raises(StoreFull):
            store.put("runs/b/checkpoints/1-a1/model.bin", b"new")
    assert keys(store) == os.listdir(Path(store.root, ".tmp")) == []
    assert store.put("runs/b/checkpoints/1-a1/model.bin", b"new").size == 3


def test_a_file_that_does_not_fit_is_not_left_in_part(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(store.root).with_name("model.bin")
    source.write_bytes(b"x" * 100_000)
    monkeypatch.setattr(os, "copy_file_range", failing(os.copy_file_range, errno.ENOSPC))
    with pytest.raises(StoreFull, match=r"model\.bin"):
        store.put_file("runs/a/model.bin", source)
    assert keys(store) == os.listdir(Path(store.root, ".tmp")) == []


@pytest.mark.parametrize("code", [errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM])
def test_a_file_is_copied_where_the_kernel_cannot(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    source = Path(store.root).with_name("model.bin")
    source.write_bytes(b"x" * 3_000_000)
    monkeypatch.setattr(os, "copy_file_range", failing(os.copy_file_range, code))
    info = store.put_file("runs/a/model.bin", source)
    assert store.get("runs/a/model.bin") == (source.read_bytes(), info)


@pytest.mark.parametrize("how", ["gone", "empty", "a file", "a file above it"])
def test_a_disk_that_is_away_is_not_an_empty_store(store: FolderStore, how: str) -> None:
    store.put("beats/a", b"")
    root = Path(store.root)
    root.rename(root.with_name("unmounted"))
    if how == "empty":
        root.mkdir()
    elif how == "a file":
        root.write_bytes(b"")
    elif how == "a file above it":
        store = FolderStore(root / "inner")
        root.write_bytes(b"")
    calls = [
        lambda: store.put("beats/a", b""),
        lambda: store.put_file("beats/a", __file__),
        lambda: store.get("beats/a"),
        lambda: list(store.read("beats/a")),
        lambda: store.stat("beats/a"),
        lambda: store.delete("beats/a"),
        lambda: keys(store, "beats/"),
        lambda: keys(store),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable):
            call()
    if how == "empty":
        assert os.listdir(root) == [], "nothing may be written below the mount point"


def test_a_disk_that_goes_away_in_mid_listing_ends_it(store: FolderStore) -> None:
    for n in range(6):
        store.put(f"runs/{n}/a", b"")
    pages = store.pages("runs/", 2)
    assert len(next(pages).objects) == 2
    os.rename(store.root, store.root + "-unmounted")
    with pytest.raises(StoreUnavailable, match="mounted"):
        list(pages)


def test_one_folder_that_cannot_be_read_makes_the_listing_worthless(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in "abc":
        store.put(f"runs/{run}/x", b"")
    scandir = os.scandir

    def denied(path: str) -> Any:
        if path.endswith("/runs/b"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(StoreUnavailable, match="Permission denied"):
        keys(store, "runs/", page_size=1)
    assert keys(store, "runs/c/") == ["runs/c/x"]


def test_a_name_hidden_from_one_scan_is_found_by_the_next(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(5):
        store.put(f"beats/{n}", b"")
    scandir = os.scandir
    scans = iter(range(10**6))

    class Hiding:
        """A scan that misses the name which was renamed to while it ran, another one each time."""

        def __init__(self, path: str) -> None:
            hidden = str(next(scans) % 5)
            with scandir(path) as entries:
                self.entries = [entry for entry in entries if entry.name != hidden]

        def __enter__(self) -> list[Any]:
            return self.entries

        def __exit__(self, *_: object) -> None:
            return None

    monkeypatch.setattr(os, "scandir", Hiding)
    for _ in range(5):
        assert len(keys(store, "beats/")) == 5
    monkeypatch.setattr(durable, "_SCANS", 1)
    assert len(keys(store, "beats/")) == 4, "the test hides nothing"


def test_a_writer_frozen_with_the_lock_stops_nobody_for_ever(store: FolderStore) -> None:
    old = store.put("runs/a/baton.json", b"old")
    store.lock_wait_s = 0.05
    locks = [open(path, "rb+") for path in Path(store.root, ".locks").iterdir()]  # noqa: SIM115 closed below
    try:
        for lock in locks:
            fcntl.flock(lock, fcntl.LOCK_EX)
        for call in (lambda: store.put("runs/a/baton.json", b"new"), lambda: store.delete("runs/a/baton.json")):
            with pytest.raises(StoreUnavailable, match="lock"):
                call()
        assert store.get("runs/a/baton.json") == (b"old", old)
    finally:
        for lock in locks:
            lock.close()
    assert store.put("runs/a/baton.json", b"new", old.generation).size == 3
    assert os.listdir(Path(store.root, ".tmp")) == []


def test_torn_metadata_is_said_not_guessed(store: FolderStore) -> None:
    info = store.put("beats/a", b"", metadata={"n": "1"})
    (sidecar,) = [path for path in Path(store.root, ".meta").rglob("*") if path.is_file()]
    sidecar.write_text(f'{info.generation} {{"n": ')
    for look in (lambda: store.get("beats/a"), lambda: store.stat("beats/a"), lambda: keys(store, "beats/")):
        with pytest.raises(StoreUnavailable, match="torn"):
            look()
    store.put("beats/a", b"", metadata={"n": "2"})
    assert dict(store.stat("beats/a").metadata) == {"n": "2"}


def test_an_object_under_a_file_is_not_reported_absent(store: FolderStore) -> None:
    store.put("runs/a", b"a file where a run's folder should be")
    for call in (
        lambda: store.get("runs/a/baton.json"),
        lambda: store.put("runs/a/baton.json", b""),
        lambda: store.delete("runs/a/baton.json"),
        lambda: keys(store, "runs/a/"),
    ):
        with pytest.raises(StoreUnavailable, match="has the name of a folder"):
            call()


def test_a_store_moved_away_in_the_middle_of_a_write_is_not_made_anew(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it could not come back: the name of its folder would be taken by an empty one."""
    rename = os.rename

    def away(source: str, target: str) -> None:
        monkeypatch.setattr(os, "rename", rename)
        rename(store.root, store.root + ".away")
        rename(source, target)

    monkeypatch.setattr(os, "rename", away)
    with pytest.raises(StoreUnavailable):
        store.put("runs/a/logs/1.log", b"new")
    assert not os.path.exists(store.root)
