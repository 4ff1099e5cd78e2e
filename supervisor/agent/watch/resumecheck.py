"""Whether the command goes on from the checkpoint that was restored for it, or starts over beside it.

A training that starts over would soon overwrite what is good with what is not: the newest checkpoint of the run becomes
one of a few steps. It is called so only when everything agrees:

- the restored files were not opened. The kernel reports an open of each of them (inotify), by whatever path and by
  whatever process. That this report works is tried before the command starts; on a file system that other computers
  share it is never believed, because their opens do not show here.
- the steps began far below: the first report is below half of the step that was reported when the checkpoint was
  saved, and a second one counts up from there. The checkpoint's own number may count something else.
- `total` is the same as then: a training that reports only what is left counts its own way.

Until one of these is disproved, new checkpoints are held back: they are neither uploaded nor pointed to. A training
without reports cannot be judged, so after PENDING_S of its time nothing is held back any more. Where the files were
opened, a fall of the steps is a hint only (agent/watch/notes.py): it may count each epoch from 1.
"""

from __future__ import annotations

import ctypes
import logging
import os
import struct
import threading
from typing import Callable, Dict, Iterable, NamedTuple, Optional, Sequence, Set, Tuple

from supervisor.contract.baton import Pointer
from supervisor.contract.signs import SLOW_MOUNTS

STOP, WARN = "stop", "warn"  # of the spec's `on_resume_ignored`
BELOW = 0.5  # of the step that was reported at the save: what begins above it goes on
PENDING_S = 900.0  # of the command's time; a longer silence says nothing about how it began
WATCHED = 1000  # files; a checkpoint with more of them is not judged
_ACCESS, _MODIFY, _CLOSED_UNWRITTEN, _OPEN, _LOST = 0x1, 0x2, 0x10, 0x20, 0x4000
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_EVENTS_BYTES = 65536
_log = logging.getLogger("agent")


class Opens:
    """Whether some files were opened since the construction, other than to overwrite them. Used by one thread at a
    time. `is_watched` False: that cannot be said here."""

    def __init__(self, paths: Sequence[str], mount_kind: str) -> None:
        self._descriptor: Optional[int] = None
        self._written: Set[int] = set()
        self.opened = False
        is_shared = any(word in mount_kind for word in SLOW_MOUNTS if word != "hdd")
        if not paths or len(paths) > WATCHED or is_shared:
            return
        try:
            self._begin(paths)
        except (OSError, AttributeError) as error:
            _log.info("whether the restored checkpoint is opened cannot be watched: %s", error)
            self.close()

    @property
    def is_watched(self) -> bool:
        return self.opened or self._descriptor is not None

    def look(self) -> bool:
        """True once one was opened."""
        if not self.opened and self._descriptor is not None and self._is_use(self._read()):
            self.opened = True
            self.close()
        return self.opened

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _begin(self, paths: Sequence[str]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._descriptor = descriptor
        for path in paths:
            mask = _ACCESS | _MODIFY | _CLOSED_UNWRITTEN | _OPEN
            if libc.inotify_add_watch(descriptor, os.fsencode(path), mask) < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch")
        with open(paths[0], "rb"):
            pass
        if not self._is_use(self._read()):
            raise OSError(0, "an open of our own was not reported")

    def _read(self) -> Dict[int, int]:
        """By watch: everything that was reported of it since the last call."""
        masks: Dict[int, int] = {}
        while self._descriptor is not None:
            try:
                raw = os.read(self._descriptor, _EVENTS_BYTES)
            except BlockingIOError:
                break
            offset = 0
            while offset < len(raw):
                watch, mask, _, length = _EVENT.unpack_from(raw, offset)
                offset += _EVENT.size + length
                masks[watch] = masks.get(watch, 0) | mask
        return masks

    def _is_use(self, masks: Dict[int, int]) -> bool:
        """A file that is cut to nothing and written again was not read; any other open counts."""
        self._written.update(watch for watch, mask in masks.items() if mask & _MODIFY)
        return any(
            mask & (_ACCESS | _CLOSED_UNWRITTEN | _LOST) or (mask & _OPEN and watch not in self._written)
            for watch, mask in masks.items()
        )


class Ignored(NamedTuple):
    """`step` was restored, and the command began at `first_step`."""

    step: int
    first_step: int

    @property
    def text(self) -> str:
        words = "the command began again at step %d beside the restored checkpoint of step %d, and opened no file of it"
        return words % (self.first_step, self.step)


class ResumeCheck:
    """Safe to use from every thread. `ran_s`: of the command, all its starts together; `total`: the newest one that it
    has reported."""

    def __init__(self, mode: Optional[str], ran_s: Callable[[], float], total: Callable[[], Optional[int]]) -> None:
        self._stops, self._ran_s, self._total = mode != WARN, ran_s, total
        self._lock = threading.Lock()
        self._pointer: Optional[Pointer] = None  # None: there is nothing to judge, or no more
        self._opens: Optional[Opens] = None
        self._first: Optional[int] = None
        self._step: Optional[int] = None
        self._from_s = 0.0  # of the command's time; a drill starts it again
        self.ignored: Optional[Ignored] = None

    @property
    def must_end(self) -> bool:
        return self._stops and self.ignored is not None

    @property
    def reported(self) -> Optional[Tuple[int, Optional[int]]]:
        """The step and total of the last report, for a checkpoint that is saved now; None = there was none."""
        step = self._step
        return None if step is None else (step, self._total())

    def restored(self, pointer: Optional[Pointer], folder: str, mount_kind: str) -> None:
        """Before the command starts. A checkpoint of an older agent does not say what was reported then."""
        self._settle()
        self._first = self._step = self.ignored = None
        self._from_s = self._ran_s()
        if pointer is None or not pointer.reported or pointer.reported < 0:
            return
        opens = Opens(tuple(_paths(folder, pointer)), mount_kind)
        if opens.is_watched:
            self._pointer, self._opens = pointer, opens

    def add(self, step: int, metrics: object = None, nonfinite: object = None) -> None:
        """One report. What was opened before it was written shows here."""
        with self._lock:
            self._step = step
            pointer = self._pending()
            if pointer is None or pointer.reported is None:
                return
            total = self._total()
            is_other_count = None not in (total, pointer.total) and total != pointer.total
            if is_other_count or step >= self._limit(pointer.reported):
                self._settle()
            elif self._first is None:
                self._first = step
            elif step > self._first:
                self.ignored = Ignored(pointer.step, self._first)
                _log.warning("%s", self.ignored.text)
                self._settle()

    def _limit(self, reported: int) -> float:
        """From which step on a report says that it goes on. Rare reports from the start are as far from each other as
        the first one is from 0; a first one at 0 or 1 may come before it takes up its count."""
        half = BELOW * reported
        if self._first is None or self._first <= 1:
            return half
        return min(reported, max(half, 2.0 * self._first + 1.0))

    def held(self) -> str:
        """Why a checkpoint of the command must not be used now; "" = it may be."""
        with self._lock:
            if self.ignored is not None:
                return self.ignored.text if self._stops else ""
            if self._pending() is None or not self._stops:
                return ""
            if self._ran_s() - self._from_s >= PENDING_S:
                self._settle()
                return ""
            return "the restored checkpoint was not opened, and no report shows yet that the command goes on from it"

    def _pending(self) -> Optional[Pointer]:
        if self._opens is not None and self._opens.look():
            self._settle()
        return self._pointer

    def _settle(self) -> None:
        if self._opens is not None:
            self._opens.close()
        self._pointer = self._opens = None


def _paths(folder: str, pointer: Pointer) -> Iterable[str]:
    """The restored files. Their folders are opened by the agent itself, whenever it looks for new checkpoints."""
    return (os.path.join(folder, *entry.name.split("/")) for entry in pointer.files)
