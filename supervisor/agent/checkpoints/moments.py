"""Which state of the results belongs to which checkpoint: the one at the moment when the checkpoint appeared.

The command goes on while a checkpoint is uploaded, and rows that it appends meanwhile belong to later steps: a resume
writes them again. So a thread waits for the kernel to tell of each rename and takes the results at once: the sizes of
all files first, then copies of those that changed since the last save, each up to the size that it had. What is
appended meanwhile is cut off that way; a file that is being rewritten is copied again until it is at rest. An entry
that is written in place tells no moment: its results are taken when it is first seen at rest.

The results folder is read as every plain file in it, and nothing that lies outside, wherever a link leads. The command
owns the folder and may turn any part of it into a link between two of our calls, so a file counts by where its open
descriptor really is, not by the name it was opened under.
"""

from __future__ import annotations

import hashlib
import logging
import os
import select
import shutil
import stat
import threading
import time
from contextlib import contextmanager, suppress
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from supervisor.agent.checkpoints.folder import Renames, is_checkpoint_name
from supervisor.agent.checkpoints.pruning import BEST
from supervisor.agent.store.reach import no_link
from supervisor.contract.runfiles import LeftOut, SavedFile

_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LEADS_OUT = "a link that leads out of the results folder is not followed"
WAIT_S = 1.0
TRIES = 3  # of a copy of a file that is being written
FORGOTTEN_MAX = 10_000
PENDING = 3  # moments whose checkpoint was not saved yet: the newest is the one that counts
_COARSE_NS = 50_000_000  # a file system's clock may stand still for so long: a change in it shows no new time
_CHUNK_BYTES = 1 << 20
_log = logging.getLogger("agent")


class LeadsOut(OSError):
    """A link leads out of the results folder."""


class Signature(NamedTuple):
    """As long as it is the same, so is the content, but for writes in the clock tick of the last one."""

    device: int
    inode: int
    size: int
    mtime_ns: int


class Listing(NamedTuple):
    """Names relative to the folder, sorted. `folders`: those with nothing in them."""

    files: Tuple[str, ...]
    folders: Tuple[str, ...]


class ResultsFolder:
    """Made before the command starts: what the folder's own path leads to then is what counts as inside."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._real = os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path)

    def listing(self) -> Listing:
        """Links to files are listed, links to folders are not followed. A folder that is gone holds nothing. OSError:
        it cannot be read, or it is no folder any more."""
        if not os.path.lexists(self.path):
            return Listing((), ())
        os.close(os.open(self.path, _FOLDER))
        files: List[str] = []
        folders: List[str] = []
        _list(self.path, "", files, folders)
        return Listing(tuple(sorted(files)), tuple(sorted(folders)))

    @contextmanager
    def opened(self, name: str) -> Iterator[Tuple[str, Signature]]:
        """(a path that leads to the open file whatever becomes of its name, its signature). LeadsOut, OSError."""
        descriptor = os.open(os.path.join(self.path, name), _OPEN)
        try:
            own = "/proc/self/fd/%d" % descriptor
            place = os.readlink(own)
            # A file that was removed or replaced meanwhile is shown with a mark behind its old place.
            if not place.startswith(self._real + "/"):
                raise LeadsOut(LEADS_OUT)
            seen = os.fstat(descriptor)
            if not stat.S_ISREG(seen.st_mode):
                raise OSError("it is no plain file")
            yield own, signature_of(seen)
        finally:
            os.close(descriptor)

    def empty(self) -> None:
        """A fresh folder, whatever lies there. OSError."""
        if os.path.islink(self.path) or os.path.isfile(self.path):
            os.unlink(self.path)
        with suppress(FileNotFoundError):
            shutil.rmtree(self.path)
        os.makedirs(self.path)


def signature_of(stat_result: os.stat_result) -> Signature:
    return Signature(stat_result.st_dev, stat_result.st_ino, stat_result.st_size, stat_result.st_mtime_ns)


def _list(folder: str, below: str, files: List[str], folders: List[str]) -> None:
    with os.scandir(os.path.join(folder, below)) as entries:
        names = 0
        for entry in entries:
            names += 1
            if entry.is_dir(follow_symlinks=False):
                _list(folder, below + entry.name + "/", files, folders)
            elif entry.is_file():
                files.append(below + entry.name)
    if below and not names:
        folders.append(below[:-1])


class Taken(NamedTuple):
    """One file at that moment: saved before (`saved`), copied (`copy`, `sha256`), or neither: it is read where it is.
    `signature` None: the next look must read it again."""

    name: str
    size: int
    signature: Optional[Signature]
    saved: Optional[SavedFile] = None
    copy: str = ""
    sha256: str = ""


class Moment(NamedTuple):
    files: Tuple[Taken, ...]  # the smallest first
    folders: Tuple[str, ...]
    left_out: Tuple[LeftOut, ...]
    staging: str = ""  # "": nothing was copied

    def drop(self) -> None:
        if self.staging:
            shutil.rmtree(self.staging, ignore_errors=True)


class Taker:
    """Takes moments. `saved` is what the store has, as the saver last said."""

    def __init__(
        self, folder: ResultsFolder, staging: str, max_bytes: int, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self.folder, self._staging, self._max_bytes = folder, staging, max_bytes
        self._now_ns = now_ns
        self._number = 0
        self.saved: Dict[str, Tuple[Signature, SavedFile]] = {}  # replaced as a whole, never changed

    def take(self) -> Moment:
        """With copies of what changed, up to `max_bytes` together; what is larger is left out. Never raises."""
        self._number += 1
        staging = os.path.join(self._staging, str(self._number))
        seen, folders, left_out = self._look()
        files: List[Taken] = []
        room = self._max_bytes
        for taken in seen:
            if taken.saved is not None:
                files.append(taken)
                continue
            if taken.size > room:
                limit = "%d bytes, more than was left of results_save_max_mb = %d"
                limit %= (taken.size, self._max_bytes // 10**6)
                left_out.append(LeftOut(taken.name, limit))
                continue
            target = os.path.join(staging, str(len(files)))
            try:
                os.makedirs(staging, exist_ok=True)
                copied = self._copied(taken, target)
            except OSError as error:
                left_out.append(LeftOut(taken.name, why(error)))
                with suppress(OSError):
                    os.unlink(target)  # the disk may be full
            else:
                files.append(copied)
                room -= copied.size
        return Moment(tuple(files), folders, tuple(left_out), staging)

    def at_rest(self) -> Moment:
        """Nobody writes any more: no copies, no limit."""
        seen, folders, left_out = self._look()
        return Moment(tuple(seen), folders, tuple(left_out))

    def _look(self) -> Tuple[List[Taken], Tuple[str, ...], List[LeftOut]]:
        """Files, the smallest first."""
        saved = self.saved
        try:
            listing = self.folder.listing()
        except OSError as error:
            return [], (), [LeftOut(".", "the folder cannot be read: %s" % why(error))]
        seen = []
        for name in listing.files:
            try:
                signature = signature_of(os.stat(os.path.join(self.folder.path, name)))
            except OSError:
                continue  # removed since it was listed
            before = saved.get(name)
            same = before is not None and before[0] == signature
            seen.append(Taken(name, signature.size, signature, before[1] if before is not None and same else None))
        return sorted(seen, key=lambda taken: (taken.size, taken.name)), listing.folders, []

    def _copied(self, taken: Taken, target: str) -> Taken:
        """OSError: it cannot be read, or it did not come to rest."""
        for _ in range(TRIES):
            with self.folder.opened(taken.name) as (path, begin):
                replaced = taken.signature is None or taken.signature.inode != begin.inode
                size = begin.size if replaced else min(taken.size, begin.size)
                sha256, copied = _copy(path, target, size)
                end = signature_of(os.stat(path))
            if copied == size and (end == begin or end.size > begin.size):
                trusted = end == begin and size == end.size and self._now_ns() - end.mtime_ns > _COARSE_NS
                return Taken(taken.name, size, end if trusted else None, copy=target, sha256=sha256)
            taken = taken._replace(signature=None)
        raise OSError("it was being written")


class Moments:
    """The moments of the checkpoints that were not saved yet. Safe to use from the two threads that do."""

    def __init__(self, renames: Renames, taker: Taker) -> None:
        self._renames = renames
        self._taker = taker
        self._lock = threading.Lock()
        self._names: Set[str] = set()
        # Renamed, and their moment is forgotten: later results are none of theirs.
        self._overtaken: Set[str] = set()
        self._pending: Dict[str, Tuple[Moment, bool]] = {}  # name -> (moment, told by a rename), oldest first

    def step(self) -> Optional[float]:
        """Wait for renames and take the results at once. None where renames cannot be seen."""
        descriptor = self._renames.descriptor
        if descriptor is None:
            return None
        select.select([descriptor], [], [], WAIT_S)
        self._drain()
        return 0.0

    def renamed(self) -> Set[str]:
        """Names that were moved into the checkpoint folder since the last call; their moments are taken."""
        self._drain()
        with self._lock:
            names, self._names = self._names, set()
        return names

    def at_rest(self, name: str) -> None:
        """This entry was seen twice without a change."""
        with self._lock:
            before = self._pending.get(name)
            has_moment = name in self._overtaken or (before is not None and before[1])
            if not name.startswith(BEST) and not has_moment:
                self._keep(name, False)

    def of(self, name: str) -> Moment:
        """The results at the moment of this checkpoint. It is the caller's to drop. ValueError: it is forgotten."""
        with self._lock:
            if name in self._overtaken:
                raise ValueError("newer ones have overtaken it")
            moment = self._pop(name)
            return self._taker.take() if moment is None else moment

    def forget(self, name: str) -> None:
        with self._lock:
            self._drop(name)
            self._overtaken.discard(name)

    def clear(self) -> None:
        """What has appeared so far was restored."""
        self.renamed()
        with self._lock:
            while self._pending:
                self._drop(next(iter(self._pending)))
            self._overtaken.clear()

    def _drain(self) -> None:
        with self._lock:
            names = self._renames.poll()
            self._names.update(names)
            wanted = [name for name in names if is_checkpoint_name(name) and not name.startswith(BEST)]
            if wanted:
                if len(self._overtaken) > FORGOTTEN_MAX:
                    self._overtaken.clear()  # entries that the training itself removed, unseen
                self._overtaken.update(wanted)
                self._keep(wanted[-1], True)

    def _keep(self, name: str, by_rename: bool) -> None:
        moment = self._taker.take()
        self._drop(name)
        self._pending[name] = (moment, by_rename)
        self._overtaken.discard(name)
        while len(self._pending) > PENDING:
            oldest = next(iter(self._pending))
            if self._pending[oldest][1]:
                self._overtaken.add(oldest)
            self._drop(oldest)

    def _drop(self, name: str) -> None:
        moment = self._pop(name)
        if moment is not None:
            moment.drop()

    def _pop(self, name: str) -> Optional[Moment]:
        pending = self._pending.pop(name, None)
        return None if pending is None else pending[0]


def _copy(source: str, target: str, size: int) -> Tuple[str, int]:
    """The first `size` bytes: (sha256, bytes copied)."""
    digest, copied = hashlib.sha256(), 0
    with open(source, "rb", buffering=0) as reader, open(target, "wb", buffering=0, opener=no_link) as writer:
        while copied < size:
            data = reader.read(min(_CHUNK_BYTES, size - copied))
            if not data:
                break
            digest.update(data)
            rest = memoryview(data)
            while rest:
                rest = rest[writer.write(rest) or 0 :]
            copied += len(data)
    return digest.hexdigest(), copied


def why(error: OSError) -> str:
    return error.strerror or str(error)
