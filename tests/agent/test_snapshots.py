"""The snapshot of the results: cut where the files ended then, copied completely or not at all, and never too large."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.checkpoints import snapshots
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
from tests.agent.bench import HOLDER, RUN, ManualClock, held, patient, store_in


class Folder(ResultsFolder):
    """`meanwhile` is called when a file is open, before it is copied."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.meanwhile: Any = lambda: None

    @contextmanager
    def opened(self, name: str) -> Iterator[tuple[str, Signature]]:
        with super().opened(name) as texts:
            self.meanwhile()
            yield texts


class Bench:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "results"
        self.path.mkdir()
        self.folder = Folder(str(self.path))
        self.taker = SnapshotTaker(self.folder, str(folder / "moments"), 100)

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def copies(moment: Snapshot) -> dict[str, str]:
    """Read the copies and drop the snapshot."""
    texts = {file.name: Path(file.copy).read_text() for file in moment.files}
    moment.drop()
    return texts


def test_rows_that_are_appended_during_the_copy_are_cut_off(bench: Bench) -> None:
    bench.write("metrics.csv", "1\n2\n")

    def appends() -> None:
        with (bench.path / "metrics.csv").open("a") as rows:
            rows.write("3\n")

    bench.folder.meanwhile = appends
    moment = bench.taker.take()
    assert Path(moment.staging).exists()
    assert copies(moment) == {"metrics.csv": "1\n2\n"}
    assert moment.files[0].signature is None, "the next look reads it again"
    assert not Path(moment.staging).exists()


def test_a_file_that_is_replaced_during_the_copy_is_whole(bench: Bench) -> None:
    bench.write("summary.json", "old")

    def replaces() -> None:
        bench.write(".new", "newer")
        (bench.path / ".new").rename(bench.path / "summary.json")
        bench.folder.meanwhile = lambda: None

    bench.folder.meanwhile = replaces
    assert copies(bench.taker.take()) == {"summary.json": "old"}


def test_a_file_that_never_comes_to_rest_is_left_out(bench: Bench) -> None:
    bench.write("model.bin", "a" * 50)
    moments = iter(range(1, 9))

    def rewrites() -> None:
        with (bench.path / "model.bin").open("r+") as target:
            target.write("b")
        os.utime(bench.path / "model.bin", (0, next(moments)))

    bench.folder.meanwhile = rewrites
    assert bench.taker.take().left_out == (LeftOut("model.bin", "it was being written"),)


def test_the_smallest_files_come_first_and_the_others_wait(bench: Bench) -> None:
    bench.write("big", "x" * 90)
    bench.write("small", "x" * 20)
    bench.write("huge", "x" * 200)
    moment = bench.taker.take()
    assert [file.name for file in moment.files] == ["small"]
    assert [left.name for left in moment.left_out] == ["big", "huge"]
    assert [file.name for file in bench.taker.without_copies().files] == ["small", "big", "huge"]


def test_a_folder_that_became_a_link_is_left_out(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("root")
    bench.write("inside", "x")
    (bench.path / "passwd").symlink_to(tmp_path / "etc" / "passwd")
    moment = bench.taker.take()
    assert [file.name for file in moment.files] == ["inside"]
    assert [left.name for left in moment.left_out] == ["passwd"]
    (bench.path / "inside").unlink()
    (bench.path / "passwd").unlink()
    bench.path.rmdir()
    bench.path.symlink_to(tmp_path / "etc")
    moment = bench.taker.take()
    assert (moment.files, [left.name for left in moment.left_out]) == ((), ["."])


def test_a_rename_takes_the_snapshot_and_later_rows_are_not_in_it(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    renames = Renames(str(tmp_path / "checkpoints"))
    moments = Snapshots(renames, bench.taker)
    bench.write("metrics.csv", "1\n")
    (tmp_path / "checkpoints" / ".half").write_text("x")
    (tmp_path / "checkpoints" / ".half").rename(tmp_path / "checkpoints" / "step-1")
    assert moments.step() == 0.0
    bench.write("metrics.csv", "1\n2\n")
    moments.at_rest("step-1")  # a rename has taken it
    assert moments.renamed() == {"step-1"}
    assert copies(moments.of("step-1")) == {"metrics.csv": "1\n"}
    assert copies(moments.of("step-1")) == {"metrics.csv": "1\n2\n"}, "no moment was told: as it is now"
    moments.at_rest("last.pt")
    bench.write("metrics.csv", "1\n2\n3\n")
    assert copies(moments.of("last.pt")) == {"metrics.csv": "1\n2\n"}
    moments.at_rest("last.pt")
    moments.clear()
    assert list((tmp_path / "moments").iterdir()) == [], "copies that nobody saved are gone"
    renames.close()


def test_a_file_that_is_closed_has_a_moment_and_one_that_changed_since_needs_another(
    bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "checkpoints").mkdir()
    renames = Renames(str(tmp_path / "checkpoints"))
    moments = Snapshots(renames, bench.taker)
    last = tmp_path / "checkpoints" / "last.pt"
    bench.write("metrics.csv", "1\n")
    last.write_text("step 1")
    assert moments.step() == 0.0
    bench.write("metrics.csv", "1\n2\n")
    moments.at_rest("last.pt", last.stat().st_mtime_ns)
    assert moments.renamed() == set(), "it is not complete for that"
    assert copies(moments.of("last.pt")) == {"metrics.csv": "1\n"}
    # Closed, then opened again and written to: it is still open when it comes to rest.
    last.write_text("step 2")
    moments.renamed()
    bench.write("metrics.csv", "1\n2\n3\n")
    moments.at_rest("last.pt", time.time_ns() + 1)
    assert copies(moments.of("last.pt")) == {"metrics.csv": "1\n2\n3\n"}
    renames.close()


def test_a_training_that_writes_in_place_all_the_time_costs_few_snapshots(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoints").mkdir()
    renames = Renames(str(tmp_path / "checkpoints"))
    moments = Snapshots(renames, bench.taker)
    taken = []
    take = bench.taker.take
    monkeypatch.setattr(bench.taker, "take", lambda: taken.append(1) or take())
    monkeypatch.setattr(snapshots, "IN_PLACE_SHARE", 1e9)
    for step in range(20):
        (tmp_path / "checkpoints" / "log.txt").write_text(str(step))
        moments.renamed()
    assert len(taken) == 1
    bench.write("metrics.csv", "2\n")
    moments.at_rest("log.txt")
    assert copies(moments.of("log.txt")) == {"metrics.csv": "2\n"}, "the first moment is not its last one"
    renames.close()


def test_a_checkpoint_without_a_snapshot_is_not_saved_with_later_results(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    renames = Renames(str(tmp_path / "checkpoints"))
    moments = Snapshots(renames, bench.taker)
    for step in range(1, PENDING + 2):
        (tmp_path / "checkpoints" / ".half").write_text("x")
        (tmp_path / "checkpoints" / ".half").rename(tmp_path / "checkpoints" / f"step-{step}")
        moments.renamed()
    moments.at_rest("step-1")
    with pytest.raises(ValueError, match="overtaken"):
        moments.of("step-1")
    moments.of("step-2").drop()
    renames.close()


def test_the_files_of_a_model_beside_it_do_not_overtake_a_checkpoint(bench: Bench, tmp_path: Path) -> None:
    """A script calls `trainer.save_model()` after the last checkpoint."""
    folder = tmp_path / "checkpoints"
    (folder / ".half").mkdir(parents=True)
    renames = Renames(str(folder))
    moments = Snapshots(renames, bench.taker)
    bench.write("metrics.csv", "1\n")
    (folder / ".half" / "trainer_state.json").write_text("{}")
    (folder / ".half").rename(folder / "checkpoint-90")
    moments.renamed()
    bench.write("metrics.csv", "1\n2\n")
    for number in range(PENDING + 1):
        (folder / f"model-{number}.safetensors").write_text("x")
        moments.renamed()
        (folder / ".file").write_text("x")
        (folder / ".file").rename(folder / f"tokenizer-{number}.json")
        moments.renamed()
    moments.at_rest("checkpoint-90")
    assert copies(moments.of("checkpoint-90")) == {"metrics.csv": "1\n"}
    renames.close()


class SavingDesk(Bench):
    """A saver of checkpoints and results whose time for results is over at `hurry_until`."""

    def __init__(self, folder: Path, hurry_until: float) -> None:
        super().__init__(folder)
        self.clock, self.store = ManualClock(), store_in(folder)
        self.keeper, self.notes = held(self.store), list[str]()
        (folder / "checkpoints").mkdir()
        self.checkpoints = folder / "checkpoints"
        self.moments = Snapshots(Renames(str(self.checkpoints)), self.taker)
        retrier = patient(self.clock)
        self.results = ResultsSaver(
            self.store,
            (RUN, HOLDER[0], str(folder / "incoming")),
            self.taker,
            retrier=retrier,
            hurry=patient(self.clock, hurry_until),
            note=self.notes.append,
        )
        self.saver = CheckpointSaver(
            Pruner(self.store, RUN, 1, KEEP, lambda pruned: None),
            self.keeper,
            place=(RUN, 1, str(folder / "staging")),
            retrier=retrier,
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
        return decode_saved(self.store.inner.get(pointer.results.name)[0])


def test_without_time_for_results_the_checkpoint_is_saved_with_older_ones_and_a_note(tmp_path: Path) -> None:
    bench = SavingDesk(tmp_path, hurry_until=1005.0)
    bench.write("metrics.csv", "1\n")
    bench.checkpoint(1)
    bench.write("metrics.csv", "1\n2\n")
    bench.clock.now = 1010.0
    bench.checkpoint(2)
    pointer = bench.keeper.read().checkpoint
    assert pointer is not None
    assert pointer.step == 2
    [file] = bench.saved().files
    assert bench.store.inner.get(file.key)[0] == b"1\n"
    assert bench.saved().left_out == (LeftOut("metrics.csv", NO_TIME),)
    assert bench.notes[-1] == f"1 file of results will be saved at the end only; metrics.csv: {NO_TIME}"


@pytest.mark.parametrize(("mode", "text", "lost"), [("a", "", True), ("a", "3\n", True), ("w", "3\n", False)])
def test_rows_that_an_older_content_lacks_are_lost_until_the_file_is_written_again(
    tmp_path: Path, mode: str, text: str, lost: bool
) -> None:
    bench = SavingDesk(tmp_path, hurry_until=1005.0)
    bench.write("metrics.csv", "1\n")
    bench.checkpoint(1)
    bench.write("metrics.csv", "1\n2\n")
    bench.clock.now = 1010.0
    bench.checkpoint(2)
    for step in (3, 4):  # two more machines
        bench.clock.now = 1000.0
        pointer = bench.keeper.read().checkpoint
        assert pointer is not None
        bench.results.restore(pointer.results)
        if step == 3:
            with (bench.path / "metrics.csv").open(mode) as target:
                target.write(text)
            bench.checkpoint(step)
    named = bench.results.lost_among((rules.FileEntry("metrics.csv", 1, ""),), {})
    assert named == ((f"results metrics.csv: lost with an earlier machine ({NO_TIME})",) if lost else ())


def test_many_losses_are_counted(tmp_path: Path) -> None:
    bench = SavingDesk(tmp_path, 1e9)
    bench.results.lost = {f"{number:03}.png": "too large" for number in range(100)}
    phrases = bench.results.lost_among((), {})
    assert phrases[0] == "results 000.png: lost with an earlier machine (too large)"
    assert (len(phrases), phrases[-1]) == (21, "80 more results are lost, too")


def test_a_full_store_delays_no_checkpoint(tmp_path: Path) -> None:
    bench = SavingDesk(tmp_path, 1e9)
    bench.write("metrics.csv", "1\n")
    plain = bench.store.put_file

    def full(key: str, *more: Any) -> Any:
        bench.store.full = "results/saved" in key
        try:
            return plain(key, *more)
        finally:
            bench.store.full = False

    bench.store.put_file = full  # type: ignore[method-assign]
    bench.checkpoint(1)
    assert [left.name for left in bench.saved().left_out] == ["metrics.csv"]


def test_unchanged_results_are_uploaded_once_and_no_results_cost_nothing(tmp_path: Path) -> None:
    bench = SavingDesk(tmp_path, 1e9)
    bench.checkpoint(1)
    assert bench.store.keys(runfiles.saved_results(RUN)) == []
    bench.write("a", "same")
    bench.checkpoint(2)
    first = bench.store.keys(runfiles.saved_results(RUN))
    bench.write("a", "same")  # written again, with the same content
    bench.checkpoint(3)
    assert bench.store.keys(runfiles.saved_results(RUN)) == first
    assert len(first) == 2
    (bench.path / "a").unlink()
    bench.checkpoint(4)
    for step in (5, 6):
        bench.checkpoint(step)
    assert bench.store.keys(runfiles.saved_results(RUN)) == [], "no checkpoint that is kept had it"


def test_a_restored_folder_has_true_names_empty_folders_and_nothing_else(tmp_path: Path) -> None:
    bench = SavingDesk(tmp_path, 1e9)
    name = os.fsdecode(b"a\xff\n.txt")
    bench.write(name, "x")
    (bench.path / "empty" / "inner").mkdir(parents=True)
    bench.checkpoint(1)
    pointer = bench.keeper.read().checkpoint
    assert pointer is not None
    bench.write("later", "x")
    bench.results.restore(pointer.results)
    assert sorted(os.listdir(bench.path)) == sorted([name, "empty"])
    assert (bench.path / "empty" / "inner").is_dir()
    calls = len(bench.store.calls)
    assert bench.results.save(bench.taker.take(), 2) == pointer.results
    assert len(bench.store.calls) == calls, "what was brought back is not uploaded again"


def test_a_result_that_does_not_verify_is_lost_by_name_and_the_checkpoint_counts(tmp_path: Path) -> None:
    bench = SavingDesk(tmp_path, 1e9)
    bench.write("a", "x")
    bench.write("b", "y")
    bench.checkpoint(1)
    spoiled = next(file for file in bench.saved().files if file.name == "a")
    bench.store.inner.put(spoiled.key, b"z")
    pointer = bench.keeper.read().checkpoint
    assert pointer is not None
    bench.results.restore(pointer.results)
    assert os.listdir(bench.path) == ["b"]
    [phrase] = bench.results.lost_among((), {})
    assert phrase.startswith("results a: lost with an earlier machine (")
    assert "differs from its checksum" in phrase
    assert bench.results.lost_among((rules.FileEntry("a", 1, ""),), {}) == ()
    bench.results.restore(rules.FileEntry("nowhere", 1, "00"))
    assert os.listdir(bench.path) == []
    [phrase] = bench.results.lost_among((), {})
    assert phrase.startswith("results: lost with an earlier machine (the list of what was saved cannot be read")
