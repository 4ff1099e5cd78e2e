"""A store that is a folder: its visible files, its own files, and how little it reads."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from pathlib import Path

import pytest

from supervisor.contract.stores import durable
from supervisor.contract.stores.folder import FolderStore
from supervisor.contract.stores.promise import ABSENT, ObjectMissing, PreconditionFailed, StoreUnavailable


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore.create(tmp_path / "objects")


def keys(store: FolderStore, prefix: str = "") -> list[str]:
    return [info.key for page in store.pages(prefix) for info in page.objects]


def own_files(store: FolderStore, folder: str) -> list[Path]:
    return [path for path in Path(store.root, folder).rglob("*") if path.is_file()]


def test_an_object_is_a_plain_file(store: FolderStore) -> None:
    info = store.put("runs/a/results/g1/model.txt", b"weights", metadata={"k": "v"})
    file = Path(store.root, "runs/a/results/g1/model.txt")
    assert file.read_bytes() == b"weights"
    assert str(file.stat().st_mtime_ns) == info.generation
    umask = os.umask(0)
    os.umask(umask)
    assert file.stat().st_mode & 0o777 == 0o666 & ~umask


def test_an_object_changed_by_hand_is_a_new_generation(store: FolderStore) -> None:
    info = store.put("runs/a/note.txt", b"one", metadata={"k": "v"})
    Path(store.root, "runs/a/note.txt").write_bytes(b"by hand")
    data, found = store.get("runs/a/note.txt")
    assert data == b"by hand"
    assert found.generation != info.generation
    assert dict(found.metadata) == {}
    with pytest.raises(PreconditionFailed):
        store.put("runs/a/note.txt", b"two", info.generation)


def test_deleted_objects_leave_no_folders_and_rewritten_ones_no_files(store: FolderStore) -> None:
    for n in range(20):
        for key in ("runs/a/checkpoints/100-a1/model.bin", "beats/a"):
            store.put(key, b"%d" % n, metadata={"n": str(n)})
    assert len(own_files(store, ".meta")) == 2
    for key in keys(store):
        store.delete(key)
    assert own_files(store, ".meta") == own_files(store, ".tmp") == []
    assert sorted(os.listdir(store.root)) == [".locks", ".meta", ".spot-store", ".tmp"]


def test_the_constructor_touches_nothing_and_create_can_be_repeated(tmp_path: Path) -> None:
    FolderStore(tmp_path / "objects")
    assert os.listdir(tmp_path) == []
    store = FolderStore.create(tmp_path / "deep" / "objects")
    store.put("a", b"x")
    assert FolderStore.create(tmp_path / "deep" / "objects").get("a")[0] == b"x"


def test_a_folder_of_other_things_does_not_become_a_store(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(StoreUnavailable, match="neither empty nor an object store"):
        FolderStore.create(tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_half_made_store_is_made_whole(tmp_path: Path) -> None:
    (tmp_path / ".tmp").mkdir()
    assert FolderStore.create(tmp_path).put("a", b"x").size == 1


@pytest.mark.parametrize("name", ["plain", "with space", "50%25 ü #?"])
def test_the_url_names_the_folder(tmp_path: Path, name: str) -> None:
    store = FolderStore.create(tmp_path / name)
    store.put("a", b"x")
    assert store.url.startswith("file:///")
    assert FolderStore.at(store.url).get("a")[0] == b"x"


@pytest.mark.parametrize(
    "url", ["", "/srv/x", "gs://bucket", "file://host/x", "file:x", "memory://x", "file:///srv/run#1"]
)
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not the URL of a folder"):
        FolderStore.at(url)


@pytest.mark.parametrize("key", [".tmp", ".tmp/x", ".meta/00/x", ".locks/00", ".spot-store", ".spot-store/x"])
def test_the_stores_own_names_are_no_keys(store: FolderStore, key: str) -> None:
    calls = [lambda: store.put(key, b""), lambda: store.get(key), lambda: store.delete(key), lambda: store.stat(key)]
    for call in calls:
        with pytest.raises(ValueError, match="reserved"):
            call()
    store.put("runs" + "/" + key, b"free below the root")
    assert keys(store) == ["runs/" + key]
    assert keys(store, ".") == []
    with pytest.raises(ValueError, match="reserved"):
        keys(store, ".meta/")


def test_what_is_no_object_is_not_listed(store: FolderStore) -> None:
    store.put("beats/a", b"")
    folder = os.fsencode(store.root) + b"/beats/"
    with open(folder + b"\xff\xfe", "wb"), socket.socket(socket.AF_UNIX) as endpoint:
        endpoint.bind(folder + b"socket")
    os.mkfifo(folder + b"pipe")
    os.symlink("nowhere", folder + b"dangling")
    assert keys(store, "beats/") == ["beats/a"]
    for key in ("beats/pipe", "beats/socket"):
        with pytest.raises((StoreUnavailable, ObjectMissing)):
            store.get(key)


def test_a_link_to_a_folder_is_not_followed_by_a_listing(store: FolderStore, tmp_path: Path) -> None:
    """A purge deletes what is listed: no files elsewhere."""
    foreign = tmp_path / "foreign" / "thesis"
    foreign.mkdir(parents=True)
    (foreign / "data.txt").write_text("years of work")
    store.put("runs/x/results/model.bin", b"")
    os.symlink(foreign.parent, os.path.join(store.root, "runs/x/results/elsewhere"))
    os.symlink("..", os.path.join(store.root, "runs/x/results/above"))
    for prefix in ("runs/x/", "runs/x/results/", "runs/x/results/e", ""):
        assert keys(store, prefix) == [key for key in ["runs/x/results/model.bin"] if key.startswith(prefix)]
    for key in keys(store, "runs/x/"):
        store.delete(key)
    assert (foreign / "data.txt").read_text() == "years of work"


def test_a_listing_looks_only_where_its_prefix_leads(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in ("x", "y"):
        for chunk in range(3):
            store.put(f"runs/{run}/logs/a1/{chunk:08d}.log", b"")
            store.put(f"runs/{run}/checkpoints/{chunk}-a1/model.bin", b"")
    scanned: set[str] = set()
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: scanned.add(os.path.relpath(path, store.root)) or scandir(path))
    assert len(keys(store, "runs/x/logs/a1/0000000")) == 3
    assert scanned == {"runs/x/logs/a1"}
    scanned.clear()
    assert len(keys(store, "runs/x/c")) == 3
    assert scanned == {"runs/x", "runs/x/checkpoints", *(f"runs/x/checkpoints/{n}-a1" for n in range(3))}


def reads_of_metadata(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the metadata of each key was read from its file, from now on."""
    reads: Counter[str] = Counter()
    line = store._sidecars._line
    monkeypatch.setattr(store._sidecars, "_line", lambda key, at: reads.update([key]) or line(key, at))
    return reads


def test_a_listing_in_which_nothing_moved_reads_no_metadata(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(50):
        store.put(f"beats/{n:02d}", b"", metadata={"n": str(n)})
    asked = reads_of_metadata(store, monkeypatch)
    first = list(store.pages("beats/"))
    assert sum(asked.values()) == 50
    asked.clear()
    assert [page.objects for page in store.pages("beats/")] == [page.objects for page in first]
    assert asked == {}
    store.put("beats/07", b"", metadata={"n": "new"})
    asked.clear()
    (page,) = store.pages("beats/")
    assert asked == {"beats/07": 1}
    assert page.objects[7].metadata["n"] == "new"


def test_what_is_remembered_is_bounded_by_what_is_listed(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store._sidecars._most = 10
    for n in range(30):
        store.put(f"beats/{n:02d}", b"", metadata={"n": str(n)})
    for expected in (10, 30):  # the first listing is the first to know how many there are
        assert [info.metadata["n"] for page in store.pages("beats/") for info in page.objects] == [
            str(n) for n in range(30)
        ]
        assert len(store._sidecars._remembered) == expected
    monkeypatch.setattr(store._sidecars, "_line", lambda key, generation: pytest.fail(f"{key} was read again"))
    assert sum(len(page.objects) for page in store.pages("beats/")) == 30
    assert sum(len(page.objects) for page in store.pages("canaries/")) == 0  # a short listing of another prefix
    store._sidecars._remember("others/x", 1, {})
    assert sum(len(page.objects) for page in store.pages("beats/")) == 30
    for n in range(100):
        store._sidecars._remember(f"others/{n}", 1, {})
    assert len(store._sidecars._remembered) == 60


def test_what_a_caller_keeps_is_neither_read_again_nor_kept_here(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(30):
        store.put(f"beats/{n:02d}", b"", metadata={"n": str(n)})
    asked = reads_of_metadata(store, monkeypatch)
    kept: dict[str, str] = {}

    def news(prefix: str) -> dict[str, str]:
        pages = store.pages(prefix, 7, lambda key, generation: kept.get(key) == generation)
        infos = [info for page in pages for info in page.objects if kept.get(info.key) != info.generation]
        kept.update((info.key, info.generation) for info in infos)
        return {info.key: info.metadata["n"] for info in infos}

    assert news("beats/") == {f"beats/{n:02d}": str(n) for n in range(30)}
    assert (sum(asked.values()), store._sidecars._remembered) == (30, {})
    asked.clear()
    assert news("canaries/") == news("beats/") == {}, "a short listing of another prefix changes nothing"
    store.put("beats/07", b"", metadata={"n": "new"})
    asked.clear()
    assert news("beats/") == {"beats/07": "new"}
    assert (asked, store._sidecars._remembered) == ({"beats/07": 1}, {})


def test_generations_rise_on_a_disk_with_coarse_times(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    coarse_ns = 2 * 10**9
    monkeypatch.setattr(
        durable,
        "_set_time",
        lambda descriptor, moment: os.utime(descriptor, ns=(moment, moment // coarse_ns * coarse_ns)),
    )
    generations = [int(store.put("beats/a", b"").generation) for _ in range(5)]
    assert generations == sorted(set(generations))
    assert all(generation % coarse_ns == 0 for generation in generations)
    assert store.delete("beats/a", str(generations[-1]))
    assert int(store.put("beats/a", b"", ABSENT).generation) > generations[-1]


def test_a_clock_that_was_set_back_moves_neither_generations_nor_ages(store: FolderStore) -> None:
    store.put("beats/a", b"")
    ahead_ns = time.time_ns() + 3600 * 10**9
    os.utime(os.path.join(store.root, "beats/a"), ns=(ahead_ns, ahead_ns))  # as if written before the step back
    info = store.put("beats/a", b"")
    assert int(info.generation) > ahead_ns
    (page,) = store.pages("beats/")
    assert -1 < page.server_time - page.objects[0].updated < 60


def test_what_killed_writers_left_is_swept_after_an_hour(store: FolderStore) -> None:
    old, young = Path(store.root, ".tmp", "old"), Path(store.root, ".tmp", "young")
    for path, age_s in ((old, 3700), (young, 3500)):
        path.write_bytes(b"half an upload")
        os.utime(path, (time.time() - age_s,) * 2)
    FolderStore(store.root).put("a", b"")
    assert own_files(store, ".tmp") == [young]
