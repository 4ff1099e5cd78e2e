"""Results: every file is uploaded and read back; a file that cannot be saved is reported, never left out."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.checkpoints.snapshots import ResultsFolder
from supervisor.agent.life.results import ResultsUploader, Unverified
from supervisor.agent.store.access import hash_file
from supervisor.contract.baton import BatonRefused, FileEntry
from tests.agent.bench import ManualClock, patient, store_in

PREFIX = "runs/digits-7/results/g1/"


class Bench:
    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.store = store_in(folder)
        self.path = folder / "results"
        self.path.mkdir()
        self.folder = ResultsFolder(str(self.path))
        self.uploader = ResultsUploader(self.store, self.folder, PREFIX, retrier=patient(self.clock))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_everything_is_uploaded_and_listed(bench: Bench) -> None:
    (bench.path / "a.txt").write_text("a")
    (bench.path / "deep" / "er").mkdir(parents=True)
    (bench.path / "deep" / "er" / "b.txt").write_text("bb")
    (bench.path / "empty").mkdir()
    (bench.path / "link").symlink_to(bench.path / "a.txt")
    (bench.path / "loop").symlink_to(bench.path)
    os.mkfifo(bench.path / "pipe")
    files = bench.uploader.upload()
    assert [(f.name, f.size) for f in files] == [("a.txt", 1), ("deep/er/b.txt", 2), ("link", 1)]
    assert bench.store.keys(PREFIX) == [PREFIX + f.name for f in files]


def test_wrong_content_is_not_verified(bench: Bench) -> None:
    (bench.path / "a.txt").write_text("a")
    (bench.path / "b.txt").write_text("b")
    bench.store.corrupt_uploads = 1
    with pytest.raises(Unverified, match=r"1 of 2 files could not be saved; a\.txt: .*differs"):
        bench.uploader.upload()
    assert [f.name for f in bench.uploader.upload()] == ["a.txt", "b.txt"]


def test_an_upload_that_is_not_read_back_would_be_seen(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: the upload is trusted."""

    def trusting(prefix: str, path: str, name: str, if_generation: str) -> tuple[FileEntry, str]:
        return hash_file(path, name), bench.store.put_file(prefix + name, path).generation

    monkeypatch.setattr(bench.uploader._transfer, "upload_unhashed", trusting)
    (bench.path / "a.txt").write_text("a")
    bench.store.corrupt_uploads = 1
    [entry] = bench.uploader.upload()
    assert hashlib.sha256(bench.store.inner.get(PREFIX + "a.txt")[0]).hexdigest() != entry.sha256


@pytest.mark.parametrize("grown", [b"", b"aa", b"b"])
def test_a_file_that_is_written_to_meanwhile_is_not_verified(bench: Bench, grown: bytes) -> None:
    path, plain = bench.path / "a.txt", bench.store.put_file
    path.write_text("a")

    def written_to(key: str, *more: Any) -> Any:
        info = plain(key, *more)
        path.write_bytes(grown)
        return info

    bench.store.put_file = written_to  # type: ignore[method-assign]
    with pytest.raises(Unverified, match=r"a\.txt (differs|is cut off) after its upload"):
        bench.uploader.upload()


def test_a_verified_file_is_not_uploaded_again(bench: Bench) -> None:
    (bench.path / "a.txt").write_text("a")
    bench.uploader.upload()
    calls = len(bench.store.calls)
    bench.uploader.upload()
    assert len(bench.store.calls) == calls


def test_an_outage_delays_the_upload_and_a_full_store_is_reported(bench: Bench) -> None:
    (bench.path / "a.txt").write_text("a")
    bench.store.away = True

    def back() -> None:
        bench.store.away = bench.clock.now < 4600.0

    bench.clock.on_sleep = back
    assert len(bench.uploader.upload()) == 1
    (bench.path / "b.txt").write_text("b")
    bench.store.full = True
    with pytest.raises(Unverified, match="no space left"):
        bench.uploader.upload()


def test_a_name_that_no_object_can_have_is_stored_escaped(bench: Bench) -> None:
    names = [b"100%.txt", b"a%\xff.txt", b"two\nlines", b"two%0Alines", b"\xe2\x80\xaegpj.exe"]
    for name in names:
        (bench.path / os.fsdecode(name)).write_bytes(name)
    files = {entry.name: bench.store.inner.get(PREFIX + entry.name)[0] for entry in bench.uploader.upload()}
    assert files == {
        "100%.txt": names[0],
        "a%25%FF.txt": names[1],
        "two%0Alines~2": names[2],  # another file has its first choice
        "two%0Alines": names[3],
        "%E2%80%AEgpj.exe": names[4],
    }
    assert len(bench.uploader.renamed) == 3


def test_a_folder_that_the_training_removed_holds_no_results(bench: Bench) -> None:
    bench.path.rmdir()
    assert bench.uploader.upload() == ()


def test_a_file_instead_of_the_folder_needs_a_person_and_names_the_folder(bench: Bench) -> None:
    bench.path.rmdir()
    bench.path.write_text("no folder")
    with pytest.raises(Unverified, match=f"the results folder {bench.path} is not a folder any more"):
        bench.uploader.upload()


def test_a_dangling_link_does_not_mean_no_results(bench: Bench) -> None:
    bench.path.rmdir()
    bench.path.symlink_to(bench.path.parent / "nowhere")
    with pytest.raises(Unverified, match=f"the results folder {bench.path} is .* a link, which is not followed"):
        bench.uploader.upload()


def test_a_results_folder_that_became_a_link_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("root")
    bench.path.rmdir()
    bench.path.symlink_to(tmp_path / "etc")
    with pytest.raises(Unverified, match="a link, which is not followed"):
        bench.uploader.upload()
    assert bench.store.keys("") == []


def test_links_stay_inside(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("root")
    (bench.path / "plots").mkdir()
    (bench.path / "plots" / "a.png").write_text("a")
    (bench.path / "newest.png").symlink_to("plots/a.png")
    (bench.path / "passwd").symlink_to(tmp_path / "etc" / "passwd")
    (bench.path / "etc").symlink_to(tmp_path / "etc")
    assert [entry.name for entry in bench.uploader.upload()] == ["newest.png", "plots/a.png"]
    assert bench.uploader.refused == {"passwd": "a link that leads out of the results folder is not followed"}


def test_a_folder_that_becomes_a_link_between_two_calls_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("root")
    (bench.path / "plots").mkdir()
    (bench.path / "plots" / "passwd").write_text("mine")
    whole = bench.folder.listing

    def listing() -> Any:
        listing = whole()
        (bench.path / "plots").rename(tmp_path / "away")
        (bench.path / "plots").symlink_to(tmp_path / "etc")
        return listing

    bench.folder.listing = listing  # type: ignore[method-assign]
    assert bench.uploader.upload() == ()
    assert bench.store.keys("") == []


def test_an_agent_that_was_frozen_overwrites_nothing_of_a_later_one(bench: Bench) -> None:
    """It continues between reading the baton and its write: the later attempt has written meanwhile."""
    turns = ["mine", "theirs"]

    def fence() -> None:
        if turns.pop(0) == "theirs":
            raise BatonRefused("not the holder")

    bench.uploader = ResultsUploader(bench.store, bench.folder, PREFIX, retrier=patient(bench.clock), fence=fence)
    (bench.path / "a.txt").write_text("old")
    plain = bench.store.put_file

    def late(key: str, *more: Any) -> Any:
        bench.store.inner.put(key, b"new")
        return plain(key, *more)

    bench.store.put_file = late  # type: ignore[method-assign]
    with pytest.raises(BatonRefused):
        bench.uploader.upload()
    assert bench.store.inner.get(PREFIX + "a.txt")[0] == b"new"
