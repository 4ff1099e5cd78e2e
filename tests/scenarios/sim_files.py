"""The objects of a simulated agent in the store: small but real, so that a torn checkpoint is really torn.

Upload, then move the pointer, then delete what no pointer names; restore only what verifies (RULES section 7).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from supervisor.agent.store.access import BatonKeeper
from supervisor.contract import baton as rules
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, Done, FileEntry, Pointer
from supervisor.contract.heartbeat import MAX_PRUNED, Pruned
from supervisor.contract.stores.promise import ObjectMissing
from tests.scenarios.fault_points import StoreAccess


class Files:
    """One holder's files. Every method raises StoreUnavailable, and BatonRefused where it is not the holder."""

    def __init__(self, objects: StoreAccess, run_id: str, launch_id: str, machine_id: str) -> None:
        self.keeper = BatonKeeper(objects, run_id, launch_id, machine_id)
        self._objects = objects
        self._run_id = run_id
        self.pruned: Pruned | None = None  # removed checkpoints, for its beats

    def save(self, step: int, attempt: int) -> None:
        prefix = runfiles.checkpoint(self._run_id, step, attempt)
        pointer = Pointer(step, prefix, (self._upload(prefix, "model.pt", b"weights after %d steps" % step),))
        self._clean(self.keeper.change(rules.move_checkpoint, pointer))

    def restore(self, reject: Callable[[int], None]) -> int | None:
        """The step of the newest checkpoint that verifies."""
        baton = self.keeper.read()
        while baton.checkpoint is not None and not self._verifies(baton.checkpoint):
            reject(baton.checkpoint.step)
            baton = self.keeper.change(rules.drop_checkpoint)
        self._clean(baton)
        return None if baton.checkpoint is None else baton.checkpoint.step

    def finish(self, generation: int, names: tuple[str, ...], step: int | None, total: int | None) -> None:
        prefix = runfiles.results(self._run_id, generation)
        entries = tuple(self._upload(prefix, name, b"result %d of %s" % (step or 0, name.encode())) for name in names)
        done = Done(self.keeper.holder[0], prefix, entries, step, total)
        self.keeper.change(lambda baton, _, machine_id: rules.finish(baton, machine_id, done))

    def leave(self) -> None:
        self.keeper.change(rules.leave)

    def _upload(self, prefix: str, name: str, content: bytes) -> FileEntry:
        self._objects.put(prefix + name, content)
        return FileEntry(name, len(content), hashlib.sha256(content).hexdigest())

    def _verifies(self, pointer: Pointer) -> bool:
        return all(self._same(pointer.prefix + entry.name, entry.sha256) for entry in pointer.files)

    def _same(self, key: str, sha256: str) -> bool:
        try:
            return hashlib.sha256(self._objects.get(key)[0]).hexdigest() == sha256
        except ObjectMissing:
            return False

    def _clean(self, baton: Baton) -> None:
        named = tuple(pointer.prefix for pointer in rules.pointers(baton))
        folder = runfiles.checkpoints(self._run_id)
        for page in self._objects.pages(folder):
            for info in page.objects:
                if not info.key.startswith(named):
                    self._objects.delete(info.key)
                    step = int(info.key[len(folder) :].partition("-")[0])
                    before = self.pruned or Pruned(0)
                    last = (*before.last, (step, "keep_last 3"))[-MAX_PRUNED:]
                    self.pruned = Pruned(before.count + 1, last)
