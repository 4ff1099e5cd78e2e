"""Which entries of a checkpoint folder are complete, with renames from the test and from the kernel."""

import os
from pathlib import Path

import pytest

from supervisor.agent.checkpoints.folder import CheckpointFolder, Renames, is_checkpoint_name


class Bench:
    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.renamed: set[str] = set()
        self.entries = CheckpointFolder(str(folder), 10.0, self._poll)

    def _poll(self) -> set[str]:
        candidate, self.renamed = self.renamed, set()
        return candidate

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
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_an_entry_that_appeared_by_rename_is_complete_at_once(bench: Bench) -> None:
    bench.write("a-1", renamed=True)
    assert bench.ready(0.0) == ["a-1"]


def test_an_entry_that_is_written_in_place_must_rest(bench: Bench) -> None:
    bench.write("last.pt", "1")
    assert bench.ready(0.0) == []
    assert bench.ready(9.0) == []
    bench.write("last.pt", "12", mtime=2.0)
    assert bench.ready(11.0) == []
    assert bench.ready(20.9) == []
    assert bench.ready(21.0) == ["last.pt"]


def test_without_a_writer_everything_is_at_rest(bench: Bench) -> None:
    bench.write("last.pt")
    assert bench.ready(0.0, last=True) == ["last.pt"]


def test_a_content_is_offered_once_and_new_content_again(bench: Bench) -> None:
    bench.write("last.pt", renamed=True)
    (candidate,) = bench.entries.ready(0.0)
    bench.entries.done(candidate)
    assert bench.ready(100.0) == []
    bench.write("last.pt", "new", renamed=True)
    assert bench.ready(101.0) == ["last.pt"]


def test_a_rename_does_not_cover_later_writes_to_the_file(bench: Bench) -> None:
    bench.write("last.pt", renamed=True)
    bench.ready(0.0)
    bench.write("last.pt", "more", mtime=3.0)
    assert bench.ready(1.0) == []


def test_a_rename_that_is_reported_after_the_scan_counts(bench: Bench) -> None:
    bench.write("a-1")
    assert bench.ready(0.0) == []
    bench.renamed.add("a-1")
    assert bench.ready(0.1) == ["a-1"]


@pytest.mark.parametrize("name", [".hidden", "x.tmp", "x.part", ".incoming"])
def test_unfinished_names_never_count(bench: Bench, name: str) -> None:
    bench.write(name, renamed=True)
    assert bench.ready(0.0, last=True) == []
    assert not is_checkpoint_name(name)


def test_a_folder_is_one_entry_with_all_its_files(bench: Bench) -> None:
    bench.write("epoch-3/model.pt")
    bench.write("epoch-3/opt.pt", renamed=True)
    bench.write("epoch-3/scratch.tmp")
    (candidate,) = bench.entries.ready(0.0)
    assert candidate.files == ("epoch-3/model.pt", "epoch-3/opt.pt")


def test_a_folder_that_is_still_filled_is_not_complete(bench: Bench) -> None:
    bench.write("epoch-3/model.pt")
    bench.ready(0.0)
    bench.write("epoch-3/opt.pt")
    assert bench.ready(10.0) == []
    assert bench.ready(20.0) == ["epoch-3"]


def test_empty_folders_and_links_are_no_checkpoints(bench: Bench) -> None:
    (bench.path / "empty").mkdir()
    bench.write("a-1", renamed=True)
    (bench.path / "latest").symlink_to("a-1")
    (bench.path / "loop").symlink_to(".")
    assert bench.ready(0.0, last=True) == ["a-1"]


def test_a_folder_that_became_a_link_holds_no_checkpoints(bench: Bench, tmp_path: Path) -> None:
    elsewhere = tmp_path.with_name("etc")
    elsewhere.mkdir()
    (elsewhere / "step-5.pt").write_text("not the run's")
    bench.path.rmdir()
    bench.path.symlink_to(elsewhere)
    assert bench.ready(0.0, last=True) == []
    assert bench.entries.signature("step-5.pt") is None


def test_the_newest_comes_last(bench: Bench) -> None:
    bench.write("b", renamed=True, mtime=5.0)
    bench.write("a", renamed=True, mtime=9.0)
    assert bench.ready(0.0) == ["b", "a"]


def test_a_restored_entry_is_not_new(bench: Bench) -> None:
    bench.write("a-1", renamed=True)
    bench.entries.ignore_present()
    assert bench.ready(100.0, last=True) == []


def test_a_removed_entry_is_forgotten(bench: Bench) -> None:
    bench.write("a-1", renamed=True)
    bench.ready(0.0)
    (bench.path / "a-1").unlink()
    assert bench.ready(0.0, last=True) == []


@pytest.mark.parametrize("in_place", [False, True])
def test_a_folder_that_the_training_removed_holds_no_checkpoints(bench: Bench, in_place: bool) -> None:
    bench.write("a-1", renamed=True)
    bench.ready(0.0)
    (bench.path / "a-1").unlink()
    bench.path.rmdir()
    if in_place:
        bench.path.write_text("no folder")
    assert bench.ready(1.0) == []
    assert bench.ready(2.0, last=True) == []
    if not in_place:
        bench.path.mkdir()
        bench.write("a-2")
        assert bench.ready(3.0, last=True) == ["a-2"]


def test_the_kernel_reports_renames_and_closed_files(tmp_path: Path) -> None:
    renames = Renames(str(tmp_path))
    try:
        (tmp_path / "in-place").write_text("x")
        (tmp_path / "a.tmp").write_text("x")
        (tmp_path / "a.tmp").rename(tmp_path / "a")
        (tmp_path / "d.tmp").mkdir()
        (tmp_path / "d.tmp").rename(tmp_path / "d")
        (tmp_path / "ü").write_text("x")
        (tmp_path / "ü").rename(tmp_path / "ä")
        names = renames.poll()
        assert [name for name in names if not name.endswith("/")] == ["a", "d", "ä"]
        assert [name for name in names if name.endswith("/")] == ["in-place/", "a.tmp/", "ü/"]
        assert renames.poll() == []
    finally:
        renames.close()


def test_a_folder_that_cannot_be_watched_means_that_everything_must_rest(tmp_path: Path) -> None:
    renames = Renames(str(tmp_path / "missing"))
    assert renames.poll() == []
    renames.close()
