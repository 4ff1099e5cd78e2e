"""The bundle on its machine: exactly the named content, in a new folder, or nothing is started."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.machine.command import Unfit, fetch_code
from supervisor.agent.store.access import TRIES, GaveUp
from supervisor.contract import heartbeat, runfiles
from tests.agent.bench import ManualClock, patient, store_in
from tests.agent.failing_store import FailingStore
from tests.agent.machine_rig import Rig
from tests.bundles import CODE, bundle_of


class CorruptingStore:
    """The folder store with corrupt reads: `spoil` corrupts the next ones."""

    def __init__(self, folder: Path) -> None:
        self.failing: FailingStore = store_in(folder)
        self.spoil = 0
        self.reads = 0

    def read(self, key: str, offset: int = 0, length: "int | None" = None) -> Iterator[bytes]:
        self.reads += 1
        raw = b"".join(self.failing.read(key, offset, length))
        if self.spoil:
            self.spoil -= 1
            raw = raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:]
        yield raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self.failing, name)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path) -> CorruptingStore:
    return CorruptingStore(tmp_path)


def bundle_in(store: CorruptingStore, files: "dict[str, bytes]" = CODE) -> str:
    name, raw = bundle_of(files)
    store.failing.inner.put(runfiles.code(name), raw)
    return name


def test_it_is_unpacked_as_it_was_packed(tmp_path: Path, store: CorruptingStore, clock: ManualClock) -> None:
    folder = tmp_path / "code"
    (folder / "lib").mkdir(parents=True)
    (folder / "old.py").write_text("of before")
    (folder / "lib" / "old").symlink_to("..")
    fetch_code(store, bundle_in(store), str(folder), patient(clock))
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert files == CODE
    assert os.access(folder / "run.sh", os.X_OK)
    assert not (folder / "train.py").stat().st_mode & 0o111


def test_a_copy_that_differs_is_downloaded_again(tmp_path: Path, store: CorruptingStore, clock: ManualClock) -> None:
    store.spoil = TRIES - 1
    fetch_code(store, bundle_in(store), str(tmp_path / "code"), patient(clock))
    assert store.reads == TRIES
    assert (tmp_path / "code" / "train.py").read_bytes() == CODE["train.py"]


def test_after_three_damaged_copies_nothing_is_started(
    tmp_path: Path, store: CorruptingStore, clock: ManualClock
) -> None:
    store.spoil = 99
    with pytest.raises(Unfit, match="is damaged") as refusal:
        fetch_code(store, bundle_in(store), str(tmp_path / "code"), patient(clock))
    assert refusal.value.left == heartbeat.NO_CODE
    assert str(refusal.value).startswith(heartbeat.BAD_CODE)
    assert len(str(refusal.value)) < heartbeat.MAX_TEXT
    assert store.reads == TRIES
    assert not (tmp_path / "code").exists()


def test_another_bundle_under_its_name_is_refused(tmp_path: Path, store: CorruptingStore, clock: ManualClock) -> None:
    name, _ = bundle_of()
    store.failing.inner.put(runfiles.code(name), bundle_of({"train.py": b"other"})[1])
    with pytest.raises(Unfit, match="differs from its checksum"):
        fetch_code(store, name, str(tmp_path / "code"), patient(clock))


def test_without_the_hash_it_would_be_unpacked(
    tmp_path: Path, store: CorruptingStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken on purpose: the previous test relies on the hash."""
    name, _ = bundle_of()
    store.failing.inner.put(runfiles.code(name), bundle_of({"train.py": b"other"})[1])
    monkeypatch.setattr("supervisor.contract.bundle.Opened.sha256", name)
    fetch_code(store, name, str(tmp_path / "code"), patient(clock))
    assert (tmp_path / "code" / "train.py").read_bytes() == b"other"


def test_a_missing_bundle_is_refused(tmp_path: Path, store: CorruptingStore, clock: ManualClock) -> None:
    with pytest.raises(Unfit, match="is not in the object store"):
        fetch_code(store, "0" * 64, str(tmp_path / "code"), patient(clock))


def test_names_that_lead_out_write_nothing_there(tmp_path: Path, store: CorruptingStore, clock: ManualClock) -> None:
    name = bundle_in(store, {"fine": b"1", "../out": b"2"})
    with pytest.raises(Unfit, match=r"\.\./out"):
        fetch_code(store, name, str(tmp_path / "machine" / "code"), patient(clock))
    assert not (tmp_path / "machine" / "out").exists()


def test_an_unavailable_store_delays_the_download(tmp_path: Path, store: CorruptingStore, clock: ManualClock) -> None:
    name = bundle_in(store)
    store.failing.away = True

    def back() -> None:
        if clock.now > 1100:
            store.failing.away = False

    clock.on_sleep = back
    fetch_code(store, name, str(tmp_path / "code"), patient(clock))
    assert clock.now > 1100
    assert store.reads > TRIES, "no try was spent on it"
    store.failing.away = True
    clock.on_sleep = lambda: None
    with pytest.raises(GaveUp):
        fetch_code(store, name, str(tmp_path / "code"), patient(clock, until=clock.now + 60))


def test_a_full_disk_is_reported_as_one(
    tmp_path: Path, store: CorruptingStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("supervisor.agent.machine.command._write", full)
    with pytest.raises(OSError, match="No space left on device"):
        fetch_code(store, bundle_in(store), str(tmp_path / "code"), patient(clock))


def test_a_command_in_its_bundle(rig: Rig) -> None:
    """The agent as a process: relative names, the working directory, an executable."""
    script = b'#!/bin/sh\npwd > "$SPOT_RESULTS_DIR/where"\ncat ../word > "$SPOT_RESULTS_DIR/word"\n'
    name, raw = bundle_of({"sub/go.sh": script, "word": b"hello"})
    rig.store.put(runfiles.code(name), raw)
    rig.start("./go.sh", code=name, workdir="sub")
    beat = rig.ended()
    assert beat.exit is not None
    assert beat.exit.code == 0, rig.console
    results = runfiles.results("digits-7", 1)
    assert rig.store.get(results + "word")[0] == b"hello"
    where = rig.store.get(results + "where")[0].decode().strip()
    assert where == str(rig.machine / "work" / "code" / "sub")


def test_a_missing_bundle_ends_with_a_message(rig: Rig) -> None:
    rig.start("true", code="0" * 64)
    beat = rig.ended()
    assert (beat.left, beat.exit) == (heartbeat.NO_CODE, None)
    assert beat.message.startswith(heartbeat.BAD_CODE)
    assert "not in the object store" in beat.message
    assert "not in the object store" in (rig.machine / "work" / "output.log").read_text()
    assert rig.baton.done is None
