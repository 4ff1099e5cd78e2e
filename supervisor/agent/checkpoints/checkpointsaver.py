"""Saving and restoring checkpoints: copied, hashed, uploaded under a new name, read back, and only then pointed to,
together with the results of the moment when they appeared.

The newest complete entry counts; older entries are skipped. The baton names entries called `best*` beside the others,
but nothing resumes from them: a resume continues from the newest state, not from the best one. The pruner deletes what
the baton does not name any more, after the baton has moved. What a metric (agent/watch/metrics.py) or a command that
may have started over (agent/watch/resumecheck.py) holds back is never pointed to; the training's own file stays.

Restored is the newest checkpoint that a pointer names and that verifies. A checkpoint that does not verify is dropped
from the baton and the previous one is used, after the last previous one the milestones from the newest down; the beat
says so. If the store does not respond, the agent waits: a training that starts from zero because a read failed loses
everything.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import threading
import time
from typing import Callable, FrozenSet, List, NamedTuple, Optional, Set, Tuple

from supervisor.agent.checkpoints.folder import BEST, Candidate, CheckpointFolder
from supervisor.agent.checkpoints.pruning import Pruner
from supervisor.agent.checkpoints.resultsaver import ResultsSaver, is_plain
from supervisor.agent.checkpoints.snapshots import Snapshot, Snapshots
from supervisor.agent.machine.masking import NOTHING, Masker
from supervisor.agent.store.access import BatonKeeper, GaveUp, Mismatch, Retrier, Transfer, hash_file
from supervisor.agent.watch.ends import EndReasons
from supervisor.contract import baton as rules
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, BatonRefused, FileEntry, Pointer
from supervisor.contract.stores.promise import ObjectStore

INCOMING = ".incoming"  # below the checkpoint folder; a name with a leading dot never counts as a checkpoint
# While entries are new, and for QUIET_S after: a training that saves every second leaves no checkpoint unseen. Else the
# second, but never longer than an entry must rest.
SCAN_S, QUIET_SCAN_S, QUIET_S = 0.2, 1.0, 10.0
_SCAN_SHARE = 20  # a slow scan runs less often
REPORT_S = 10.0  # how long a checkpoint waits for the report of its step, where a metric may hold it back
_log = logging.getLogger("agent")


class Changed(Exception):
    """The entry changed or disappeared while it was being copied: it is offered again when it is at rest."""


class HeldBack(Exception):
    """A metric was not finite when it was made, or the command may have started over."""


class Hooks(NamedTuple):
    """How the saver reads from and reports to the rest of the agent."""

    step_of: Callable[[str], int]  # the step of an entry by its name
    note: Callable[[str], None]  # a text for the beat; "" = none
    moved: Callable[[int], None]  # the pointer now names this step
    # How long a checkpoint took: its writing, as far as a scan saw it, and everything from its copy to the pointer.
    took: Callable[[float], None] = lambda seconds: None
    staged: Callable[[str, List[FileEntry]], None] = lambda folder, entries: None  # the copies, before their upload
    # Why a checkpoint must not be used; "" = it may be; None = the reports up to it are not read yet.
    held: Callable[[Candidate], Optional[str]] = lambda candidate: ""
    # (step, total) of the last report; None = there was none.
    reported: Callable[[], Optional[Tuple[int, Optional[int]]]] = lambda: None


class Results(NamedTuple):
    """The results beside the checkpoints."""

    snapshots: Snapshots
    saver: ResultsSaver


class CheckpointSaver:
    """Used by one thread. It uses the pruner's store and rule."""

    def __init__(
        self,
        pruner: Pruner,
        keeper: BatonKeeper,
        *,
        place: Tuple[str, int, str],  # (run id, attempt, staging folder)
        retrier: Retrier,
        hooks: Hooks,
        results: Results,
        masker: Masker = NOTHING,
    ) -> None:
        self._snapshots, self._results_saver = results
        self._pruner, self._keep = pruner, pruner.keep
        self._keeper = keeper
        self._run_id, self._attempt, self._staging = place
        self._retrier = retrier
        self._transfer = Transfer(pruner.store, retrier, "uploading a checkpoint")
        self._step_of, self._note, self._moved, self._took, self._staged, self._held, self._reported = hooks
        self._masker = masker
        self._prefixes: Set[str] = set()
        self.newest: FrozenSet[str] = frozenset()  # entries of the checkpoints that the baton names first

    def clean(self, baton: Baton) -> None:
        """Delete what earlier holders left behind. After a failure the next save tries again."""
        self._note_newest(baton)
        self._prefixes.update(self._pruner.clean(baton))
        self._results_saver.clean(baton)

    def save_new(self, folder: CheckpointFolder, now: float, last: bool = False) -> None:
        """Save what is new and complete. `last`: no process is left that could write.

        Raises GaveUp, BatonRefused.
        """
        ready = [each for each in folder.ready(now, all_at_rest=last) if last or not self._waits(each, now)]
        best = [candidate for candidate in ready if candidate.name.startswith(BEST)]
        others = [candidate for candidate in ready if not candidate.name.startswith(BEST)]
        while others and not self._try(folder, others.pop()):
            pass
        for skipped in others:
            self._done(folder, skipped)
        for candidate in best:
            if self._keep.best == 0:
                self._done(folder, candidate)
            else:
                self._try(folder, candidate)

    def _waits(self, candidate: Candidate, now: float) -> bool:
        """For the report of its step, which may come a moment later. In the last round all reports are read."""
        return now - candidate.since < REPORT_S and self._held(candidate) is None

    def _try(self, folder: CheckpointFolder, candidate: Candidate) -> bool:
        """True when it is saved. A checkpoint that cannot be saved is not tried again, unless it changes."""
        try:
            self._check(candidate)
            self._save(folder, candidate)
        except Changed as error:
            _log.info("checkpoint %s is left for later: %s", candidate.name, error)
            return False
        except (HeldBack, Mismatch, ValueError, OSError) as error:
            _log.warning("checkpoint %s was not saved: %s", candidate.name, error)
            self._note("checkpoint %s was not saved: %s" % (candidate.name, error))
            self._done(folder, candidate)
            return False
        self._done(folder, candidate)
        return True

    def _check(self, candidate: Candidate) -> None:
        why = self._held(candidate)
        if why:
            raise HeldBack(why)

    def _done(self, folder: CheckpointFolder, candidate: Candidate) -> None:
        folder.done(candidate)
        if folder.signature(candidate.name) in (None, candidate.signature):
            self._snapshots.forget(candidate.name)  # else what is pending belongs to its next content

    def _save(self, folder: CheckpointFolder, candidate: Candidate) -> None:
        started = time.monotonic()
        step, reported = self._step_of(candidate.name), self._reported()
        best = candidate.name.startswith(BEST)
        snapshot = None if best else self._snapshots.of(candidate.name)
        try:
            entries = self._copy_entries(folder, candidate)
            self._staged(self._staging, entries)
            prefix = self._new_prefix(step, best)
            results = self._upload(prefix, entries, snapshot, step)
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)
            if snapshot is not None:
                snapshot.drop()
        try:
            self._check(candidate)  # again: the upload took a while
        except HeldBack:
            self._pruner.discard(prefix, [entry.name for entry in entries])
            raise
        self._point(Pointer(step, prefix, tuple(entries), results, *(reported or ())), best)
        self._note("")
        took_s = time.monotonic() - started
        self._took(candidate.written_s + took_s)
        size = sum(entry.size for entry in entries)
        _log.info("checkpoint %s (step %d, %d bytes) is saved after %.1f s", candidate.name, step, size, took_s)

    def _copy_entries(self, folder: CheckpointFolder, candidate: Candidate) -> List[FileEntry]:
        """Copies in the staging folder, hashed: later changes of the training's own files do not matter."""
        shutil.rmtree(self._staging, ignore_errors=True)
        entries = []
        try:
            for name in candidate.files:
                stored_name = self._masker.text(name)  # a name may contain a secret
                source, target = os.path.join(folder.path, name), os.path.join(self._staging, stored_name)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                if os.path.lexists(target):  # a write to it could change the training's own file
                    raise ValueError("without secrets two of its files have one name")
                _copy(source, target, may_link=not candidate.in_place)
                entries.append(hash_file(target, stored_name))
        except FileNotFoundError:
            raise Changed("it disappeared") from None
        if folder.signature(candidate.name) != candidate.signature:
            raise Changed("it is being written")
        return entries

    def _upload(
        self, prefix: str, entries: List[FileEntry], snapshot: Optional[Snapshot], step: int
    ) -> Optional[FileEntry]:
        """The manifest of the results, if there are any. The checkpoint's own files come first, in case the time is
        short."""
        try:
            for entry in entries:
                self._transfer.upload(prefix, os.path.join(self._staging, entry.name), entry)
            return None if snapshot is None else self._results_saver.save(snapshot, step)
        except (Mismatch, ValueError, OSError):
            self._pruner.discard(prefix, [entry.name for entry in entries])
            raise

    def _point(self, pointer: Pointer, best: bool) -> None:
        step = rules.keep_best if best else rules.move_checkpoint
        after = self._retrier.call("moving the checkpoint pointer", self._keeper.change, step, pointer, self._keep)
        self._note_newest(after)
        if not best:
            self._moved(pointer.step)
        self._pruner.prune(after)
        self._results_saver.prune(after)

    def _note_newest(self, baton: Baton) -> None:
        pointers = [pointer for pointer in (baton.checkpoint, *baton.previous) if pointer is not None]
        self.newest = frozenset(entry.name.partition("/")[0] for pointer in pointers for entry in pointer.files)

    def _new_prefix(self, step: int, best: bool) -> str:
        uploads = itertools.count(1)
        prefixes = (runfiles.checkpoint(self._run_id, step, self._attempt, upload, best) for upload in uploads)
        prefix = next(prefix for prefix in prefixes if prefix not in self._prefixes)
        self._prefixes.add(prefix)
        return prefix


def _copy(source: str, target: str, may_link: bool) -> None:
    """A hard link costs nothing and keeps the content; a file that a process may still write to needs a copy."""
    if may_link:
        try:
            os.link(source, target)
            return
        except FileNotFoundError:
            raise
        except OSError:
            pass
    shutil.copyfile(source, target)


class CheckpointDuty:
    """The step of the checkpoint thread, which runs beside the command. In the last round, after the command's end,
    everything that is still new goes to the store. The step ends for good after that round, when the time for uploads
    is over, and when the baton is lost.

    A drill ends the command too, but not the duty: `flush` asks for such a round, and `flushed` is set after it. Who
    changes the folder in between holds `lock`."""

    _last = False  # the command has ended
    _flush = False

    def __init__(
        self, saver: CheckpointSaver, folder: CheckpointFolder, end_reasons: EndReasons, keeper: BatonKeeper
    ) -> None:
        self._saver, self._folder, self._end_reasons, self._keeper = saver, folder, end_reasons, keeper
        self.lock, self.flushed = threading.Lock(), threading.Event()

    def finish(self) -> None:
        """The command has ended: one more round, in which no process writes any more."""
        self._last = True

    def flush(self) -> None:
        """The same, but the command will be started again."""
        self.flushed.clear()
        self._flush = True

    def step(self) -> Optional[float]:
        last, flush = self._last, self._flush
        try:
            with self.lock:
                self._saver.save_new(self._folder, time.monotonic(), last or flush)
        except GaveUp:
            _log.warning("the newest checkpoint could not be uploaded in time")
            return None
        except BatonRefused as error:
            _log.warning("the baton is not ours any more: %s", error)
            self._end_reasons.add(self._keeper.lost_reason(), may_write=False)
            return None
        if flush:
            self._flush = False
            self.flushed.set()
        return None if last else max(self._scan_s(), _SCAN_SHARE * self._folder.scan_s)

    def _scan_s(self) -> float:
        folder = self._folder
        is_new = folder.pending or time.monotonic() - (folder.changed_at or 0.0) < QUIET_S
        return SCAN_S if is_new else min(QUIET_SCAN_S, folder.rest_s)


class Restorer:
    """Restores into `folder`. `reject` gets each step that does not verify, with a short text for the beat."""

    def __init__(
        self,
        store: ObjectStore,
        keeper: BatonKeeper,
        *,
        folder: str,
        retrier: Retrier,
        reject: Callable[[int, str], None],
    ) -> None:
        self._keeper, self._folder, self._retrier, self._reject = keeper, folder, retrier, reject
        self._transfer = Transfer(store, retrier, "restoring")

    def restore(self, baton: Baton) -> Optional[Pointer]:
        """The checkpoint that is now in the folder, None when the baton names none that verifies.

        Raises GaveUp, BatonRefused, OSError (this machine's disk).
        """
        while baton.checkpoint is not None:
            pointer = baton.checkpoint
            try:
                self._fetch(pointer)
            except Mismatch as error:
                _log.warning("checkpoint %d rejected: %s", pointer.step, error)
                milestone = None if baton.previous or not baton.kept else baton.kept[0].step
                then = "" if milestone is None else "; milestone %d is tried" % milestone
                self._reject(pointer.step, "checkpoint %d rejected: %s%s" % (pointer.step, error, then))
                baton = self._retrier.call("dropping a checkpoint", self._keeper.change, drop, pointer)
            else:
                return pointer
        return None

    def _fetch(self, pointer: Pointer) -> None:
        """Verify everything first, then move each top entry by one rename."""
        incoming = os.path.join(self._folder, INCOMING)
        shutil.rmtree(incoming, ignore_errors=True)
        os.makedirs(incoming)
        try:
            for entry in pointer.files:
                if not is_plain(entry.name):
                    raise Mismatch("%r is not a path inside the checkpoint folder" % entry.name)
                self._transfer.download(pointer.prefix, os.path.join(incoming, entry.name), entry)
            for name in os.listdir(incoming):
                target = os.path.join(self._folder, name)
                if os.path.isdir(target):
                    shutil.rmtree(target)
                os.rename(os.path.join(incoming, name), target)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)


def drop(baton: Baton, launch_id: str, machine_id: str, rejected: Pointer) -> Baton:
    """Drop only the rejected one: after a lost response the next one must not go too."""
    return rules.drop_checkpoint(baton, launch_id, machine_id) if baton.checkpoint == rejected else baton
