"""Which state of the results belongs to which checkpoint: the snapshot at the moment when the checkpoint appeared.

The command continues while a checkpoint is uploaded. Rows that it appends meanwhile belong to later steps: a resume
writes them again. So a thread waits for the kernel to report each rename and takes a snapshot of the results at once:
the sizes of all files first, then copies of the files that changed since the last save, each up to its recorded size.
That cuts off later appends; a file that is being rewritten is copied again until it is at rest. A checkpoint that is
written in place has a moment, too: when its file is closed, or the last file of a folder that a known framework fills
(layouts.py). Where none is seen, the snapshot is taken when it is first seen at rest.

The results folder counts as all plain files in it, and nothing outside, wherever a link leads. The command owns the
folder and may turn any part of it into a link between two of our calls, so a file counts by the real place of its open
descriptor, not by the name it was opened under.
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

from supervisor.agent.checkpoints.folder import BEST, Renames, is_checkpoint_name
from supervisor.agent.store.access import open_no_link
from supervisor.contract.runfiles import LeftOut, SavedFile

LEADS_OUT = "a link that leads out of the results folder is not followed"
WAIT_S = 10.0  # for a rename; nothing else wakes this thread, and the process does not wait for it
TRIES = 3  # of a copy of a file that is being written
MAX_OVERTAKEN = 10_000
IN_PLACE_SHARE = 20.0  # snapshots of what is written in place take no more than this part of the time
PENDING = 3  # snapshots of checkpoints that are not saved yet: the newest is the one that counts
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_COARSE_NS = 50_000_000  # a file system's clock may stand still this long: a change within it shows no new time
_CHUNK_BYTES = 1 << 20
_log = logging.getLogger("agent")


class LeadsOut(OSError):
    """A link leads out of the results folder."""


class Signature(NamedTuple):
    """An equal signature means equal content, except for writes in the clock tick of the last one."""

    device: int
    inode: int
    size: int
    mtime_ns: int


class Listing(NamedTuple):
    """Names relative to the folder, sorted. `folders`: the empty ones."""

    files: Tuple[str, ...]
    folders: Tuple[str, ...]


class ResultsFolder:
    """Made before the command starts: the real path of the folder at that time decides what counts as inside."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._real = os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path)

    def listing(self) -> Listing:
        """Links to files are listed, links to folders are not followed. A missing folder is empty. OSError: it cannot
        be read, or it is not a folder any more."""
        if not os.path.lexists(self.path):
            return Listing((), ())
        os.close(os.open(self.path, _FOLDER))
        files: List[str] = []
        folders: List[str] = []
        for path, subfolders, names in os.walk(self.path, onerror=_raise):
            below = path[len(self.path) + 1 :]
            files.extend(os.path.join(below, name) for name in names if os.path.isfile(os.path.join(path, name)))
            if below and not subfolders and not names:
                folders.append(below)
        return Listing(tuple(sorted(files)), tuple(sorted(folders)))

    @contextmanager
    def opened(self, name: str) -> Iterator[Tuple[str, Signature]]:
        """(a path to the open file that stays valid whatever happens to its name, its signature). LeadsOut, OSError."""
        descriptor = os.open(os.path.join(self.path, name), _OPEN)
        try:
            descriptor_path = "/proc/self/fd/%d" % descriptor
            # The link of a file that was removed or replaced meanwhile shows the old path with a mark behind it.
            if not os.readlink(descriptor_path).startswith(self._real + "/"):
                raise LeadsOut(LEADS_OUT)
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError("it is no plain file")
            yield descriptor_path, signature_of(status)
        finally:
            os.close(descriptor)

    def empty(self) -> None:
        """Make a new folder, whatever is there now. OSError."""
        if os.path.islink(self.path) or os.path.isfile(self.path):
            os.unlink(self.path)
        with suppress(FileNotFoundError):
            shutil.rmtree(self.path)
        os.makedirs(self.path)


def _raise(error: OSError) -> None:
    raise error


def signature_of(status: os.stat_result) -> Signature:
    return Signature(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class SnapshotFile(NamedTuple):
    """One file at that moment: in the store already (`saved`), copied (`copy`, `sha256`), or neither: then it is read
    in the results folder. `signature` None: the next snapshot must read it again."""

    name: str
    size: int
    signature: Optional[Signature]
    saved: Optional[SavedFile] = None
    copy: str = ""
    sha256: str = ""


class Snapshot(NamedTuple):
    files: Tuple[SnapshotFile, ...]  # the smallest first
    folders: Tuple[str, ...]
    left_out: Tuple[LeftOut, ...]
    staging: str = ""  # the folder with the copies; "": there are none

    def drop(self) -> None:
        if self.staging:
            shutil.rmtree(self.staging, ignore_errors=True)


class SnapshotTaker:
    """`saved`: the files that are in the store, according to the saver."""

    def __init__(
        self, folder: ResultsFolder, staging: str, max_bytes: int, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self.folder, self._staging, self._max_bytes = folder, staging, max_bytes
        self._now_ns = now_ns
        self._number = 0
        self.saved: Dict[str, Tuple[Signature, SavedFile]] = {}  # replaced as a whole, never changed

    def take(self) -> Snapshot:
        """With copies of the changed files, up to `max_bytes` in all; larger files are left out. Never raises."""
        self._number += 1
        staging = os.path.join(self._staging, str(self._number))
        present = self.without_copies()
        files: List[SnapshotFile] = []
        left_out = list(present.left_out)
        free_bytes = self._max_bytes
        for file in present.files:
            if file.saved is not None:
                files.append(file)
                continue
            try:
                files.append(self._copied(file, os.path.join(staging, str(len(files))), free_bytes))
                free_bytes -= files[-1].size
            except OSError as error:
                left_out.append(LeftOut(file.name, why(error)))
        return Snapshot(tuple(files), present.folders, tuple(left_out), staging)

    def without_copies(self) -> Snapshot:
        """For a time when no process writes any more; there is no limit of size either. Never raises."""
        saved = self.saved
        try:
            listing = self.folder.listing()
        except OSError as error:
            return Snapshot((), (), (LeftOut(".", "the folder cannot be read: %s" % why(error)),))
        files = []
        for name in listing.files:
            try:
                signature = signature_of(os.stat(os.path.join(self.folder.path, name)))
            except OSError:
                continue  # removed since it was listed
            saved_signature, saved_file = saved.get(name, (None, None))
            unchanged_file = saved_file if saved_signature == signature else None
            files.append(SnapshotFile(name, signature.size, signature, unchanged_file))
        return Snapshot(tuple(sorted(files, key=lambda file: (file.size, file.name))), listing.folders, ())

    def _copied(self, file: SnapshotFile, target: str, free_bytes: int) -> SnapshotFile:
        """OSError: it is too large, it cannot be read, or it did not come to rest."""
        if file.size > free_bytes:
            limit_mb = self._max_bytes // 10**6
            raise OSError("%d bytes, more than was left of results_save_max_mb = %d" % (file.size, limit_mb))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        try:
            for _ in range(TRIES):
                with self.folder.opened(file.name) as (path, begin):
                    replaced = file.signature is None or file.signature.inode != begin.inode
                    size = begin.size if replaced else min(file.size, begin.size)
                    sha256, copied = _copy(path, target, size)
                    end = signature_of(os.stat(path))
                if copied == size and (end == begin or end.size > begin.size):
                    trusted = end == begin and size == end.size and self._now_ns() - end.mtime_ns > _COARSE_NS
                    return SnapshotFile(file.name, size, end if trusted else None, copy=target, sha256=sha256)
                file = file._replace(signature=None)
            raise OSError("it was being written")
        except OSError:
            with suppress(OSError):
                os.unlink(target)  # the disk may be full
            raise


class Snapshots:
    """The snapshots of the checkpoints that are not saved yet. Safe to use from both threads that use it."""

    def __init__(self, renames: Renames, taker: SnapshotTaker) -> None:
        self._renames = renames
        self._taker = taker
        self._lock = threading.Lock()
        self._names: Set[str] = set()
        # Renamed checkpoints without a snapshot: later results do not belong to them.
        self._overtaken: Set[str] = set()
        self._pending: Dict[str, Tuple[Snapshot, bool]] = {}  # name -> (snapshot, by an event), oldest first
        self._next_in_place = 0.0
        self._in_place_ns: Dict[str, int] = {}  # name -> wall time of its snapshot

    def step(self) -> Optional[float]:
        """Wait for renames and take a snapshot at once. None where renames cannot be watched."""
        descriptor = self._renames.descriptor
        if descriptor is None:
            return None
        select.select([descriptor], [], [], WAIT_S)
        self._drain()
        return 0.0

    def renamed(self) -> Set[str]:
        """Names that were moved into the checkpoint folder since the last call; their snapshots are taken."""
        self._drain()
        with self._lock:
            names, self._names = self._names, set()
        return names

    def at_rest(self, name: str, changed_ns: int = 0) -> None:
        """This entry was seen twice without a change. `changed_ns`: of its last one. A file that stayed open may have
        changed since it was closed before."""
        with self._lock:
            _, by_event = self._pending.get(name, (None, False))
            has_moment = by_event and changed_ns <= self._in_place_ns.get(name, changed_ns)
            if not name.startswith(BEST) and name not in self._overtaken and not has_moment:
                self._take(name, False)

    def of(self, name: str) -> Snapshot:
        """The results at the moment of this checkpoint. The caller must drop it. ValueError: there is none any more."""
        with self._lock:
            if name in self._overtaken:
                raise ValueError("newer ones have overtaken it")
            pending = self._pending.pop(name, None)
            return self._taker.take() if pending is None else pending[0]

    def forget(self, name: str) -> None:
        with self._lock:
            self._drop(name)
            self._overtaken.discard(name)

    def clear(self) -> None:
        """Everything so far was restored."""
        self.renamed()
        with self._lock:
            for name in list(self._pending):
                self._drop(name)
            self._overtaken.clear()

    def _drain(self) -> None:
        with self._lock:
            names = self._renames.poll()
            moved = [name for name in names if not name.endswith("/")]
            self._names.update(moved)
            checkpoints = [name for name in moved if is_checkpoint_name(name) and not name.startswith(BEST)]
            if checkpoints:
                if len(self._overtaken) > MAX_OVERTAKEN:
                    self._overtaken.clear()  # entries that the training itself removed, unseen
                self._overtaken.update(checkpoints)
                self._take(checkpoints[-1], True)
            if names and names[-1].endswith("/"):
                self._take_in_place(names[-1].rstrip("/"))

    def _take_in_place(self, name: str) -> None:
        """It was written in place just now, perhaps completely. A training may do so all the time: then the snapshot
        waits until the entry is at rest."""
        if not is_checkpoint_name(name) or name.startswith(BEST):
            return
        began = time.monotonic()
        if began >= self._next_in_place:
            self._take(name, True)
            self._in_place_ns[name] = time.time_ns()
            self._next_in_place = began + IN_PLACE_SHARE * (time.monotonic() - began)
        else:
            self._drop(name)

    def _take(self, name: str, by_event: bool) -> None:
        snapshot = self._taker.take()
        self._drop(name)
        self._pending[name] = (snapshot, by_event)
        self._overtaken.discard(name)
        while len(self._pending) > PENDING:
            oldest = next(iter(self._pending))
            if self._pending[oldest][1]:
                self._overtaken.add(oldest)
            self._drop(oldest)

    def _drop(self, name: str) -> None:
        self._in_place_ns.pop(name, None)
        if name in self._pending:
            self._pending.pop(name)[0].drop()


def _copy(source: str, target: str, size: int) -> Tuple[str, int]:
    """The first `size` bytes: (sha256, bytes copied)."""
    digest, copied = hashlib.sha256(), 0
    with open(source, "rb", buffering=0) as reader, open(target, "wb", opener=open_no_link) as writer:
        while copied < size:
            data = reader.read(min(_CHUNK_BYTES, size - copied))
            if not data:
                break
            digest.update(data)
            copied += writer.write(data)
    return digest.hexdigest(), copied


def why(error: OSError) -> str:
    return error.strerror or str(error)
