"""The bundle on its machine: exactly what its name says, in a fresh folder, or nothing is started."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.machine.command import Unfit, fetch_code
from supervisor.agent.store.access import TRIES, GaveUp
from supervisor.contract import heartbeat, runfiles
from tests.agent.desk import HandClock, patient, store_in
from tests.agent.machine_rig import Rig
from tests.agent.stormy_store import StormyStore
from tests.bundles import CODE, bundle_of


class Weather:
    """The folder store, whose reads can be told to go wrong: `spoil` makes the next ones differ."""

    def __init__(self, folder: Path) -> None:
        self.stormy: StormyStore = store_in(folder)
        self.spoil = 0
        self.reads = 0

    def read(self, key: str, offset: int = 0, length: "int | None" = None) -> Iterator[bytes]:
        self.reads += 1
        raw = b"".join(self.stormy.read(key, offset, length))
        if self.spoil:
            self.spoil -= 1
            raw = raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:]
        yield raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stormy, name)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def weather(tmp_path: Path) -> Weather:
    return Weather(tmp_path)


def stored(weather: Weather, files: "dict[str, bytes]" = CODE) -> str:
    name, raw = bundle_of(files)
    weather.stormy.calm.put(runfiles.code(name), raw)
    return name


def test_it_lies_there_as_it_was_packed(tmp_path: Path, weather: Weather, clock: HandClock) -> None:
    folder = tmp_path / "code"
    (folder / "lib").mkdir(parents=True)
    (folder / "old.py").write_text("of before")
    (folder / "lib" / "old").symlink_to("..")
    fetch_code(weather, stored(weather), str(folder), patient(clock))
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == CODE
    assert os.access(folder / "run.sh", os.X_OK)
    assert not (folder / "train.py").stat().st_mode & 0o111


def test_a_copy_that_differs_is_fetched_again(tmp_path: Path, weather: Weather, clock: HandClock) -> None:
    weather.spoil = TRIES - 1
    fetch_code(weather, stored(weather), str(tmp_path / "code"), patient(clock))
    assert weather.reads == TRIES
    assert (tmp_path / "code" / "train.py").read_bytes() == CODE["train.py"]


def test_after_three_of_them_nothing_is_started(tmp_path: Path, weather: Weather, clock: HandClock) -> None:
    weather.spoil = 99
    with pytest.raises(Unfit, match="is damaged") as told:
        fetch_code(weather, stored(weather), str(tmp_path / "code"), patient(clock))
    assert told.value.left == heartbeat.NO_CODE
    assert str(told.value).startswith(heartbeat.BAD_CODE)
    assert len(str(told.value)) < heartbeat.MAX_TEXT
    assert weather.reads == TRIES
    assert not (tmp_path / "code").exists()


def test_another_bundle_under_its_name_is_not_it(tmp_path: Path, weather: Weather, clock: HandClock) -> None:
    name, _ = bundle_of()
    weather.stormy.calm.put(runfiles.code(name), bundle_of({"train.py": b"other"})[1])
    with pytest.raises(Unfit, match="differs from its checksum"):
        fetch_code(weather, name, str(tmp_path / "code"), patient(clock))


def test_without_the_hash_it_would_be_unpacked(
    tmp_path: Path, weather: Weather, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken on purpose: what the last test relies on."""
    name, _ = bundle_of()
    weather.stormy.calm.put(runfiles.code(name), bundle_of({"train.py": b"other"})[1])
    monkeypatch.setattr("supervisor.contract.bundle.Opened.sha256", name)
    fetch_code(weather, name, str(tmp_path / "code"), patient(clock))
    assert (tmp_path / "code" / "train.py").read_bytes() == b"other"


def test_one_that_is_missing(tmp_path: Path, weather: Weather, clock: HandClock) -> None:
    with pytest.raises(Unfit, match="is not in the object store"):
        fetch_code(weather, "0" * 64, str(tmp_path / "code"), patient(clock))


def test_names_that_lead_out_write_nothing_there(tmp_path: Path, weather: Weather, clock: HandClock) -> None:
    name = stored(weather, {"fine": b"1", "../out": b"2"})
    with pytest.raises(Unfit, match=r"\.\./out"):
        fetch_code(weather, name, str(tmp_path / "machine" / "code"), patient(clock))
    assert not (tmp_path / "machine" / "out").exists()


def test_a_store_that_is_away_is_waited_for(tmp_path: Path, weather: Weather, clock: HandClock) -> None:
    name = stored(weather)
    weather.stormy.away = True

    def back() -> None:
        if clock.now > 1100:
            weather.stormy.away = False

    clock.on_sleep = back
    fetch_code(weather, name, str(tmp_path / "code"), patient(clock))
    assert clock.now > 1100
    assert weather.reads > TRIES, "no try was spent on it"
    weather.stormy.away = True
    clock.on_sleep = lambda: None
    with pytest.raises(GaveUp):
        fetch_code(weather, name, str(tmp_path / "code"), patient(clock, until=clock.now + 60))


def test_a_full_disk_is_told_as_one(
    tmp_path: Path, weather: Weather, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("supervisor.agent.machine.command._write", full)
    with pytest.raises(OSError, match="No space left on device"):
        fetch_code(weather, stored(weather), str(tmp_path / "code"), patient(clock))


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


def test_a_bundle_that_is_not_there_ends_in_words(rig: Rig) -> None:
    rig.start("true", code="0" * 64)
    beat = rig.ended()
    assert (beat.left, beat.exit) == (heartbeat.NO_CODE, None)
    assert beat.message.startswith(heartbeat.BAD_CODE)
    assert "not in the object store" in beat.message
    assert "not in the object store" in (rig.machine / "work" / "output.log").read_text()
    assert rig.baton.done is None
