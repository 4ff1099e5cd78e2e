"""The results of one moment: cut where the files ended then, copied whole or not at all, and never more than fits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.checkpoints.checkpointsaver import CheckpointSaver, Hooks, Results
from supervisor.agent.checkpoints.folder import CheckpointFolder, Renames
from supervisor.agent.checkpoints.pruning import Pruner
from supervisor.agent.checkpoints.resultsaver import NO_TIME, ResultsSaver
from supervisor.agent.checkpoints.snapshots import PENDING, ResultsFolder, Signature, Snapshot, Snapshots, SnapshotTaker
from supervisor.agent.watch.output import step_in_name
from supervisor.contract import baton as rules
from supervisor.contract import runfiles
from supervisor.contract.baton import KEEP
from supervisor.contract.runfiles import LeftOut, SavedResults, decode_saved
from tests.agent.desk import HOLDER, RUN, HandClock, held, patient, store_in


class Folder(ResultsFolder):
    """`meanwhile` is called when a file has been opened, before it is copied."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.meanwhile: Any = lambda: None

    @contextmanager
    def opened(self, name: str) -> Iterator[tuple[str, Signature]]:
        with super().opened(name) as found:
            self.meanwhile()
            yield found


class Desk:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "results"
        self.path.mkdir()
        self.folder = Folder(str(self.path))
        self.taker = SnapshotTaker(self.folder, str(folder / "moments"), 100)

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def copies(moment: Snapshot) -> dict[str, str]:
    """Read, and dropped."""
    found = {taken.name: Path(taken.copy).read_text() for taken in moment.files}
    moment.drop()
    return found


def test_rows_that_are_appended_during_the_copy_are_cut_off(desk: Desk) -> None:
    desk.write("metrics.csv", "1\n2\n")

    def appends() -> None:
        with (desk.path / "metrics.csv").open("a") as rows:
            rows.write("3\n")

    desk.folder.meanwhile = appends
    moment = desk.taker.take()
    assert Path(moment.staging).exists()
    assert copies(moment) == {"metrics.csv": "1\n2\n"}
    assert moment.files[0].signature is None, "the next look reads it again"
    assert not Path(moment.staging).exists()


def test_a_file_that_is_replaced_during_the_copy_is_whole(desk: Desk) -> None:
    desk.write("summary.json", "old")

    def replaces() -> None:
        desk.write(".new", "newer")
        (desk.path / ".new").rename(desk.path / "summary.json")
        desk.folder.meanwhile = lambda: None

    desk.folder.meanwhile = replaces
    assert copies(desk.taker.take()) == {"summary.json": "old"}


def test_a_file_that_never_comes_to_rest_is_left_out(desk: Desk) -> None:
    desk.write("model.bin", "a" * 50)
    moments = iter(range(1, 9))

    def rewrites() -> None:
        with (desk.path / "model.bin").open("r+") as target:
            target.write("b")
        os.utime(desk.path / "model.bin", (0, next(moments)))

    desk.folder.meanwhile = rewrites
    assert desk.taker.take().left_out == (LeftOut("model.bin", "it was being written"),)


def test_the_smallest_files_come_first_and_the_rest_waits(desk: Desk) -> None:
    desk.write("big", "x" * 90)
    desk.write("small", "x" * 20)
    desk.write("huge", "x" * 200)
    moment = desk.taker.take()
    assert [taken.name for taken in moment.files] == ["small"]
    assert [left.name for left in moment.left_out] == ["big", "huge"]
    assert [taken.name for taken in desk.taker.without_copies().files] == ["small", "big", "huge"]


def test_a_folder_that_became_a_link_is_left_out(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("root")
    desk.write("inside", "x")
    (desk.path / "passwd").symlink_to(tmp_path / "etc" / "passwd")
    moment = desk.taker.take()
    assert [taken.name for taken in moment.files] == ["inside"]
    assert [left.name for left in moment.left_out] == ["passwd"]
    (desk.path / "inside").unlink()
    (desk.path / "passwd").unlink()
    desk.path.rmdir()
    desk.path.symlink_to(tmp_path / "etc")
    moment = desk.taker.take()
    assert (moment.files, [left.name for left in moment.left_out]) == ((), ["."])


def test_the_kernel_tells_the_moment_and_what_is_written_later_is_not_in_it(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    renames = Renames(str(tmp_path / "checkpoints"))
    moments = Snapshots(renames, desk.taker)
    desk.write("metrics.csv", "1\n")
    (tmp_path / "checkpoints" / ".half").write_text("x")
    (tmp_path / "checkpoints" / ".half").rename(tmp_path / "checkpoints" / "step-1")
    assert moments.step() == 0.0
    desk.write("metrics.csv", "1\n2\n")
    moments.at_rest("step-1")  # a rename has told it
    assert moments.renamed() == {"step-1"}
    assert copies(moments.of("step-1")) == {"metrics.csv": "1\n"}
    assert copies(moments.of("step-1")) == {"metrics.csv": "1\n2\n"}, "no moment was told: as it is now"
    moments.at_rest("last.pt")
    desk.write("metrics.csv", "1\n2\n3\n")
    assert copies(moments.of("last.pt")) == {"metrics.csv": "1\n2\n"}
    moments.at_rest("last.pt")
    moments.clear()
    assert list((tmp_path / "moments").iterdir()) == [], "copies that nobody saved are gone"
    renames.close()


def test_a_checkpoint_whose_moment_is_forgotten_is_not_saved_with_later_results(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    renames = Renames(str(tmp_path / "checkpoints"))
    moments = Snapshots(renames, desk.taker)
    for step in range(1, PENDING + 2):
        (tmp_path / "checkpoints" / ".half").write_text("x")
        (tmp_path / "checkpoints" / ".half").rename(tmp_path / "checkpoints" / f"step-{step}")
        moments.renamed()
    moments.at_rest("step-1")
    with pytest.raises(ValueError, match="overtaken"):
        moments.of("step-1")
    moments.of("step-2").drop()
    renames.close()


class SavingDesk(Desk):
    """A saver of checkpoints and results whose time for results is over at `hurry_until`."""

    def __init__(self, folder: Path, hurry_until: float) -> None:
        super().__init__(folder)
        self.clock, self.store = HandClock(), store_in(folder)
        self.keeper, self.notes = held(self.store), list[str]()
        (folder / "checkpoints").mkdir()
        self.checkpoints = folder / "checkpoints"
        self.moments = Snapshots(Renames(str(self.checkpoints)), self.taker)
        calm = patient(self.clock)
        self.results = ResultsSaver(
            self.store,
            (RUN, HOLDER[0], str(folder / "incoming")),
            self.taker,
            retrier=calm,
            hurry=patient(self.clock, hurry_until),
            note=self.notes.append,
        )
        self.saver = CheckpointSaver(
            Pruner(self.store, RUN, 1, KEEP, lambda told: None),
            self.keeper,
            place=(RUN, 1, str(folder / "staging")),
            retrier=calm,
            hooks=Hooks(lambda name: step_in_name(name) or 0, lambda text: None, lambda step: None),
            results=Results(self.moments, self.results),
        )
        self.entries = CheckpointFolder(str(self.checkpoints), 10.0, self.moments.renamed, self.moments.at_rest)

    def checkpoint(self, step: int) -> None:
        (self.checkpoints / ".half").write_text(str(step))
        (self.checkpoints / ".half").rename(self.checkpoints / f"step-{step}")
        self.saver.save_new(self.entries, self.clock.now)

    def saved(self) -> SavedResults:
        pointer = self.keeper.read().checkpoint
        assert pointer is not None
        assert pointer.results is not None
        return decode_saved(self.store.calm.get(pointer.results.name)[0])


def test_without_time_for_results_the_checkpoint_is_saved_with_the_older_ones_and_that_is_said(tmp_path: Path) -> None:
    desk = SavingDesk(tmp_path, hurry_until=1005.0)
    desk.write("metrics.csv", "1\n")
    desk.checkpoint(1)
    desk.write("metrics.csv", "1\n2\n")
    desk.clock.now = 1010.0
    desk.checkpoint(2)
    pointer = desk.keeper.read().checkpoint
    assert pointer is not None
    assert pointer.step == 2
    [file] = desk.saved().files
    assert desk.store.calm.get(file.key)[0] == b"1\n"
    assert desk.saved().left_out == (LeftOut("metrics.csv", NO_TIME),)
    assert desk.notes[-1] == f"1 file of results will be saved at the end only; metrics.csv: {NO_TIME}"


@pytest.mark.parametrize(("mode", "text", "lost"), [("a", "", True), ("a", "3\n", True), ("w", "3\n", False)])
def test_rows_that_an_older_content_lacks_are_lost_until_the_file_is_written_anew(
    tmp_path: Path, mode: str, text: str, lost: bool
) -> None:
    desk = SavingDesk(tmp_path, hurry_until=1005.0)
    desk.write("metrics.csv", "1\n")
    desk.checkpoint(1)
    desk.write("metrics.csv", "1\n2\n")
    desk.clock.now = 1010.0
    desk.checkpoint(2)
    for step in (3, 4):  # two more machines
        desk.clock.now = 1000.0
        pointer = desk.keeper.read().checkpoint
        assert pointer is not None
        desk.results.restore(pointer.results)
        if step == 3:
            with (desk.path / "metrics.csv").open(mode) as target:
                target.write(text)
            desk.checkpoint(step)
    named = desk.results.lost_among((rules.FileEntry("metrics.csv", 1, ""),), {})
    assert named == ((f"results metrics.csv: lost with an earlier machine ({NO_TIME})",) if lost else ())


def test_many_losses_are_counted(tmp_path: Path) -> None:
    desk = SavingDesk(tmp_path, 1e9)
    desk.results.lost = {f"{number:03}.png": "too large" for number in range(100)}
    phrases = desk.results.lost_among((), {})
    assert phrases[0] == "results 000.png: lost with an earlier machine (too large)"
    assert (len(phrases), phrases[-1]) == (21, "80 more results are lost, too")


def test_a_full_store_holds_up_no_checkpoint(tmp_path: Path) -> None:
    desk = SavingDesk(tmp_path, 1e9)
    desk.write("metrics.csv", "1\n")
    plain = desk.store.put_file

    def full(key: str, *more: Any) -> Any:
        desk.store.full = "results/saved" in key
        try:
            return plain(key, *more)
        finally:
            desk.store.full = False

    desk.store.put_file = full  # type: ignore[method-assign]
    desk.checkpoint(1)
    assert [left.name for left in desk.saved().left_out] == ["metrics.csv"]


def test_unchanged_results_are_uploaded_once_and_no_results_cost_nothing(tmp_path: Path) -> None:
    desk = SavingDesk(tmp_path, 1e9)
    desk.checkpoint(1)
    assert desk.store.keys(runfiles.saved_results(RUN)) == []
    desk.write("a", "same")
    desk.checkpoint(2)
    first = desk.store.keys(runfiles.saved_results(RUN))
    desk.write("a", "same")  # written again, with the same content
    desk.checkpoint(3)
    assert desk.store.keys(runfiles.saved_results(RUN)) == first
    assert len(first) == 2
    (desk.path / "a").unlink()
    desk.checkpoint(4)
    for step in (5, 6):
        desk.checkpoint(step)
    assert desk.store.keys(runfiles.saved_results(RUN)) == [], "no checkpoint that is kept had it"


def test_a_restored_folder_has_true_names_empty_folders_and_nothing_else(tmp_path: Path) -> None:
    desk = SavingDesk(tmp_path, 1e9)
    name = os.fsdecode(b"a\xff\n.txt")
    desk.write(name, "x")
    (desk.path / "empty" / "inner").mkdir(parents=True)
    desk.checkpoint(1)
    pointer = desk.keeper.read().checkpoint
    assert pointer is not None
    desk.write("later", "x")
    desk.results.restore(pointer.results)
    assert sorted(os.listdir(desk.path)) == sorted([name, "empty"])
    assert (desk.path / "empty" / "inner").is_dir()
    calls = len(desk.store.calls)
    assert desk.results.save(desk.taker.take(), 2) == pointer.results
    assert len(desk.store.calls) == calls, "what was brought back is not uploaded again"


def test_a_result_that_does_not_verify_is_lost_by_name_and_the_checkpoint_counts(tmp_path: Path) -> None:
    desk = SavingDesk(tmp_path, 1e9)
    desk.write("a", "x")
    desk.write("b", "y")
    desk.checkpoint(1)
    spoiled = next(file for file in desk.saved().files if file.name == "a")
    desk.store.calm.put(spoiled.key, b"z")
    pointer = desk.keeper.read().checkpoint
    assert pointer is not None
    desk.results.restore(pointer.results)
    assert os.listdir(desk.path) == ["b"]
    [phrase] = desk.results.lost_among((), {})
    assert phrase.startswith("results a: lost with an earlier machine (")
    assert "differs from its checksum" in phrase
    assert desk.results.lost_among((rules.FileEntry("a", 1, ""),), {}) == ()
    desk.results.restore(rules.FileEntry("nowhere", 1, "00"))
    assert os.listdir(desk.path) == []
    [phrase] = desk.results.lost_among((), {})
    assert phrase.startswith("results: lost with an earlier machine (the list of what was saved cannot be read")
