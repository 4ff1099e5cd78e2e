"""Writes that survive a power cut, locks that a kill releases, and times that only go up.

The rules of the folder store in small functions on file descriptors and paths: content is complete on the disk
before it gets its name, a name is on the disk before the write is answered, and a lock is a `flock`, which the
kernel drops with the process that held it. Every function raises OSError as the system gave it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
import uuid
from contextlib import contextmanager, suppress
from typing import Iterator, Optional, Tuple

_COPY_BYTES = 1 << 30
_NO_COPY_RANGE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
# Time stamps of some file systems are coarser than a nanosecond: the next step up is found by trying.
_STAMP_STEPS_NS = (0, 100, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000)


def new_file(folder: str) -> Tuple[int, str]:
    """A new, empty file in `folder` under a name of its own: (descriptor open for writing, path)."""
    path = os.path.join(folder, uuid.uuid4().hex)
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666), path


def write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def copy_all(source: int, target: int) -> None:
    """Copy what `source` holds, inside the kernel (as a reference where the file system can), else through memory."""
    try:
        while os.copy_file_range(source, target, _COPY_BYTES) > 0:
            pass
    except OSError as error:
        if error.errno not in _NO_COPY_RANGE or os.lseek(target, 0, os.SEEK_CUR) > 0:
            raise
        with open(source, "rb", closefd=False) as reader, open(target, "wb", closefd=False) as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)


def stamp(descriptor: int, above_ns: Optional[int] = None) -> int:
    """Set the file's time of change and put it on the disk; the time that the file now has, in ns.

    Without `above_ns` it is the file system's own time of the last write; else the next one above `above_ns`.
    """
    if above_ns is None:
        _set_time(descriptor, os.fstat(descriptor).st_mtime_ns)
    else:
        for step_ns in _STAMP_STEPS_NS:
            _set_time(descriptor, above_ns + 1 + step_ns)
            if os.fstat(descriptor).st_mtime_ns > above_ns:
                break
    os.fsync(descriptor)
    return os.fstat(descriptor).st_mtime_ns


def raise_stamp(descriptor: int, to_ns: int) -> None:
    """Move the file's time of change forward to `to_ns`; never back."""
    if os.fstat(descriptor).st_mtime_ns < to_ns:
        _set_time(descriptor, to_ns)


def _set_time(descriptor: int, moment_ns: int) -> None:
    os.utime(descriptor, ns=(moment_ns, moment_ns))


def sync_folder(path: str) -> None:
    """Put the names in a folder on the disk. A folder that is gone has none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(path: str) -> None:
    """Make a folder and those above it, durably. NotADirectoryError when a file lies in the place of one."""
    try:
        os.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, "a file lies in the place of a folder", path) from None
    except FileNotFoundError:
        parent = os.path.dirname(path)
        if parent == path:
            raise
        make_folders(parent)
        make_folders(path)
    else:
        sync_folder(os.path.dirname(path))


def rename_into(source: str, target: str) -> None:
    """Give a finished file its name, making the folders above; another process may be removing them, empty."""
    for _ in range(20):
        try:
            os.rename(source, target)
        except FileNotFoundError:
            # A store that was unmounted or moved away took it along, and must not be made anew here.
            os.stat(source)
            make_folders(os.path.dirname(target))
        else:
            return
    os.rename(source, target)


def replace_file(tmp_folder: str, path: str, data: bytes) -> None:
    """The whole file at once: it is complete and durable before it gets its name, and its name before the return."""
    descriptor, tmp = new_file(tmp_folder)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
        rename_into(tmp, path)
        sync_folder(os.path.dirname(path))
    finally:
        os.close(descriptor)
        unlink_quietly(tmp)


def remove_empty_folders(path: str, up_to: str) -> None:
    """Remove `path` and the folders above it while they are empty, `up_to` excluded."""
    with suppress(OSError):
        while path != up_to and path.startswith(up_to):
            os.rmdir(path)
            path = os.path.dirname(path)


def unlink_quietly(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


@contextmanager
def locked(path: str, wait_s: float) -> Iterator[int]:
    """Hold the lock that the file `path` stands for, across threads and processes; gives its descriptor.

    BlockingIOError after `wait_s`. Unlocked by hand, because a child forked meanwhile shares the descriptor.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        _lock(descriptor, time.monotonic() + wait_s)
        try:
            yield descriptor
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, deadline: float) -> None:
    pause_s = 0.0005
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.02)
        else:
            return
