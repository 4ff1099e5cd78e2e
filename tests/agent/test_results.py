"""Results: everything that is there, read back; what cannot be saved is said, never left out."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent import results
from supervisor.agent.results import ResultsUploader, Unverified
from supervisor.agent.transfer import hash_file
from supervisor.domain.baton import FileEntry
from tests.agent.desk import HandClock, patient, store_in

PREFIX = "runs/digits-7/results/g1/"


class Desk:
    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.store = store_in(folder)
        self.path = folder / "results"
        self.path.mkdir()
        self.uploader = ResultsUploader(self.store, str(self.path), PREFIX, patient(self.clock))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_everything_is_uploaded_and_told(desk: Desk) -> None:
    (desk.path / "a.txt").write_text("a")
    (desk.path / "deep" / "er").mkdir(parents=True)
    (desk.path / "deep" / "er" / "b.txt").write_text("bb")
    (desk.path / "empty").mkdir()
    (desk.path / "link").symlink_to(desk.path / "a.txt")
    (desk.path / "loop").symlink_to(desk.path)
    os.mkfifo(desk.path / "pipe")
    files = desk.uploader.upload()
    assert [(f.name, f.size) for f in files] == [("a.txt", 1), ("deep/er/b.txt", 2), ("link", 1)]
    assert desk.store.keys(PREFIX) == [PREFIX + f.name for f in files]


def test_what_arrives_changed_is_not_verified(desk: Desk) -> None:
    (desk.path / "a.txt").write_text("a")
    (desk.path / "b.txt").write_text("b")
    desk.store.corrupt_uploads = 1
    with pytest.raises(Unverified, match=r"1 of 2 files could not be saved; a\.txt: .*differs"):
        desk.uploader.upload()
    assert [f.name for f in desk.uploader.upload()] == ["a.txt", "b.txt"]


def test_an_upload_that_is_not_read_back_would_be_seen(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: what was written is believed."""

    def trusting(store: Any, prefix: str, path: str, name: str, between: Any) -> FileEntry:
        store.put_file(prefix + name, path)
        return hash_file(path, name)

    monkeypatch.setattr(results, "upload_file", trusting)
    (desk.path / "a.txt").write_text("a")
    desk.store.corrupt_uploads = 1
    [entry] = desk.uploader.upload()
    assert hashlib.sha256(desk.store.calm.get(PREFIX + "a.txt")[0]).hexdigest() != entry.sha256


@pytest.mark.parametrize("grown", [b"", b"aa", b"b"])
def test_a_file_that_is_written_to_meanwhile_is_not_verified(desk: Desk, grown: bytes) -> None:
    path, plain = desk.path / "a.txt", desk.store.put_file
    path.write_text("a")

    def written_to(key: str, *more: Any) -> Any:
        info = plain(key, *more)
        path.write_bytes(grown)
        return info

    desk.store.put_file = written_to  # type: ignore[method-assign]
    with pytest.raises(Unverified, match=r"a\.txt (differs|is cut off) after its upload"):
        desk.uploader.upload()


def test_what_is_verified_is_not_uploaded_again(desk: Desk) -> None:
    (desk.path / "a.txt").write_text("a")
    desk.uploader.upload()
    calls = len(desk.store.calls)
    desk.uploader.upload()
    assert len(desk.store.calls) == calls


def test_an_outage_is_waited_for_and_a_full_store_is_said(desk: Desk) -> None:
    (desk.path / "a.txt").write_text("a")
    desk.store.away = True

    def back() -> None:
        desk.store.away = desk.clock.now < 4600.0

    desk.clock.on_sleep = back
    assert len(desk.uploader.upload()) == 1
    (desk.path / "b.txt").write_text("b")
    desk.store.full = True
    with pytest.raises(Unverified, match="no space left"):
        desk.uploader.upload()


def test_a_name_that_is_not_utf_8_is_said(desk: Desk) -> None:
    (desk.path / os.fsdecode(b"\xff.txt")).write_text("x")
    with pytest.raises(Unverified, match="not UTF-8"):
        desk.uploader.upload()


def test_a_folder_that_the_training_took_away_holds_no_results(desk: Desk) -> None:
    desk.path.rmdir()
    assert desk.uploader.upload() == ()


def test_a_file_in_the_folders_place_is_for_a_person_and_names_the_folder(desk: Desk) -> None:
    desk.path.rmdir()
    desk.path.write_text("no folder")
    with pytest.raises(Unverified, match=f"the results folder {desk.path} is not a folder any more"):
        desk.uploader.upload()


def test_a_link_that_leads_nowhere_is_not_taken_for_no_results(desk: Desk) -> None:
    desk.path.rmdir()
    desk.path.symlink_to(desk.path.parent / "nowhere")
    with pytest.raises(Unverified, match=f"the results folder {desk.path} cannot be read"):
        desk.uploader.upload()
