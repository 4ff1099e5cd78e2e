"""Results: everything that is there, read back; what cannot be saved is said, never left out."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.checkpoints.snapshots import ResultsFolder
from supervisor.agent.life.results import ResultsUploader, Unverified
from supervisor.agent.store.access import hash_file
from supervisor.contract.baton import BatonRefused, FileEntry
from tests.agent.desk import HandClock, patient, store_in

PREFIX = "runs/digits-7/results/g1/"


class Desk:
    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.store = store_in(folder)
        self.path = folder / "results"
        self.path.mkdir()
        self.folder = ResultsFolder(str(self.path))
        self.uploader = ResultsUploader(self.store, self.folder, PREFIX, retrier=patient(self.clock))


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

    def trusting(prefix: str, path: str, name: str, if_generation: str) -> tuple[FileEntry, str]:
        return hash_file(path, name), desk.store.put_file(prefix + name, path).generation

    monkeypatch.setattr(desk.uploader._transfer, "upload_unhashed", trusting)
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


def test_a_name_that_no_object_can_have_is_stored_escaped(desk: Desk) -> None:
    names = [b"100%.txt", b"a%\xff.txt", b"two\nlines", b"two%0Alines", b"\xe2\x80\xaegpj.exe"]
    for name in names:
        (desk.path / os.fsdecode(name)).write_bytes(name)
    files = {entry.name: desk.store.calm.get(PREFIX + entry.name)[0] for entry in desk.uploader.upload()}
    assert files == {
        "100%.txt": names[0],
        "a%25%FF.txt": names[1],
        "two%0Alines~2": names[2],  # another file has its first choice
        "two%0Alines": names[3],
        "%E2%80%AEgpj.exe": names[4],
    }
    assert len(desk.uploader.renamed) == 3


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
    with pytest.raises(Unverified, match=f"the results folder {desk.path} is .* a link, which is not followed"):
        desk.uploader.upload()


def test_a_results_folder_that_became_a_link_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("root")
    desk.path.rmdir()
    desk.path.symlink_to(tmp_path / "etc")
    with pytest.raises(Unverified, match="a link, which is not followed"):
        desk.uploader.upload()
    assert desk.store.keys("") == []


def test_links_stay_inside(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("root")
    (desk.path / "plots").mkdir()
    (desk.path / "plots" / "a.png").write_text("a")
    (desk.path / "newest.png").symlink_to("plots/a.png")
    (desk.path / "passwd").symlink_to(tmp_path / "etc" / "passwd")
    (desk.path / "etc").symlink_to(tmp_path / "etc")
    assert [entry.name for entry in desk.uploader.upload()] == ["newest.png", "plots/a.png"]
    assert desk.uploader.refused == {"passwd": "a link that leads out of the results folder is not followed"}


def test_a_folder_that_becomes_a_link_between_two_looks_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("root")
    (desk.path / "plots").mkdir()
    (desk.path / "plots" / "passwd").write_text("mine")
    whole = desk.folder.listing

    def listing() -> Any:
        found = whole()
        (desk.path / "plots").rename(tmp_path / "away")
        (desk.path / "plots").symlink_to(tmp_path / "etc")
        return found

    desk.folder.listing = listing  # type: ignore[method-assign]
    assert desk.uploader.upload() == ()
    assert desk.store.keys("") == []


def test_an_agent_that_was_frozen_overwrites_nothing_of_a_later_one(desk: Desk) -> None:
    """It wakes between its look at the baton and its write: the later attempt has written meanwhile."""
    turns = ["mine", "theirs"]

    def fence() -> None:
        if turns.pop(0) == "theirs":
            raise BatonRefused("not the holder")

    desk.uploader = ResultsUploader(desk.store, desk.folder, PREFIX, retrier=patient(desk.clock), fence=fence)
    (desk.path / "a.txt").write_text("old")
    plain = desk.store.put_file

    def late(key: str, *more: Any) -> Any:
        desk.store.calm.put(key, b"new")
        return plain(key, *more)

    desk.store.put_file = late  # type: ignore[method-assign]
    with pytest.raises(BatonRefused):
        desk.uploader.upload()
    assert desk.store.calm.get(PREFIX + "a.txt")[0] == b"new"
