"""The checkpoint folder: which of its entries are complete and new (RULES section 7).

An entry is one file or folder directly in it. An entry that appeared by rename is complete at once; an entry that is
written in place counts when it has not changed for `rest_s`; `.x`, `*.tmp` and `*.part` never count. Its signature
describes its content, so the same content is never offered twice. The kernel itself reports renames (inotify), because
on a fast disk a rename happens in the clock tick of the last write, and no timestamp shows it. Without inotify every
entry counts as written in place.
"""

from __future__ import annotations

import ctypes
import logging
import os
import stat
import struct
import time
from dataclasses import dataclass
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

Signature = Tuple[Tuple[str, int, int, int], ...]  # per file: name relative to the folder, inode, bytes, mtime ns
BEST = "best"
_IN_MOVED_TO = 0x00000080
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


@dataclass
class _Entry:
    signature: Signature
    since: float
    began: float
    renamed: bool = False
    at_rest: bool = False
    done: bool = False


class CheckpointFolder:
    """Remembers the entries of one folder. `renamed` returns the names that were moved in since its last call;
    `at_rest` gets each name that was seen twice with the same new content."""

    def __init__(
        self,
        folder: str,
        rest_s: float,
        renamed: Callable[[], Set[str]],
        at_rest: Callable[[str], None] = lambda name: None,
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
            if not entry.done and (entry.renamed or all_at_rest or now - entry.since >= self.rest_s)
        ]
        return sorted(candidates, key=lambda c: (max(row[3] for row in c.signature), c.name))

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
                entry = self._entries[name] = _Entry(signature, now, began)
                self.changed_at = now
                self.seen_at = self.seen_at if name.startswith(BEST) else now
            elif not entry.done and not entry.at_rest:
                entry.at_rest = True
                self._at_rest(name)
            entry.renamed = entry.renamed or name in renamed

    def _names(self) -> List[str]:
        """Empty when the training has removed the folder or replaced it with a link. The agent does not create it again
        while the training runs, because the training's own next step may do that and fail if the folder exists."""
        if os.path.islink(self.path):
            return []
        try:
            return [name for name in os.listdir(self.path) if is_checkpoint_name(name)]
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
    """Watches one folder from its construction on. `descriptor`: readable when there are events; None: renames cannot
    be watched."""

    def __init__(self, folder: str) -> None:
        self.descriptor: Optional[int] = None
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if descriptor < 0:
                raise OSError(ctypes.get_errno(), "inotify_init1")
            self.descriptor = descriptor
            if libc.inotify_add_watch(descriptor, os.fsencode(folder), _IN_MOVED_TO) < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch")
        except (OSError, AttributeError) as error:
            _log.warning("renames cannot be watched (%s): checkpoints are saved when they no longer change", error)
            self.close()

    def poll(self) -> List[str]:
        """Names that were moved into the folder since the last call, in order. Never blocks; empty when renames cannot
        be watched."""
        names: List[str] = []
        while self.descriptor is not None:
            try:
                raw = os.read(self.descriptor, 65536)
            except BlockingIOError:
                break
            offset = 0
            while offset < len(raw):
                _, _, _, length = _EVENT.unpack_from(raw, offset)
                offset += _EVENT.size
                name = raw[offset : offset + length].rstrip(b"\0")
                offset += length
                if name:  # else an event of the queue itself
                    names.append(os.fsdecode(name))
        return names

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
