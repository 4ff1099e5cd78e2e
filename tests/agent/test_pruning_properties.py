"""In every history of saves, corrupt uploads, lost responses, crashes in any call, restarts and changes of the rule:

every object that the baton names is complete in the store, the newest two verified checkpoints are named, and after a
quiet start the store holds exactly what the baton names. Each property must also fail on code that is broken in the way
it guards against: deleting before the baton has moved, keeping one only, deleting by an outdated baton.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from supervisor.agent.checkpoints.checkpointsaver import CheckpointSaver, Hooks
from supervisor.agent.checkpoints.folder import CheckpointFolder
from supervisor.agent.checkpoints.pruning import Pruner
from supervisor.agent.store.access import BatonKeeper
from supervisor.agent.watch.output import step_in_name
from supervisor.contract import baton as rules
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, Holder, Keep, Pointer
from supervisor.contract.heartbeat import Pruned
from tests.agent.bench import RUN, ManualClock, patient
from tests.agent.checkpoint_bench import no_results
from tests.agent.crashing_store import Crash, CrashingStore


@dataclass(frozen=True)
class Makes:
    """The classes, of which a test may break one."""

    pruner: type[Pruner] = Pruner
    saver: type[CheckpointSaver] = CheckpointSaver


class Life:
    """A run's store across its attempts. `newest`: the checkpoints that were pointed to, the newest last."""

    def __init__(self, folder: Path, makes: Makes) -> None:
        self.folder, self.makes = folder, makes
        self.store = CrashingStore()
        self.keep = Keep()
        self.attempt = 0
        self.written = 0
        self.pruned = Pruned(0)
        self.store.put(runfiles.baton(RUN), rules.encode(rules.create("sup-1", 1)))
        self.begin()

    def begin(self) -> None:
        """The next agent: it claims, cleans, and has a folder of its own."""
        self.store.crash_in = self.store.lose = 0  # a claim waits for its response
        self.attempt += 1
        launch, machine = f"1.{self.attempt}.1", f"local:m:{self.attempt}:1"
        self.keeper = BatonKeeper(self.store, RUN, launch, machine)
        self.keeper.change(lambda baton, *holder: baton._replace(holder=Holder(self.attempt, *holder)))
        self.path = self.folder / f"life-{self.attempt}"
        self.path.mkdir()
        self.renamed: set[str] = set()
        self.entries = CheckpointFolder(str(self.path), 10.0, self._poll)
        pruner = self.makes.pruner(
            self.store, RUN, self.attempt, self.keep, lambda pruned: setattr(self, "told", pruned)
        )
        self.saver = self.makes.saver(
            pruner,
            self.keeper,
            place=(RUN, self.attempt, str(self.folder / "staging")),
            retrier=patient(ManualClock()),
            hooks=Hooks(lambda name: step_in_name(name) or 0, lambda text: None, lambda step: None),
            results=no_results(self.store, self.folder, ManualClock()),
        )
        self.saver.clean(self.keeper.read())

    def _poll(self) -> set[str]:
        names, self.renamed = self.renamed, set()
        return names

    def save(self, name: str) -> None:
        self.written += 1
        (self.path / name).write_text(f"content {self.written}")
        self.renamed.add(name)
        self.saver.save_new(self.entries, 1000.0)

    @property
    def baton(self) -> Baton:
        return rules.decode(self.store.get(runfiles.baton(RUN))[0])

    def checkpoints(self) -> set[str]:
        return {key for key in self.store.objects if key.startswith(runfiles.checkpoints(RUN))}


Deed = Callable[[Life], None]


def crash(in_calls: int, after: bool) -> Deed:
    def arm(life: Life) -> None:
        life.store.crash_in, life.store.crash_after = in_calls, after

    return arm


def setting(name: str, value: int) -> Deed:
    return lambda life: setattr(life.store, name, value)


def restart(keep: Keep) -> Deed:
    def begin(life: Life) -> None:
        life.keep = keep
        life.begin()

    return begin


def saving(name: str) -> Deed:
    return lambda life: life.save(name)


KEEPS = st.builds(Keep, st.integers(2, 4), st.integers(0, 2), st.sampled_from([None, 3, 7]))
SAVES = st.one_of(
    st.integers(1, 40).map(lambda step: saving(f"step-{step}.pt")),
    st.integers(1, 40).map(lambda step: saving(f"best-{step}.pt")),
)
TROUBLES = st.one_of(
    st.tuples(st.integers(1, 6), st.booleans()).map(lambda of: crash(*of)),
    st.integers(1, 3).map(lambda n: setting("spoil", n)),
    st.integers(1, 3).map(lambda n: setting("keep_all", n)),
    st.integers(1, 2).map(lambda n: setting("lose", n)),
    KEEPS.map(restart),
)
HISTORIES = st.lists(st.one_of(SAVES, SAVES, TROUBLES), max_size=25)


def named_files_are_whole(life: Life) -> None:
    for pointer in rules.pointers(life.baton):
        for entry in pointer.files:
            data = life.store.objects.get(pointer.prefix + entry.name, (b"", 0))[0]
            assert hashlib.sha256(data).hexdigest() == entry.sha256, pointer


def check_newest_two(life: Life, before: Baton, newest: list[Pointer]) -> None:
    """The newest two checkpoints that were ever pointed to are named."""
    now = life.baton
    if now.checkpoint is not None and now.checkpoint != before.checkpoint:
        newest.append(now.checkpoint)
    assert [*([now.checkpoint] if now.checkpoint else []), *now.previous][:2] == newest[::-1][:2]


def go_through(history: list[Deed], makes: Makes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        life = Life(Path(folder), makes)
        newest: list[Pointer] = []
        for deed in history:
            before = life.baton
            try:
                deed(life)
            except Crash:
                named_files_are_whole(life)
                check_newest_two(life, before, newest)
                life.begin()
            else:
                check_newest_two(life, before, newest)
            named_files_are_whole(life)
        life.store.keep_all = life.store.lose = life.store.spoil = 0
        life.begin()
        named = {p.prefix + entry.name for p in rules.pointers(life.baton) for entry in p.files}
        assert life.checkpoints() == named


@settings(max_examples=300, deadline=None)
@given(history=HISTORIES)
def test_in_every_history(history: list[Deed]) -> None:
    go_through(history, Makes())


class DeletesFirst(CheckpointSaver):
    def _point(self, pointer: Pointer, best: bool) -> None:
        name = rules.keep_best if best else rules.move_checkpoint
        self._pruner.prune(name(self._keeper.read(), *self._keeper.holder, pointer, self._keep))
        super()._point(pointer, best)


class KeepsOne(CheckpointSaver):
    def _point(self, pointer: Pointer, best: bool) -> None:
        super()._point(pointer, best)
        self._pruner.prune(self._keeper.change(lambda baton, *_: baton._replace(previous=())))


class CleansByAnOldLook(Pruner):
    """Deletes whatever the first baton that it read does not name."""

    def prune(self, baton: Baton) -> None:
        self.first = getattr(self, "first", baton)
        super().prune(baton)
        super().prune(self.first)


class ForgetsLeftovers(Pruner):
    def clean(self, baton: Baton) -> list[str]:
        return []


@pytest.mark.parametrize(
    "makes",
    [Makes(saver=DeletesFirst), Makes(saver=KeepsOne), Makes(pruner=CleansByAnOldLook), Makes(pruner=ForgetsLeftovers)],
    ids=["deletes first", "keeps one", "cleans by an old look", "forgets leftovers"],
)
def test_broken_pruning_is_caught(makes: Makes) -> None:
    @settings(max_examples=2000, derandomize=True, database=None, phases=[Phase.generate], deadline=None)
    @given(history=HISTORIES)
    def in_every_history(history: list[Deed]) -> None:
        go_through(history, makes)

    with pytest.raises(AssertionError):
        in_every_history()
