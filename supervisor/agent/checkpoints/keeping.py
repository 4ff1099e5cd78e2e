"""Keeping checkpoints: taken, hashed, uploaded under a new name, read back, and only then pointed to, together with
the results of the moment when they appeared.

The newest complete entry counts; older ones that were overtaken are skipped. Entries named `best*` are named by the
baton beside the others but never resumed from: a resume goes on from the newest state, not from the best one. What the
baton does not name any more is deleted by the pruner, after the baton has moved.

`CheckpointDuty` is the step of the thread that does this beside the command. It has a last round when the command has
ended: everything that is still new goes to the store then.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from typing import Callable, List, NamedTuple, Optional, Set, Tuple

from supervisor.agent.checkpoints.folder import Candidate, CheckpointFolder
from supervisor.agent.checkpoints.moments import Moment, Moments
from supervisor.agent.checkpoints.pruning import BEST, Pruner
from supervisor.agent.checkpoints.resultsaver import ResultsSaver
from supervisor.agent.machine.masking import NOTHING, Masker
from supervisor.agent.store.reach import TRIES, BatonKeeper, GaveUp, Mismatch, Patience, hash_file, upload
from supervisor.agent.watch.ends import Attention
from supervisor.contract import baton as rules
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, BatonRefused, FileEntry, Pointer

_log = logging.getLogger("agent")
SCAN_S = 0.2


_SCAN_SHARE = 20  # a scan that takes long is made less often


class Changed(Exception):
    """The entry was written on, or went away, while it was being taken: it comes again when it is at rest."""


class Hooks(NamedTuple):
    """What the saver asks the rest of the agent, and tells it."""

    step_of: Callable[[str], int]  # the step of an entry by its name
    note: Callable[[str], None]  # a text for the beat; "" = none
    moved: Callable[[int], None]  # the pointer now names this step


class Results(NamedTuple):
    """The results beside the checkpoints. None of both: they are not kept."""

    moments: Moments
    saver: ResultsSaver


class CheckpointSaver:
    """Used by one thread. The pruner's store and rule are the saver's, too."""

    def __init__(
        self,
        pruner: Pruner,
        keeper: BatonKeeper,
        holder: Tuple[str, str],  # (launch id, machine id)
        *,
        place: Tuple[str, int, str],  # (run id, attempt, staging folder)
        patience: Patience,
        hooks: Hooks,
        masker: Masker = NOTHING,
        results: Optional[Results] = None,
    ) -> None:
        self._results = results
        self._pruner, self._store, self._keep = pruner, pruner.store, pruner.keep
        self._keeper = keeper
        self._holder = holder
        self._run_id, self._attempt, self._staging = place
        self._patience = patience
        self._step_of, self._note, self._moved = hooks
        self._masker = masker
        self._prefixes: Set[str] = set()

    def clean(self, baton: Baton) -> None:
        """Delete what earlier holders left behind. A failure is no matter: it is tried again at the next save."""
        self._prefixes.update(self._pruner.clean(baton))
        if self._results is not None:
            self._results.saver.clean(baton)

    def save_new(self, folder: CheckpointFolder, now: float, last: bool = False) -> None:
        """Save what is new and complete. `last`: nobody is left who could write.

        Raises GaveUp, BatonRefused.
        """
        ready = folder.ready(now, all_at_rest=last)
        best = [candidate for candidate in ready if candidate.name.startswith(BEST)]
        rest = [candidate for candidate in ready if not candidate.name.startswith(BEST)]
        while rest and not self._try(folder, rest.pop()):
            pass
        for overtaken in rest:
            self._done(folder, overtaken)
        for candidate in best:
            if self._keep.best == 0:
                self._done(folder, candidate)
            else:
                self._try(folder, candidate)

    def _try(self, folder: CheckpointFolder, candidate: Candidate) -> bool:
        """True when it is safe. One that cannot be saved is not tried again; one that changed meanwhile is."""
        try:
            self._save(folder, candidate)
        except Changed as error:
            if self._results is not None:
                self._results.moments.forget(candidate.name)
            _log.info("checkpoint %s is left for later: %s", candidate.name, error)
            return False
        except (Mismatch, ValueError, OSError) as error:
            _log.warning("checkpoint %s was not saved: %s", candidate.name, error)
            self._note("checkpoint %s was not saved: %s" % (candidate.name, error))
            self._done(folder, candidate)
            return False
        self._done(folder, candidate)
        return True

    def _done(self, folder: CheckpointFolder, candidate: Candidate) -> None:
        folder.done(candidate)
        if self._results is not None:
            self._results.moments.forget(candidate.name)

    def _save(self, folder: CheckpointFolder, candidate: Candidate) -> None:
        started = time.monotonic()
        step = self._step_of(candidate.name)
        best = candidate.name.startswith(BEST)
        moment = None if best or self._results is None else self._results.moments.of(candidate.name)
        try:
            entries = self._take(folder, candidate)
            prefix = self._new_prefix(step, best)
            self._upload_all(prefix, entries)
            results = self._save_results(moment, step, prefix, entries)
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)
            if moment is not None:
                moment.drop()
        self._point(Pointer(step, prefix, tuple(entries), results), best)
        self._note("")
        took_s = time.monotonic() - started
        size = sum(entry.size for entry in entries)
        _log.info("checkpoint %s (step %d, %d bytes) is safe after %.1f s", candidate.name, step, size, took_s)

    def _save_results(
        self, moment: Optional[Moment], step: int, prefix: str, entries: List[FileEntry]
    ) -> Optional[FileEntry]:
        """After the checkpoint's own files: where the time is short, these come first."""
        if self._results is None or moment is None:
            return None
        try:
            return self._results.saver.save(moment, step)
        except (Mismatch, ValueError, OSError):
            self._pruner.discard(prefix, [entry.name for entry in entries])
            raise

    def _take(self, folder: CheckpointFolder, candidate: Candidate) -> List[FileEntry]:
        """Copies in the staging folder, hashed: what the training does to its own files no longer matters."""
        shutil.rmtree(self._staging, ignore_errors=True)
        entries = []
        try:
            for name in candidate.files:
                kept = self._masker.text(name)  # a name may hold what must not be stored
                source, target = os.path.join(folder.path, name), os.path.join(self._staging, kept)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                if os.path.lexists(target):  # to write there would write into the training's own file
                    raise ValueError("without secrets two of its files have one name")
                _copy(source, target, may_link=not candidate.in_place)
                entries.append(hash_file(target, kept))
        except FileNotFoundError:
            raise Changed("it went away") from None
        if folder.signature(candidate.name) != candidate.signature:
            raise Changed("it is being written")
        return entries

    def _upload_all(self, prefix: str, entries: List[FileEntry]) -> None:
        try:
            for entry in entries:
                self._upload(prefix, entry)
        except (Mismatch, ValueError, OSError):
            self._pruner.discard(prefix, [entry.name for entry in entries])
            raise

    def _upload(self, prefix: str, entry: FileEntry) -> None:
        path = os.path.join(self._staging, entry.name)

        def between() -> None:
            self._patience.check("uploading a checkpoint")

        for left in reversed(range(TRIES)):
            try:
                self._patience.insist(
                    "uploading a checkpoint", lambda: upload(self._store, prefix, path, entry, between)
                )
            except Mismatch:
                if left == 0:
                    raise
            else:
                return

    def _point(self, pointer: Pointer, best: bool) -> None:
        named = rules.keep_best if best else rules.move_checkpoint
        after = self._patience.insist(
            "moving the checkpoint pointer",
            lambda: self._keeper.change(lambda baton: named(baton, *self._holder, pointer, self._keep)),
        )
        if not best:
            self._moved(pointer.step)
        self._pruner.prune(after)
        if self._results is not None:
            self._results.saver.prune(after)

    def _new_prefix(self, step: int, best: bool) -> str:
        upload_number = 1
        while True:
            prefix = runfiles.checkpoint(self._run_id, step, self._attempt, upload_number, best)
            if prefix not in self._prefixes:
                self._prefixes.add(prefix)
                return prefix
            upload_number += 1


def _copy(source: str, target: str, may_link: bool) -> None:
    """A second name costs nothing and holds the content; where a file may still be written on, a copy is needed."""
    if may_link:
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:
            pass
        else:
            return
    shutil.copyfile(source, target)


class CheckpointDuty:
    """The step ends for good after the last round, when the time for uploads is over, and when the baton is lost."""

    _last = False  # the command has ended

    def __init__(
        self, saver: CheckpointSaver, folder: CheckpointFolder, attention: Attention, why_lost: Callable[[], str]
    ) -> None:
        self._saver, self._folder, self._attention = saver, folder, attention
        self._why_lost = why_lost

    def finish(self) -> None:
        """The command has ended: one more round, in which nothing is being written any more."""
        self._last = True

    def step(self) -> Optional[float]:
        last = self._last
        try:
            self._saver.save_new(self._folder, time.monotonic(), last)
        except GaveUp:
            _log.warning("the newest checkpoint could not be uploaded in time")
            return None
        except BatonRefused as error:
            _log.warning("the baton is not ours any more: %s", error)
            self._attention.ask(self._why_lost(), may_write=False)
            return None
        return None if last else max(SCAN_S, _SCAN_SHARE * self._folder.scan_s)
