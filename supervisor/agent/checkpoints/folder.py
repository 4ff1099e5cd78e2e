"""The checkpoint folder: which of its entries are complete and new (RULES section 7).

An entry is one file or folder directly in it. An entry that appeared by rename is complete at once, and so is a folder
whose framework has written its last file (layouts.py); another entry that is written in place counts when it has not
changed for `rest_s`; `.x`, `*.tmp` and `*.part` never count, and neither does what is seen to be unfinished. Its
signature describes its content, so the same content is never offered twice. The kernel itself reports renames
(inotify), because on a fast disk a rename happens in the clock tick of the last write, and no timestamp shows it.
Without inotify every entry counts as written in place.
"""

from __future__ import annotations

import ctypes
import logging
import os
import stat
import struct
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from supervisor.agent.checkpoints import layouts

Signature = Tuple[Tuple[str, int, int, int], ...]  # per file: name relative to the folder, inode, bytes, mtime ns
BEST = "best"
_IN_CLOSE_WRITE, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x00000008, 0x00000080, 0x00000100, 0x00000200
_IN_IGNORED, _IN_ONLYDIR, _IN_DONT_FOLLOW, _IN_ISDIR = 0x00008000, 0x01000000, 0x02000000, 0x40000000
_BELOW = _IN_CLOSE_WRITE | _IN_MOVED_TO | _IN_DELETE | _IN_ONLYDIR | _IN_DONT_FOLLOW
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_log = logging.getLogger("agent")


class Candidate(NamedTuple):
    """`in_place`: no rename was seen, so a process may still write to it while it is copied. `written_s`: between the
    first and the last change that a scan saw. `since`: of the last one, by the clock of the scans."""

    name: str
    signature: Signature
    in_place: bool
    written_s: float = 0.0
    since: float = 0.0

    @property
    def changed_at(self) -> float:
        """Wall time of the last change of a file."""
        return max(row[3] for row in self.signature) / 1e9

    @property
    def files(self) -> Tuple[str, ...]:
        """Names relative to the checkpoint folder, with `/` between parts."""
        return tuple(row[0] for row in self.signature)


class _Entry:
    renamed = at_rest = False
    unfinished: Optional[str] = None  # why it must not be taken; "" = nothing is wrong; None = not looked at yet

    def __init__(
        self, signature: Signature, since: float, began: float, *, done: bool = False, sealed: bool = False
    ) -> None:
        """`sealed`: its framework has written its last file."""
        self.signature, self.since, self.began, self.done, self.sealed = signature, since, began, done, sealed


class CheckpointFolder:
    """Remembers the entries of one folder. `renamed` returns the names that were moved in since its last call;
    `at_rest` gets each name that was seen twice with the same new content, and when that was written."""

    def __init__(
        self,
        folder: str,
        rest_s: float,
        renamed: Callable[[], Set[str]],
        at_rest: Callable[[str, int], None] = lambda name, changed_ns: None,
    ) -> None:
        self.path = folder
        self.rest_s, self._renamed, self._at_rest = rest_s, renamed, at_rest
        self._entries: Dict[str, _Entry] = {}
        self.scan_s = 0.0  # how long the last scan took
        self.pending = False  # some entry is new: written just now, or not saved yet
        self.changed_at: Optional[float] = None  # when an entry was last new; at first: of the first scan
        self.seen_at: Optional[float] = None  # the same of one that a resume may start from; None = there was none

    def ignore_present(self) -> None:
        """The present entries were restored: they are not new."""
        self._renamed()
        for name in self._names():
            signature = self.signature(name)
            if signature is not None:
                self._entries[name] = _Entry(signature, 0.0, 0.0, done=True)

    def ready(self, now: float, all_at_rest: bool = False) -> List[Candidate]:
        """New complete entries, the newest last. `all_at_rest`: no process is left that could write."""
        started = time.monotonic()
        self.changed_at = now if self.changed_at is None else self.changed_at
        self._scan(now)
        self.scan_s = time.monotonic() - started
        self.pending = not all(entry.done for entry in self._entries.values())
        candidates = [
            Candidate(name, entry.signature, not entry.renamed, entry.since - entry.began, entry.since)
            for name, entry in self._entries.items()
            if not entry.done and self._is_whole(name, entry, all_at_rest or now - entry.since >= self.rest_s)
        ]
        return sorted(candidates, key=lambda c: (max(row[3] for row in c.signature), c.name))

    def _is_whole(self, name: str, entry: _Entry, rests: bool) -> bool:
        if not (entry.renamed or entry.sealed or rests):
            return False
        if entry.unfinished is None:
            contents = not entry.renamed
            entry.unfinished = layouts.why_unfinished(self.path, entry.signature, contents)
            if entry.unfinished:
                _log.info("checkpoint %s is not taken: %s", name, entry.unfinished)
        return not entry.unfinished

    def done(self, candidate: Candidate) -> None:
        """This content needs no further attention; another content of the same name does."""
        entry = self._entries.get(candidate.name)
        if entry is not None and entry.signature == candidate.signature:
            entry.done = True

    def signature(self, name: str) -> Optional[Signature]:
        """The present content of the entry; None when it holds no file (any more)."""
        if os.path.islink(self.path):
            return None  # the target of the link does not belong to the run
        try:
            return tuple(_rows(self.path, name)) or None
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _scan(self, now: float) -> None:
        renamed = self._renamed()
        names = set(self._names())
        for removed in set(self._entries) - names:
            del self._entries[removed]
        for name in names:
            signature = self.signature(name)
            if signature is None:
                self._entries.pop(name, None)
                continue
            entry = self._entries.get(name)
            if entry is None or entry.signature != signature:
                began = now if entry is None or entry.done or name in renamed else entry.began
                entry = self._entries[name] = _Entry(signature, now, began, sealed=layouts.is_sealed(signature))
                self.changed_at = now
                self.seen_at = self.seen_at if name.startswith(BEST) else now
            elif not entry.done and not entry.at_rest:
                entry.at_rest = True
                self._at_rest(name, max(row[3] for row in signature))
            entry.renamed = entry.renamed or name in renamed

    def _names(self) -> List[str]:
        """Empty when the training has removed the folder or replaced it with a link. The agent does not create it again
        while the training runs, because the training's own next step may do that and fail if the folder exists."""
        if os.path.islink(self.path):
            return []
        try:
            names = [name for name in os.listdir(self.path) if is_checkpoint_name(name)]
            return layouts.checkpoints_of(self.path, names)
        except (FileNotFoundError, NotADirectoryError):
            return []


def is_checkpoint_name(name: str) -> bool:
    """False for hidden names, for names of unfinished files, and for names that are not UTF-8."""
    if name.startswith(".") or name.endswith((".tmp", ".part")):
        return False
    try:
        return bool(name.encode("utf-8"))
    except UnicodeEncodeError:
        return False


def _rows(folder: str, name: str) -> Iterator[Tuple[str, int, int, int]]:
    """One row per plain file of the entry, sorted; hidden and unfinished files inside it are left out."""
    path = os.path.join(folder, name)
    status = os.lstat(path)  # a link, such as `latest`, is not a checkpoint
    if stat.S_ISREG(status.st_mode):
        yield name, status.st_ino, status.st_size, status.st_mtime_ns
    elif stat.S_ISDIR(status.st_mode):
        for below in sorted(os.listdir(path)):
            if is_checkpoint_name(below):
                yield from _rows(folder, name + "/" + below)


class Renames:
    """Watches one folder from its construction on, and the folders in it for their last file. `descriptor`: readable
    when there are events; None: nothing can be watched."""

    def __init__(self, folder: str) -> None:
        self.descriptor: Optional[int] = None
        self._folder = folder
        self._below: Dict[int, str] = {}  # watch -> name of the folder in it
        try:
            self._libc = ctypes.CDLL(None, use_errno=True)
            descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if descriptor < 0:
                raise OSError(ctypes.get_errno(), "inotify_init1")
            self.descriptor = descriptor
            if self._watch(folder, _IN_MOVED_TO | _IN_CREATE | _IN_CLOSE_WRITE) < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch")
        except (OSError, AttributeError) as error:
            _log.warning("renames cannot be watched (%s): checkpoints are saved when they no longer change", error)
            self.close()

    def poll(self) -> List[str]:
        """Names that were moved into the folder since the last call, in order; with `/` behind it the name of an entry
        that was written in place just now: a file that was closed, a folder that got its last file. Never blocks; empty
        when nothing can be watched."""
        names: List[str] = []
        while self.descriptor is not None:
            try:
                raw = os.read(self.descriptor, 65536)
            except BlockingIOError:
                break
            offset = 0
            while offset < len(raw):
                watch, mask, _, length = _EVENT.unpack_from(raw, offset)
                offset += _EVENT.size
                name = os.fsdecode(raw[offset : offset + length].rstrip(b"\0"))
                offset += length
                names.extend(self._names_of(watch, mask, name))
        return self._checkpoints_of(names) if names else names

    def _checkpoints_of(self, names: List[str]) -> List[str]:
        """Without what lies beside checkpoints: a model's files must not overtake the checkpoint before them."""
        try:
            listed = os.listdir(self._folder)
        except OSError:
            return names
        beside = set(listed).difference(layouts.checkpoints_of(self._folder, listed))
        return [name for name in names if name.rstrip("/") not in beside]

    def _names_of(self, watch: int, mask: int, name: str) -> Iterator[str]:
        folder = self._below.get(watch)
        if mask & _IN_IGNORED:
            self._below.pop(watch, None)  # the folder is gone
        elif folder is not None:
            wrote_last = name in layouts.LAST_FILES and not mask & _IN_DELETE
            if wrote_last or (name == layouts.MARKER and mask & _IN_DELETE):
                yield from self._sealed(folder)
        elif name:  # else an event of the queue itself
            if mask & (_IN_MOVED_TO | _IN_CLOSE_WRITE):
                yield name if mask & _IN_MOVED_TO else name + "/"
            if mask & _IN_ISDIR and is_checkpoint_name(name):
                below = self._watch(os.path.join(self._folder, name), _BELOW)
                if below >= 0:
                    self._below[below] = name
                    if not mask & _IN_MOVED_TO:
                        yield from self._sealed(name)  # written before the watch began

    def _sealed(self, name: str) -> Iterator[str]:
        path = os.path.join(self._folder, name)
        has_last = any(os.path.exists(os.path.join(path, last)) for last in layouts.LAST_FILES)
        if has_last and not os.path.exists(os.path.join(path, layouts.MARKER)):
            yield name + "/"

    def _watch(self, path: str, events: int) -> int:
        """The number of the watch, below 0 where there is none."""
        return int(self._libc.inotify_add_watch(self.descriptor, os.fsencode(path), events))

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
