"""The disk of a folder store: durable writes, locks, timestamps that only increase, sidecars, keys in order.

Content is complete on the disk before it gets its name, and a name is on the disk before the write returns. A lock is a
`flock`, which the kernel releases when its process ends. Functions raise OSError as the system gave it.

A sidecar is the small file with an object's metadata. A file system replaces one name at a time, but an object and its
metadata must change together. So a sidecar holds the metadata of two generations, the present and the next one, each on
a line `<generation> <JSON>`. It is written before the object gets its name, so the line of either generation is there
for every reader. A writer killed in between leaves a line that no reader needs, and the next writer drops it. A
generation's metadata never changes, so it is kept in memory: a listing without changes opens no sidecar. A caller that
keeps what it has read does without that (`is_known`).

Keys are listed in key order, and folders outside the prefix are not read. A folder sorts as its name and a slash, as it
does inside the keys (`a.txt` before `a/b`), and code points sort as their UTF-8 bytes do.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from contextlib import contextmanager, suppress
from typing import Dict, Iterator, List, Mapping, Optional, Set, Tuple

from supervisor.contract.stores.promise import StoreUnavailable, StrPath

_COPY_BYTES = 1 << 30
_NO_COPY_RANGE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
# Timestamps of some file systems are coarser than a nanosecond: the next possible one is found by trying.
_STAMP_STEPS_NS = (0, 100, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000)
MARKER = ".spot-store"
TMP, META, LOCKS = ".tmp", ".meta", ".locks"
RESERVED = (TMP, META, LOCKS, MARKER)
_SCANS = 8
REMEMBERED_MIN = 20_000  # sidecars in memory, or twice as many as the largest listing needs
NONE: Mapping[str, str] = {}
_READ_BYTES = 1 << 16


def new_file(folder: str) -> Tuple[int, str]:
    """A new, empty file in `folder` under a unique name: (descriptor open for writing, path)."""
    path = os.path.join(folder, os.urandom(16).hex())
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666), path


def write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def copy_all(source: int, target: int) -> None:
    """Copy the content of `source`, inside the kernel (as a reference where the file system can), else through
    memory."""
    try:
        while os.copy_file_range(source, target, _COPY_BYTES) > 0:
            pass
    except OSError as error:
        if error.errno not in _NO_COPY_RANGE or os.lseek(target, 0, os.SEEK_CUR) > 0:
            raise
        import shutil  # late: few file systems need it

        with open(source, "rb", closefd=False) as reader, open(target, "wb", closefd=False) as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)


def stamp(descriptor: int, above_ns: Optional[int] = None) -> int:
    """Set the file's modification time and sync the file; returns the time that the file now has, in ns.

    Without `above_ns` the time is the file system's own time of the last write; else the next possible one above
    `above_ns`.
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
    """Move the file's modification time forward to `to_ns`; never back."""
    if os.fstat(descriptor).st_mtime_ns < to_ns:
        _set_time(descriptor, to_ns)


def _set_time(descriptor: int, moment_ns: int) -> None:
    os.utime(descriptor, ns=(moment_ns, moment_ns))


def sync_folder(path: StrPath) -> None:
    """Sync the names in a folder to the disk. A folder that no longer exists has none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(path: str) -> None:
    """Make a folder and its parents, durably. NotADirectoryError when a file has the name of one of them."""
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
    """Give a finished file its name and make the parent folders; another process may be removing them as empty."""
    for _ in range(20):
        try:
            os.rename(source, target)
        except FileNotFoundError:
            # Raises when the source is gone too: the store was unmounted or moved, and must not be created here again.
            os.stat(source)
            make_folders(os.path.dirname(target))
        else:
            return
    os.rename(source, target)


def replace_file(tmp_folder: str, path: str, data: bytes) -> None:
    """Replace the whole file: it is complete and durable before it gets its name, and its name before the return."""
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
    """Remove `path` and its parents while they are empty, `up_to` excluded."""
    with suppress(OSError):
        while path != up_to and path.startswith(up_to):
            os.rmdir(path)
            path = os.path.dirname(path)


def unlink_quietly(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


@contextmanager
def locked(path: str, wait_s: float) -> Iterator[int]:
    """Hold the lock of the file `path`, across threads and processes; gives its descriptor.

    BlockingIOError after `wait_s`. The unlock is explicit, because a child forked meanwhile shares the descriptor.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        deadline, backoff_s = time.monotonic() + wait_s, 0.0005
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, 0.02)
        try:
            yield descriptor
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def check_free(key: str) -> None:
    """ValueError when the key or prefix is in the store's own part of the folder."""
    if key.partition("/")[0] in RESERVED:
        raise ValueError("reserved by the store: %r" % key)


def keys_under(root: str, prefix: str) -> Iterator[str]:
    """The keys under `prefix` in the folder `root`, in key order. OSError when a folder cannot be read."""
    above, slash, begins = prefix.rpartition("/")
    waiting = [(above + slash, _names(root, above, begins))]
    while waiting:
        folder, names = waiting[-1]
        name = next(names, None)
        if name is None:
            waiting.pop()
        elif name.endswith("/"):
            key = folder + name
            waiting.append((key, _names(root, key[:-1], "")))
        else:
            yield folder + name


def _names(root: str, folder: str, begins: str) -> Iterator[str]:
    """Sorted names in a folder, those of folders with a slash; none when there is no such folder.

    Some file systems can hide a name from a scan while another file is renamed to it (measured: tmpfs does so in nearly
    every scan of 3,000 names beside two writers). So a folder is scanned until two scans agree, and a name that any
    scan returned counts.
    """
    path = os.path.join(root, folder)
    names: Set[str] = set()
    last: Optional[Set[str]] = None
    for _ in range(_SCANS):
        try:
            with os.scandir(path) as entries:
                # A link to a folder is not followed: a purge may delete what is listed here.
                scanned = {
                    e.name + "/" if e.is_dir(follow_symlinks=False) else e.name
                    for e in entries
                    if e.name.startswith(begins)
                }
        except FileNotFoundError:
            scanned = set()
        names |= scanned
        if scanned == last:
            break
        last = scanned
    if not folder:
        names -= {reserved for name in RESERVED for reserved in (name, name + "/")}
    return _emptied(sorted(filter(_is_text, names), reverse=True))


def _emptied(names: List[str]) -> Iterator[str]:
    """The last one first; each name leaves the memory when it was used."""
    while names:
        yield names.pop()


def _is_text(name: str) -> bool:
    """False for a name that is not UTF-8: we never wrote it, and no key can be equal to it."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def key_hash(key: str) -> str:
    import hashlib  # late: OpenSSL is a tenth of a command on a host, and few need it

    return hashlib.sha256(key.encode()).hexdigest()


class Sidecars:
    """The sidecars below `folder`; new ones are written in `tmp_folder` first. Raises OSError, and StoreUnavailable for
    a torn sidecar, which only a manual change or a broken disk can cause."""

    def __init__(self, folder: str, tmp_folder: str) -> None:
        self._folder = folder
        self._tmp_folder = tmp_folder
        self._remembered: Dict[str, Tuple[int, Mapping[str, str]]] = {}
        self._most = REMEMBERED_MIN
        self._guard = threading.Lock()

    def listed(self, count: int) -> None:
        """A listing whose caller keeps nothing had so many objects: the next one needs all of their sidecars again. A
        short listing of another prefix takes nothing from a long one."""
        self._most = max(self._most, 2 * count)

    def of(self, key: str, generation: int, object_path: str, keep: bool = True) -> Optional[Mapping[str, str]]:
        """Metadata of this generation, {} when it has none; None when the object has another generation by now.
        `keep`: the next call for it needs no file."""
        remembered = self._remembered.get(key)
        if remembered is not None and remembered[0] == generation:
            return remembered[1]
        line = self._line(key, generation)
        if line is None:
            # No line: the generation has no metadata, or the object was replaced twice since the caller read it.
            if os.stat(object_path).st_mtime_ns != generation:
                return None
            metadata = NONE
        else:
            metadata = self._parsed(key, line)
        if keep:
            self._remember(key, generation, metadata)
        return metadata

    def write(self, key: str, generation: int, metadata: Mapping[str, str], present: Optional[int]) -> None:
        """Add the next generation's line, durably, and keep the present one's. The caller holds the key's lock."""
        lines = [b"%d %s\n" % (generation, json.dumps(dict(metadata)).encode())]
        kept = None if present is None else self._line(key, present)
        if kept is not None and present is not None:
            lines.append(b"%d %s\n" % (present, kept))
        replace_file(self._tmp_folder, self._path(key), b"".join(lines))

    def drop(self, key: str) -> None:
        """The object has no metadata any more; a line that stays does no harm. The caller holds the key's lock."""
        with suppress(OSError):
            os.unlink(self._path(key))

    def _path(self, key: str) -> str:
        name = key_hash(key)
        return os.path.join(self._folder, name[:2], name[2:40])

    def _line(self, key: str, generation: int) -> Optional[bytes]:
        try:
            descriptor = os.open(self._path(key), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            chunks = [os.read(descriptor, _READ_BYTES)]
            while len(chunks[-1]) == _READ_BYTES:
                chunks.append(os.read(descriptor, _READ_BYTES))
        finally:
            os.close(descriptor)
        begins = b"%d " % generation
        for line in b"".join(chunks).split(b"\n"):
            if line.startswith(begins):
                return line[len(begins) :]
        return None

    def _parsed(self, key: str, line: bytes) -> Mapping[str, str]:
        try:
            metadata: Mapping[str, str] = json.loads(line)
        except ValueError as error:
            raise StoreUnavailable("the metadata of %r is torn: %s" % (key, self._path(key))) from error
        return metadata

    def _remember(self, key: str, generation: int, metadata: Mapping[str, str]) -> None:
        with self._guard:
            self._remembered[key] = (generation, metadata)
            while len(self._remembered) > self._most:
                del self._remembered[next(iter(self._remembered))]
