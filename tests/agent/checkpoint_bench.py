"""A training's checkpoint folder, a held baton, and the saver between them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from supervisor.agent.checkpoints.checkpointsaver import CheckpointSaver, Hooks, Results
from supervisor.agent.checkpoints.folder import Candidate, CheckpointFolder
from supervisor.agent.checkpoints.pruning import Pruner
from supervisor.agent.checkpoints.resultsaver import ResultsSaver
from supervisor.agent.checkpoints.snapshots import ResultsFolder, Snapshots, SnapshotTaker
from supervisor.agent.machine.masking import NOTHING, Masker
from supervisor.agent.store.access import BatonKeeper
from supervisor.agent.watch.output import step_in_name
from supervisor.contract import baton as rules
from supervisor.contract import runfiles
from supervisor.contract.baton import KEEP, Keep
from supervisor.contract.heartbeat import Pruned
from tests.agent.bench import HOLDER, RUN, ManualClock, held, patient, store_in


class NoRenames:
    """A kernel that reports no renames."""

    descriptor = None

    def poll(self) -> list[str]:
        return []


def no_results(store: Any, folder: Path, clock: ManualClock) -> Results:
    """The results of a run that has none."""
    taker = SnapshotTaker(ResultsFolder(str(folder / "no-results")), str(folder / "snapshots"), 0)
    place = (RUN, HOLDER[0], str(folder / "incoming"))
    saver = ResultsSaver(store, place, taker, retrier=patient(clock), hurry=patient(clock))
    return Results(Snapshots(NoRenames(), taker), saver)  # type: ignore[arg-type]


class Bench:
    """The saver of one training with its folder and its baton."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.store = store_in(folder)
        self.keeper: BatonKeeper = held(self.store)
        self.path = folder / "checkpoints"
        self.path.mkdir()
        self.renamed: set[str] = set()
        self.entries = CheckpointFolder(str(self.path), 10.0, self._poll)
        self.steps: dict[str, int] = {}
        self.notes: list[str] = []
        self.moved: list[int] = []
        self.took: list[float] = []
        self.pruned: list[Pruned] = []
        self.before_step: Callable[[], object] = lambda: None
        self.held: Callable[[Candidate], str | None] = lambda candidate: ""  # by a metric
        self.saver = self.new_saver(folder)

    def new_saver(
        self, folder: Path, until: float = 1e9, keep: Keep = KEEP, masker: Masker = NOTHING
    ) -> CheckpointSaver:
        return CheckpointSaver(
            Pruner(self.store, RUN, 1, keep, self.pruned.append),
            self.keeper,
            place=(RUN, 1, str(folder / "staging")),
            retrier=patient(self.clock, until),
            hooks=Hooks(self._step_of, self.notes.append, self.moved.append, self.took.append, held=self._held_back),
            results=no_results(self.store, folder, self.clock),
            masker=masker,
        )

    def _step_of(self, name: str) -> int:
        self.before_step()
        return self.steps.get(name, step_in_name(name) or 0)

    def _held_back(self, candidate: Candidate) -> str | None:
        return self.held(candidate)

    def _poll(self) -> set[str]:
        names, self.renamed = self.renamed, set()
        return names

    def write(self, name: str, text: str = "x") -> None:
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        self.renamed.add(Path(name).parts[0])

    def save(self, last: bool = False) -> None:
        self.saver.save_new(self.entries, self.clock.now, last)

    @property
    def baton(self) -> rules.Baton:
        return rules.decode(self.store.inner.get(runfiles.baton(RUN))[0])

    def files(self) -> list[str]:
        begins = runfiles.checkpoints(RUN)
        return [key[len(begins) :] for key in self.store.keys(begins)]
