"""Which entries of the checkpoint folder are complete and new (RULES section 7).

An entry is one file or folder directly in it. One that appeared by rename is complete at once; one that is written in
place counts when it has not changed for `rest_s`; `.x`, `*.tmp` and `*.part` never count. What an entry holds is told
by its signature, so the same content is never offered twice.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from typing import Callable, Dict, Iterator, List, Optional, Set, Tuple

Signature = Tuple[
    Tuple[str, int, int, int], ...
]  # per file: name relative to the folder, inode, bytes, mtime ns


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
        self._rest_s = rest_s
        self._renamed = renamed
        self._at_rest = at_rest
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
        found = [
            Candidate(name, entry.signature, not entry.renamed)
            for name, entry in self._entries.items()
            if not entry.done and (entry.renamed or all_at_rest or now - entry.since >= self._rest_s)
        ]
        return sorted(found, key=lambda c: (max(row[3] for row in c.signature), c.name))

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
