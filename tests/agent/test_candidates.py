"""Which entries of a checkpoint folder are complete, with renames told by hand and by the kernel."""

import os
from pathlib import Path

import pytest

from supervisor.agent.checkpoints.folder import CheckpointFolder, Renames, is_checkpoint_name


class Desk:
    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.renamed: set[str] = set()
        self.entries = CheckpointFolder(str(folder), 10.0, self._poll)

    def _poll(self) -> set[str]:
        found, self.renamed = self.renamed, set()
        return found

    def write(self, name: str, text: str = "x", renamed: bool = False, mtime: float = 1.0) -> None:
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, (mtime, mtime))
        if renamed:
            self.renamed.add(Path(name).parts[0])

    def ready(self, now: float, last: bool = False) -> list[str]:
        return [c.name for c in self.entries.ready(now, last)]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_what_appeared_by_rename_is_complete_at_once(desk: Desk) -> None:
    desk.write("a-1", renamed=True)
    assert desk.ready(0.0) == ["a-1"]


def test_what_is_written_in_place_must_rest(desk: Desk) -> None:
    desk.write("last.pt", "1")
    assert desk.ready(0.0) == []
    assert desk.ready(9.0) == []
    desk.write("last.pt", "12", mtime=2.0)
    assert desk.ready(11.0) == []
    assert desk.ready(20.9) == []
    assert desk.ready(21.0) == ["last.pt"]


def test_when_nobody_is_left_who_writes_everything_is_at_rest(desk: Desk) -> None:
    desk.write("last.pt")
    assert desk.ready(0.0, last=True) == ["last.pt"]


def test_the_same_content_is_offered_once_and_another_one_again(desk: Desk) -> None:
    desk.write("last.pt", renamed=True)
    (found,) = desk.entries.ready(0.0)
    desk.entries.done(found)
    assert desk.ready(100.0) == []
    desk.write("last.pt", "new", renamed=True)
    assert desk.ready(101.0) == ["last.pt"]


def test_a_rename_does_not_vouch_for_what_is_written_into_the_file_later(desk: Desk) -> None:
    desk.write("last.pt", renamed=True)
    desk.ready(0.0)
    desk.write("last.pt", "more", mtime=3.0)
    assert desk.ready(1.0) == []


def test_a_rename_that_is_told_after_the_file_was_seen_counts(desk: Desk) -> None:
    desk.write("a-1")
    assert desk.ready(0.0) == []
    desk.renamed.add("a-1")
    assert desk.ready(0.1) == ["a-1"]


@pytest.mark.parametrize("name", [".hidden", "x.tmp", "x.part", ".incoming"])
def test_unfinished_names_never_count(desk: Desk, name: str) -> None:
    desk.write(name, renamed=True)
    assert desk.ready(0.0, last=True) == []
    assert not is_checkpoint_name(name)


def test_a_folder_is_one_entry_with_all_its_files(desk: Desk) -> None:
    desk.write("epoch-3/model.pt")
    desk.write("epoch-3/opt.pt", renamed=True)
    desk.write("epoch-3/scratch.tmp")
    (found,) = desk.entries.ready(0.0)
    assert found.files == ("epoch-3/model.pt", "epoch-3/opt.pt")


def test_a_folder_that_is_still_filled_is_not_complete(desk: Desk) -> None:
    desk.write("epoch-3/model.pt")
    desk.ready(0.0)
    desk.write("epoch-3/opt.pt")
    assert desk.ready(10.0) == []
    assert desk.ready(20.0) == ["epoch-3"]


def test_empty_folders_and_links_are_no_checkpoints(desk: Desk) -> None:
    (desk.path / "empty").mkdir()
    desk.write("a-1", renamed=True)
    (desk.path / "latest").symlink_to("a-1")
    (desk.path / "loop").symlink_to(".")
    assert desk.ready(0.0, last=True) == ["a-1"]


def test_a_folder_that_became_a_link_holds_no_checkpoints(desk: Desk, tmp_path: Path) -> None:
    elsewhere = tmp_path.with_name("etc")
    elsewhere.mkdir()
    (elsewhere / "step-5.pt").write_text("not the run's")
    desk.path.rmdir()
    desk.path.symlink_to(elsewhere)
    assert desk.ready(0.0, last=True) == []
    assert desk.entries.signature("step-5.pt") is None


def test_the_newest_comes_last(desk: Desk) -> None:
    desk.write("b", renamed=True, mtime=5.0)
    desk.write("a", renamed=True, mtime=9.0)
    assert desk.ready(0.0) == ["b", "a"]


def test_what_was_restored_is_no_news(desk: Desk) -> None:
    desk.write("a-1", renamed=True)
    desk.entries.ignore_present()
    assert desk.ready(100.0, last=True) == []


def test_what_is_gone_is_forgotten(desk: Desk) -> None:
    desk.write("a-1", renamed=True)
    desk.ready(0.0)
    (desk.path / "a-1").unlink()
    assert desk.ready(0.0, last=True) == []


@pytest.mark.parametrize("in_place", [False, True])
def test_a_folder_that_the_training_took_away_holds_no_checkpoints(desk: Desk, in_place: bool) -> None:
    desk.write("a-1", renamed=True)
    desk.ready(0.0)
    (desk.path / "a-1").unlink()
    desk.path.rmdir()
    if in_place:
        desk.path.write_text("no folder")
    assert desk.ready(1.0) == []
    assert desk.ready(2.0, last=True) == []
    if not in_place:
        desk.path.mkdir()
        desk.write("a-2")
        assert desk.ready(3.0, last=True) == ["a-2"]


def test_the_kernel_tells_of_renames_and_of_nothing_else(tmp_path: Path) -> None:
    renames = Renames(str(tmp_path))
    try:
        (tmp_path / "in-place").write_text("x")
        (tmp_path / "a.tmp").write_text("x")
        (tmp_path / "a.tmp").rename(tmp_path / "a")
        (tmp_path / "d.tmp").mkdir()
        (tmp_path / "d.tmp").rename(tmp_path / "d")
        (tmp_path / "ü").write_text("x")
        (tmp_path / "ü").rename(tmp_path / "ä")
        assert renames.poll() == ["a", "d", "ä"]
        assert renames.poll() == []
    finally:
        renames.close()


def test_a_folder_that_cannot_be_watched_means_that_everything_must_rest(tmp_path: Path) -> None:
    renames = Renames(str(tmp_path / "missing"))
    assert renames.poll() == []
    renames.close()
