"""The checkpoint folder: which entries are complete and new, and what is brought back into it (RULES section 7).

An entry is one file or folder directly in it. One that appeared by rename is complete at once; one that is written in
place counts when it has not changed for `rest_s`; `.x`, `*.tmp` and `*.part` never count. Its signature says what an
entry holds, so the same content is never offered twice. The kernel itself names what was renamed (inotify): on a fast
disk a rename happens in the clock tick of the last write, and no time shows it. Where there is no inotify every name
counts as written in place.

Brought back is the newest checkpoint that a pointer names and that verifies. One that does not verify is dropped from
the baton and the one before it is used, after the last of the newest ones the milestones from the newest down; the beat
says so. A store that does not answer is waited for: a training that starts from zero because a read failed loses
everything.
"""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import stat
import struct
import time
from dataclasses import dataclass
from functools import partial
from typing import Callable, Dict, Iterator, List, Optional, Set, Tuple

from supervisor.agent.store.reach import BatonKeeper, Mismatch, Patience, download
from supervisor.contract import baton as rules
from supervisor.contract.baton import Baton, FileEntry, Pointer
from supervisor.contract.stores.promise import ObjectStore

Signature = Tuple[Tuple[str, int, int, int], ...]  # per file: name relative to the folder, inode, bytes, mtime ns
_IN_MOVED_TO = 0x00000080
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_log = logging.getLogger("agent")
INCOMING = ".incoming"  # below the checkpoint folder; a leading dot is never taken for a checkpoint


@dataclass(frozen=True)
class Candidate:
    """`in_place`: it was not seen to appear by rename, so it may be written on while it is being copied."""

    name: str
    signature: Signature
    in_place: bool

    @property
    def files(self) -> Tuple[str, ...]:
        """Names relative to the checkpoint folder, with `/` between parts."""
        return tuple(row[0] for row in self.signature)


@dataclass
class _Entry:
    signature: Signature
    since: float
    renamed: bool = False
    at_rest: bool = False
    done: bool = False


class CheckpointFolder:
    """Remembers what it has seen of one folder. `renamed` tells names that were moved in since it was last asked;
    `at_rest` gets each name that was seen twice with the same new content."""

    def __init__(
        self,
        folder: str,
        rest_s: float,
        renamed: Callable[[], Set[str]],
        at_rest: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.path = folder
        self._rest_s, self._renamed, self._at_rest = rest_s, renamed, at_rest
        self._entries: Dict[str, _Entry] = {}
        self.scan_s = 0.0  # what the last look at the folder took

    def ignore_present(self) -> None:
        """What lies there now was restored: it is no news."""
        self._renamed()
        for name in self._names():
            signature = self.signature(name)
            if signature is not None:
                self._entries[name] = _Entry(signature, 0.0, done=True)

    def ready(self, now: float, all_at_rest: bool = False) -> List[Candidate]:
        """New complete entries, the newest last. `all_at_rest`: nobody is left who could write."""
        began = time.monotonic()
        self._look(now)
        self.scan_s = time.monotonic() - began
        candidates = [
            Candidate(name, entry.signature, not entry.renamed)
            for name, entry in self._entries.items()
            if not entry.done and (entry.renamed or all_at_rest or now - entry.since >= self._rest_s)
        ]
        return sorted(candidates, key=lambda c: (max(row[3] for row in c.signature), c.name))

    def done(self, candidate: Candidate) -> None:
        """This content needs no further look; the same name with another content does."""
        entry = self._entries.get(candidate.name)
        if entry is not None and entry.signature == candidate.signature:
            entry.done = True

    def signature(self, name: str) -> Optional[Signature]:
        """What the entry holds now; None when it holds no file (any more)."""
        if os.path.islink(self.path):
            return None  # what lies behind it is not the run's
        try:
            rows = tuple(_rows(self.path, name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return rows or None

    def _look(self, now: float) -> None:
        renamed = self._renamed()
        names = set(self._names())
        for gone in set(self._entries) - names:
            del self._entries[gone]
        for name in names:
            signature = self.signature(name)
            if signature is None:
                self._entries.pop(name, None)
                continue
            entry = self._entries.get(name)
            if entry is None or entry.signature != signature:
                entry = self._entries[name] = _Entry(signature, now)
            elif not entry.done and not entry.at_rest:
                entry.at_rest = True
                self._at_rest(name)
            entry.renamed = entry.renamed or name in renamed

    def _names(self) -> List[str]:
        """None where the training took the folder away, or put a link in its place. It is not made anew while the
        training runs: that is the training's own next step, and may not find it done."""
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
    seen = os.lstat(path)  # a link, such as `latest`, is no checkpoint of its own
    if stat.S_ISREG(seen.st_mode):
        yield name, seen.st_ino, seen.st_size, seen.st_mtime_ns
    elif stat.S_ISDIR(seen.st_mode):
        for below in sorted(os.listdir(path)):
            if is_checkpoint_name(below):
                yield from _rows(folder, name + "/" + below)


class Renames:
    """Watches one folder from its construction on. `descriptor`: readable when there is news; None: it cannot tell."""

    def __init__(self, folder: str) -> None:
        self.descriptor: Optional[int] = None
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            descriptor = libc.inotify_init1(_FLAGS)
            if descriptor < 0:
                raise OSError(ctypes.get_errno(), "inotify_init1")
            self.descriptor = descriptor
            if libc.inotify_add_watch(descriptor, os.fsencode(folder), _IN_MOVED_TO) < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch")
        except (OSError, AttributeError) as error:
            _log.warning("renames cannot be seen (%s): checkpoints are taken when they have been at rest", error)
            self.close()

    def poll(self) -> List[str]:
        """Names that were moved into the folder since the last call, in order. Never blocks; empty when it cannot
        tell."""
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


class Restorer:
    """Restores into `folder`. `reject` gets each step that does not verify, with a short text for the beat."""

    def __init__(
        self,
        store: ObjectStore,
        keeper: BatonKeeper,
        holder: Tuple[str, str],  # (launch id, machine id)
        *,
        folder: str,
        patience: Patience,
        reject: Callable[[int, str], None],
    ) -> None:
        self._store, self._keeper, self._holder, self._folder = store, keeper, holder, folder
        self._patience, self._reject = patience, reject

    def restore(self, baton: Baton) -> Optional[Pointer]:
        """The checkpoint that now lies in the folder, None when the baton names none that verifies.

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
                baton = self._patience.insist(
                    "dropping a checkpoint", partial(self._keeper.change, partial(self._drop, pointer))
                )
            else:
                return pointer
        return None

    def _drop(self, rejected: Pointer, baton: Baton) -> Baton:
        """Only the one that was rejected: when an answer was lost the next one must not go too."""
        return rules.drop_checkpoint(baton, *self._holder) if baton.checkpoint == rejected else baton

    def _fetch(self, pointer: Pointer) -> None:
        """Everything verified first, then each top entry by one rename."""
        incoming = os.path.join(self._folder, INCOMING)
        shutil.rmtree(incoming, ignore_errors=True)
        os.makedirs(incoming)
        try:
            for entry in pointer.files:
                self._fetch_file(pointer.prefix, entry, incoming)
            for name in os.listdir(incoming):
                target = os.path.join(self._folder, name)
                if os.path.isdir(target):
                    shutil.rmtree(target)
                os.rename(os.path.join(incoming, name), target)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)

    def _fetch_file(self, prefix: str, entry: FileEntry, folder: str) -> None:
        if not is_plain(entry.name):
            raise Mismatch("%r is not a path inside the checkpoint folder" % entry.name)
        path = os.path.join(folder, entry.name)

        def between() -> None:
            self._patience.check("restoring")

        self._patience.insist("restoring", lambda: download(self._store, prefix, path, entry, between))


def is_plain(name: str) -> bool:
    """True for a relative path that stays below its folder and that is not hidden."""
    parts = name.split("/")
    return bool(name) and "\x00" not in name and not any(part in {"", ".", ".."} for part in parts)
