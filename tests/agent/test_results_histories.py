"""Results exactly once: in every story of preemption, crash, stop and resume each row appears once in metrics.csv.

The training appends a row for each step, rewrites a summary, and replaces the plot of the last checkpoint; it continues
while a checkpoint is uploaded. An agent may be killed in any of its calls. Whatever happened, the results at the end
are those of a training without interruption, a restored folder equals the folder at the checkpoint, and the store holds
nothing that the baton does not name. Each property must also fail on code that is broken in the way it guards against.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from supervisor.agent.checkpoints.checkpointsaver import CheckpointSaver, Hooks, Restorer, Results
from supervisor.agent.checkpoints.folder import CheckpointFolder
from supervisor.agent.checkpoints.pruning import Pruner
from supervisor.agent.checkpoints.resultsaver import ResultsSaver
from supervisor.agent.checkpoints.snapshots import ResultsFolder, Snapshot, Snapshots, SnapshotTaker
from supervisor.agent.life.results import ResultsUploader
from supervisor.agent.store.access import BatonKeeper
from supervisor.agent.watch.output import step_in_name
from supervisor.contract import baton as rules
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, FileEntry, Holder, Keep
from tests.agent.bench import RUN, ManualClock, patient
from tests.agent.crashing_store import Crash, CrashingStore

STEPS = 40
Tree = dict[str, bytes]


@dataclass(frozen=True)
class Makes:
    """The classes, of which a test may break one."""

    moments: type[Snapshots] = Snapshots
    saver: type[ResultsSaver] = ResultsSaver
    starts_from_last: bool = False


class TellsRenames:
    """The kernel's reports about the checkpoint folder."""

    descriptor = None

    def __init__(self) -> None:
        self.names: list[str] = []

    def poll(self) -> list[str]:
        names, self.names = self.names, []
        return names


class Life:
    """A run's store across its attempts; `at`: the results folder at the moment of each checkpoint."""

    def __init__(self, folder: Path, makes: Makes) -> None:
        self.folder, self.makes = folder, makes
        self.store = CrashingStore()
        self.store.put(runfiles.baton(RUN), rules.encode(rules.create("sup-1", 1)))
        self.attempt, self.generation = 0, 1
        self.at: dict[int, Tree] = {}
        self.begin()

    def begin(self) -> None:
        """The next attempt on a new machine, up to the start of its training."""
        self.store.crash_in = self.store.lose = self.store.spoil = 0
        self.attempt += 1
        self.holder = f"{self.generation}.{self.attempt}.1", f"local:m:{self.attempt}:1"
        self.keeper = BatonKeeper(self.store, RUN, *self.holder)
        self.keeper.change(lambda baton, *holder: baton._replace(holder=Holder(self.attempt, *holder)))
        self.machine = self.folder / f"machine-{self.attempt}"
        self.results, self.checkpoints = self.machine / "results", self.machine / "checkpoints"
        self.checkpoints.mkdir(parents=True)
        self.kernel = TellsRenames()
        taker = SnapshotTaker(ResultsFolder(str(self.results)), str(self.machine / "moments"), 10**9)
        self.moments = self.makes.moments(self.kernel, taker)  # type: ignore[arg-type]
        retrier = patient(ManualClock())
        place = RUN, self.holder[0], str(self.machine / "incoming")
        self.kept = self.makes.saver(self.store, place, taker, retrier=retrier, hurry=retrier)
        self.entries = CheckpointFolder(str(self.checkpoints), 10.0, self.moments.renamed, self.moments.at_rest)
        self.saver = CheckpointSaver(
            Pruner(self.store, RUN, self.attempt, Keep(), lambda told: None),
            self.keeper,
            place=(RUN, self.attempt, str(self.machine / "staging")),
            retrier=retrier,
            hooks=Hooks(lambda name: step_in_name(name) or 0, lambda text: None, lambda step: None),
            results=Results(self.moments, self.kept),
        )
        self._restore()

    def _restore(self) -> None:
        restorer = Restorer(
            self.store, self.keeper, folder=str(self.checkpoints), retrier=patient(ManualClock()), reject=self._no
        )
        pointer = restorer.restore(self.baton)
        manifest = None if pointer is None else pointer.results
        if self.makes.starts_from_last and self.baton.last is not None:
            manifest = self.baton.last
        self.kept.restore(manifest)
        self.saver.clean(self.keeper.read())
        self.entries.ignore_present()
        self.moments.clear()
        self.step = 0 if pointer is None else pointer.step
        assert tree(self.results) == (self.at[self.step] if self.step else {})

    def _no(self, step: int, text: str) -> None:
        raise AssertionError(text)

    # --- the training ---------------------------------------------------------------------------------------------

    def train(self, steps: int) -> None:
        for _ in range(min(steps, STEPS - self.step)):
            self.step += 1
            with (self.results / "metrics.csv").open("a") as rows:
                rows.write(f"{self.step}\n")
            half = self.results / ".summary"
            half.write_text(json.dumps({"steps": self.step}))
            half.rename(self.results / "summary.json")

    def checkpoint(self) -> None:
        """By rename, which the kernel reports at once; the upload comes later."""
        plots = self.results / "plots"
        plots.mkdir(exist_ok=True)
        for old in plots.iterdir():
            old.unlink()
        (plots / f"{self.step}.png").write_text(f"plot {self.step}")
        (self.checkpoints / f"step-{self.step}.pt").write_text(f"weights {self.step}")
        self.at[self.step] = tree(self.results)
        self.kernel.names.append(f"step-{self.step}.pt")
        self.moments._drain()

    # --- the agent ------------------------------------------------------------------------------------------------

    def save(self, last: bool = False) -> None:
        self.saver.save_new(self.entries, 1000.0, last)

    def end(self) -> None:
        """Every end but success: the last checkpoint, then the results as they are."""
        self.save(last=True)
        manifest = self.kept.keep_last(self.keeper.read(), self.step)
        if manifest is not None:
            self.kept.prune(self.change(rules.keep_results, manifest))

    def change(self, step: Callable[..., Baton], *args: Any) -> Baton:
        return patient(ManualClock()).call("changing the baton", self.keeper.change, step, *args)

    def finish(self) -> Tree:
        """The results as a user pulls them."""
        self.train(STEPS)
        uploader = ResultsUploader(
            self.store, ResultsFolder(str(self.results)), "final/", retrier=patient(ManualClock())
        )
        return {entry.name: self.store.objects["final/" + entry.name][0] for entry in uploader.upload()}

    # --- what can be seen -----------------------------------------------------------------------------------------

    @property
    def baton(self) -> Baton:
        return rules.decode(self.store.get(runfiles.baton(RUN))[0])

    def manifest(self, entry: FileEntry) -> runfiles.SavedResults:
        return runfiles.decode_saved(self.store.get(entry.name)[0])

    def pulled(self, entry: FileEntry) -> Tree:
        return {file.name: self.store.objects[file.key][0] for file in self.manifest(entry).files}


def tree(folder: Path) -> Tree:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".summary"
    }


def resume(life: Life) -> None:
    """A person stops the run and resumes it."""
    life.end()
    life.generation += 1
    life.change(lambda baton, *_: rules.open_generation(baton, life.generation, False, None))
    life.begin()


def machine_dies(life: Life) -> None:
    life.begin()


def preempted(life: Life) -> None:
    """With a notice: the training saves once more."""
    if life.step:
        life.checkpoint()
    life.end()
    life.begin()


def crashed(life: Life) -> None:
    life.end()
    if tree(life.results):  # else people still have the results of the previous attempt
        assert life.pulled(rules.saved_results(life.baton)[0]) == tree(life.results)
    life.begin()


def checkpoint(life: Life) -> None:
    if life.step:
        life.checkpoint()


def dies_at(calls: int, after: bool) -> Callable[[Life], None]:
    def arm(life: Life) -> None:
        life.store.crash_in, life.store.crash_after = calls, after

    return arm


def setting(name: str, value: int) -> Callable[[Life], None]:
    return lambda life: setattr(life.store, name, value)


TRAINING = st.integers(1, 7).map(lambda steps: lambda life: life.train(steps))
SAVING = st.sampled_from([checkpoint, checkpoint, Life.save])
ENDS = st.sampled_from([machine_dies, preempted, crashed, resume])
TROUBLES = st.one_of(
    st.tuples(st.integers(1, 12), st.booleans()).map(lambda of: dies_at(*of)),
    st.integers(1, 2).map(lambda n: setting("spoil", n)),
    st.integers(1, 2).map(lambda n: setting("keep_all", n)),
    st.integers(1, 2).map(lambda n: setting("lose", n)),
)
STORIES = st.lists(st.one_of(TRAINING, TRAINING, SAVING, SAVING, ENDS, TROUBLES), max_size=25)


def nothing_is_left_over(life: Life) -> None:
    named = set()
    for entry in rules.saved_results(life.baton):
        named.add(entry.name)
        named.update(file.key for file in life.manifest(entry).files)
    assert {key for key in life.store.objects if key.startswith(runfiles.saved_results(RUN))} == named


def tell(story: list[Callable[[Life], None]], makes: Makes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        life = Life(Path(folder), makes)
        for deed in story:
            try:
                deed(life)
            except Crash:
                life.begin()
        life.store.keep_all = 0
        life.begin()
        nothing_is_left_over(life)
        files = life.finish()
        assert files["metrics.csv"].decode().split() == [str(step) for step in range(1, STEPS + 1)]
        assert json.loads(files["summary.json"]) == {"steps": STEPS}
        assert len([name for name in files if name.startswith("plots/")]) <= 1


@settings(max_examples=200, deadline=None)
@given(story=STORIES)
def test_each_row_appears_once_in_every_story(story: list[Callable[[Life], None]]) -> None:
    tell(story, Makes())


class TakesAtTheUpload(Snapshots):
    """The results as they are when the checkpoint is uploaded."""

    def of(self, name: str) -> Snapshot:
        return self._taker.take()


class BeginsAnew(ResultsSaver):
    """An empty folder in each attempt."""

    def restore(self, entry: FileEntry | None) -> None:
        super().restore(None)


class DeletesByAnOldLook(ResultsSaver):
    """Deletes whatever the first baton that it read does not name."""

    def prune(self, baton: Baton) -> None:
        self.first = getattr(self, "first", baton)
        super().prune(baton)
        super().prune(self.first)


class ForgetsLeftovers(ResultsSaver):
    def clean(self, baton: Baton) -> None:
        pass


class NeverRemoves(ResultsSaver):
    """A file that the training has deleted comes back."""

    def restore(self, entry: FileEntry | None) -> None:
        super().restore(entry)
        (Path(self._taker.folder.path) / "plots").mkdir(exist_ok=True)
        (Path(self._taker.folder.path) / "plots" / "old.png").write_text("old")


@pytest.mark.parametrize(
    "makes",
    [
        Makes(moments=TakesAtTheUpload),
        Makes(saver=BeginsAnew),
        Makes(saver=DeletesByAnOldLook),
        Makes(saver=ForgetsLeftovers),
        Makes(saver=NeverRemoves),
        Makes(starts_from_last=True),
    ],
    ids=["takes at the upload", "begins anew", "old look", "leftovers", "never removes", "starts from last"],
)
def test_a_broken_saver_is_caught(makes: Makes) -> None:
    @settings(max_examples=1000, derandomize=True, database=None, phases=[Phase.generate], deadline=None)
    @given(story=STORIES)
    def in_every_story(story: list[Callable[[Life], None]]) -> None:
        tell(story, makes)

    with pytest.raises((AssertionError, KeyError)):
        in_every_story()
