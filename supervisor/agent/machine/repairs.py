"""The repair after a full disk: what the run itself calls `scratch` is removed, and nothing else.

A glob names files; one that ends with `/` names folders, which are removed with their content. Parts of a path are
opened one below the other, each relative to the open folder above it, and no link is ever followed: so a link, or a
rename in the middle of the work, leads nowhere else. Always kept: the folders of checkpoints and results and everything
else of the agent, the newest checkpoints under whatever folder they have a copy, `best*`, folders of other machines,
what a link in checkpoints or results points to, the object store, and every other mount than the one where the part of
the glob without wildcards ends.

There is no state besides the files, so a repair that was killed can be repeated. It ends at its deadline.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
import time
from contextlib import contextmanager, suppress
from typing import Any, Callable, Dict, FrozenSet, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple
from urllib.parse import unquote, urlsplit

from supervisor.agent.machine.downloads import PART, kept_files
from supervisor.agent.machine.folder import MachineFolder, read_fields
from supervisor.agent.machine.job import Job
from supervisor.contract import scratch

SECONDS, HURRIED_S = 10.0, 1.0  # the second: before a preemption, where the uploads need the time
GRACE_S, CHECK_S = 1.0, 0.05  # a call that hangs in the kernel is left behind
DEPTH, LINKS = 64, 10_000
BEST = "best"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MACHINE = ("job.json", "agent.json")  # a folder with both belongs to a machine
Identity = Tuple[int, int]  # device and inode


class _Over(Exception):
    """The time is over."""


class Repaired(NamedTuple):
    """`files`: removed, of which the disk has each back. `freed_bytes`: what they used. `kept`: entries that a glob
    names and that are never removed. `complete` False: the time was too short."""

    files: int = 0
    freed_bytes: int = 0
    kept: int = 0
    complete: bool = False


class _Tally:
    """The same while a repair runs."""

    files = freed_bytes = kept = 0
    complete = False

    def so_far(self) -> Repaired:
        return Repaired(self.files, self.freed_bytes, self.kept, self.complete)


class Guard(NamedTuple):
    """What is kept, whatever a glob says."""

    ids: FrozenSet[Identity]
    names: FrozenSet[str]

    def keeps(self, name: str, status: os.stat_result) -> bool:
        return name.lower().startswith(BEST) or name in self.names or _identity(status) in self.ids


class Repair:
    """One repair. `base`: the command's working folder, without links. `checkpoints`: names of the newest ones."""

    def __init__(self, job: Job, folder: MachineFolder, base: str, checkpoints: Iterable[str] = ()) -> None:
        self._job, self._folder, self._base = job, folder, base
        self._names = frozenset(checkpoints)
        self._until = 0.0
        self._tally = _Tally()

    def run(self, seconds: float, hurried: Callable[[], bool] = lambda: False) -> Repaired:
        """Returns soon after `seconds`; as soon as `hurried`, HURRIED_S are left at most. Never raises."""
        self._until = time.monotonic() + seconds
        worker = threading.Thread(target=self._run_quietly, name="repair", daemon=True)
        worker.start()
        while worker.is_alive() and time.monotonic() < self._until + GRACE_S:
            if hurried():
                self._until = min(self._until, time.monotonic() + HURRIED_S)
            worker.join(CHECK_S)
        self._until = 0.0  # a thread that is left behind removes nothing more
        return self._tally.so_far()

    def part(self) -> Dict[str, Any]:
        """For the evidence."""
        return {**self._tally.so_far()._asdict(), "scratch": list(self._job.scratch)}

    def _run_quietly(self) -> None:
        with suppress(_Over, OSError):
            self._remove_parts()
            guard = guard_of(self._job, self._folder, self._names)
            for glob in self._job.scratch:
                self._check()
                _Glob(glob, self._base, guard, self._tally, self._check).remove()
            self._tally.complete = True

    def _check(self) -> None:
        if time.monotonic() >= self._until:
            raise _Over

    def _remove_parts(self) -> None:
        """Downloads that nobody continues now: an agent that does holds the lock."""
        if not self._job.stage:
            return
        folder = kept_files(self._job, self._folder, os.environ)
        for name in os.listdir(folder):
            self._check()
            if not name.endswith(PART):
                continue
            path = os.path.join(folder, name)
            with suppress(OSError), _open_at(path, None, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC) as part:
                fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
                status = os.fstat(part)
                if stat.S_ISREG(status.st_mode) and os.path.samestat(status, os.lstat(path)):
                    os.unlink(path)
                    _count(self._tally, status)


class _Glob:
    def __init__(self, glob: str, base: str, guard: Guard, tally: _Tally, check: Callable[[], None]) -> None:
        self._guard, self._tally, self._check = guard, tally, check
        self._top = "/" if scratch.is_absolute(glob) else base
        self._parts, self._problem = scratch.parts_of(glob), scratch.problem_of(glob)
        self._folders = scratch.names_folders(glob)
        self._mount: Optional[Tuple[int, str]] = None

    def remove(self) -> None:
        if self._problem:
            return
        with suppress(OSError), _open_path(self._top) as top:
            self._below(top, self._parts)

    def _below(self, folder: int, parts: Sequence[str]) -> None:
        """The entries of the open folder that match."""
        if self._mount is None and (len(parts) == 1 or scratch.is_magic(parts[0])):
            self._mount = _mount(folder)  # the part without wildcards ends here
        for name in _matching(folder, parts[0]):
            self._check()
            with suppress(OSError):
                if len(parts) > 1:
                    with self._entered(folder, name) as below:
                        self._below(below, parts[1:])
                elif self._folders:
                    self._remove_folder(folder, name, DEPTH)
                else:
                    self._remove_file(folder, name, only_plain=True)

    @contextmanager
    def _entered(self, folder: int, name: str) -> Iterator[int]:
        """The open folder of this name. OSError where it is a link, is kept, or is on another mount."""
        with _open_at(name, folder, _FOLDER_FLAGS) as below:
            if self._guard.keeps(name, os.fstat(below)) or _is_machine(below):
                self._tally.kept += 1
                raise PermissionError(name)
            if self._mount is not None and _mount(below) != self._mount:
                raise PermissionError(name)
            yield below

    def _remove_folder(self, folder: int, name: str, depth: int) -> None:
        """With its content, as far as nothing in it is kept. OSError."""
        if depth <= 0:
            return
        with self._entered(folder, name) as below:
            for entry in _entries(below):
                self._check()
                with suppress(OSError):
                    if stat.S_ISDIR(os.stat(entry, dir_fd=below, follow_symlinks=False).st_mode):
                        self._remove_folder(below, entry, depth - 1)
                    else:
                        self._remove_file(below, entry, only_plain=False)
        os.rmdir(name, dir_fd=folder)

    def _remove_file(self, folder: int, name: str, only_plain: bool) -> None:
        """`only_plain`: neither links nor pipes. A link is removed itself. OSError."""
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode) or (only_plain and not stat.S_ISREG(status.st_mode)):
            return
        if self._guard.keeps(name, status):
            self._tally.kept += 1
            return
        os.unlink(name, dir_fd=folder)
        _count(self._tally, status)


def guard_of(job: Job, folder: MachineFolder, names: Iterable[str]) -> Guard:
    paths = [
        folder.checkpoints, folder.results, folder.staging, folder.staged, folder.downloads, folder.moments,
        folder.incoming, folder.readback, folder.threads, folder.python, folder.progress, folder.output,
        folder.stopping,
    ]  # fmt: skip
    if job.store_url.startswith("file:"):
        paths.append(unquote(urlsplit(job.store_url).path))
    if job.stage:
        with suppress(OSError):
            paths.append(kept_files(job, folder, os.environ))
    ids = set()
    for path in [*paths, *_linked_from(folder.checkpoints), *_linked_from(folder.results)]:
        for look in (os.lstat, os.stat):  # where a link stands in its place: both
            with suppress(OSError):
                ids.add(_identity(look(path)))
    saved: List[str] = []
    with suppress(OSError):
        saved = [name for name in os.listdir(folder.checkpoints) if not name.startswith(".")]
    return Guard(frozenset(ids), frozenset([*names, *saved]))


def _linked_from(folder: str) -> List[str]:
    """Links in it: what they point to is a part of it."""
    links: List[str] = []
    for number, (top, folders, files) in enumerate(os.walk(folder)):
        links += [path for path in (os.path.join(top, name) for name in [*folders, *files]) if os.path.islink(path)]
        if number > LINKS or len(links) > LINKS:
            break
    return links


def _matching(folder: int, pattern: str) -> Iterator[str]:
    if not scratch.is_magic(pattern):
        yield pattern
        return
    for name in _entries(folder):
        if scratch.matches(name, pattern):
            yield name


def _entries(folder: int) -> List[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


@contextmanager
def _open_path(path: str) -> Iterator[int]:
    """The folder at this absolute path, which contains no link. OSError."""
    parts = [part for part in path.split("/") if part]
    current = os.open("/", _FOLDER_FLAGS)
    try:
        for part in parts:
            below = os.open(part, _FOLDER_FLAGS, dir_fd=current)
            os.close(current)
            current = below
        yield current
    finally:
        os.close(current)


@contextmanager
def _open_at(path: str, folder: Optional[int], flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _mount(descriptor: int) -> Tuple[int, str]:
    """Which mount the open folder is on. The kernel's number tells apart two mounts of one file system; "" = it cannot
    be read."""
    return os.fstat(descriptor).st_dev, read_fields("/proc/self/fdinfo/%d" % descriptor).get("mnt_id", "")


def _is_machine(folder: int) -> bool:
    with suppress(OSError):
        for name in _MACHINE:
            os.stat(name, dir_fd=folder, follow_symlinks=False)
        return True
    return False


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _count(tally: _Tally, status: os.stat_result) -> None:
    """A file with a further name frees nothing."""
    if status.st_nlink == 1:
        tally.files += 1
        tally.freed_bytes += status.st_blocks * 512
