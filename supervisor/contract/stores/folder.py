"""An object store in a folder: one implementation, used by the agent and by the server.

An object is a plain file at root/<key>, so that people can read checkpoints and results with ordinary tools. Its
generation is the file's modification time in nanoseconds, set before the file gets its name. It is strictly above every
earlier one of that key, deleted ones included (the lock file's own time remembers those). A write is: temporary file,
fsync; then, under the key's lock, compare, sidecar (metadata), rename; then fsync of the folder. A kill at any point
leaves the old object or the new one. A marker file distinguishes a store from the empty folder of an unmounted disk.
`updated` is the inode's ctime: the file system's own clock, which no writer can set.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Callable, ContextManager, Iterator, List, Mapping, Optional, Tuple, Type, TypeVar

from supervisor.contract.stores import durable
from supervisor.contract.stores.durable import LOCKS, MARKER, META, RESERVED, TMP, check_free, key_hash
from supervisor.contract.stores.promise import (
    ABSENT,
    MAX_PAGE,
    Generation,
    IsKnown,
    Metadata,
    ObjectInfo,
    ObjectMissing,
    Page,
    PreconditionFailed,
    StoreFull,
    StoreUnavailable,
    StrPath,
    check_key,
    check_metadata,
    check_page_size,
    check_prefix,
)

_FULL = (errno.ENOSPC, errno.EDQUOT)
_MARKER_TEXT = b"An object store of Spot Supervisor. Without this file the store counts as not mounted.\n"
_ORPHAN_S = 3600.0  # a temporary file this old has lost its writer
# The allocator returns larger pieces to the system each time: their page faults cost more than the read.
_CHUNK_BYTES = 1 << 18
_TRIES = 100  # of a reader that finds a new generation each time

Folder = TypeVar("Folder", bound="FolderStore")


class FolderStore:
    """See ports/objectstore.ObjectStore for each method's promise; the errors are in contract/stores/promise.py."""

    lock_wait_s = 10.0  # a writer that was frozen while it held a lock must not block the others forever

    def __init__(self, root: StrPath) -> None:
        """Touches nothing: a store that is not there raises StoreUnavailable until it is."""
        self.root = os.path.abspath(os.fspath(root))
        self.url = Path(self.root).as_uri()
        self._marker = os.path.join(self.root, MARKER)
        self._tmp = os.path.join(self.root, TMP)
        self._sidecars = durable.Sidecars(os.path.join(self.root, META), self._tmp)
        self._next_sweep = 0.0

    @classmethod
    def create(cls: Type[Folder], root: StrPath) -> Folder:
        """The store at `root`, created if necessary. StoreUnavailable when the folder holds other things."""
        store = cls(root)
        with store._store_errors("create", ""):
            durable.make_folders(store.root)
            others = [name for name in os.listdir(store.root) if name not in RESERVED]
            if others and not os.path.exists(store._marker):
                raise StoreUnavailable("%s is neither empty nor an object store" % store.root)
            for name in (TMP, META, LOCKS):
                durable.make_folders(os.path.join(store.root, name))
            if not os.path.exists(store._marker):
                durable.replace_file(store._tmp, store._marker, _MARKER_TEXT)
        return store

    @classmethod
    def at(cls: Type[Folder], url: str) -> Folder:
        """The store that a `file:///...` URL names. ValueError for any other URL."""
        from urllib.parse import unquote, urlsplit  # late: a command on a host has a path, no URL

        parts = urlsplit(url)
        local = parts.scheme == "file" and parts.netloc in {"", "localhost"} and parts.path.startswith("/")
        if not local or parts.query or parts.fragment:
            raise ValueError("not the URL of a folder: %r" % url)
        return cls(unquote(parts.path))

    # --- writing --------------------------------------------------------------------------------------------------

    def put(self, key: str, data: bytes, if_generation: Generation = None, metadata: Metadata = None) -> ObjectInfo:
        check_metadata(metadata or {})
        return self._write(key, lambda target: durable.write_all(target, data), if_generation, metadata or {})

    def put_file(self, key: str, path: StrPath, if_generation: Generation = None) -> ObjectInfo:
        """OSError when the file at `path` cannot be opened: that is the caller's file, not the store's."""
        with open(path, "rb", buffering=0) as source:
            return self._write(key, lambda target: durable.copy_all(source.fileno(), target), if_generation, {})

    def _write(
        self, key: str, fill: Callable[[int], None], if_generation: Optional[str], metadata: Mapping[str, str]
    ) -> ObjectInfo:
        path = self._path(key)
        with self._store_errors("write", key):
            self._sweep()
            descriptor, tmp = durable.new_file(self._tmp)
            try:
                fill(descriptor)
                generation = durable.stamp(descriptor)
                with self._locked(key) as lock:
                    present = self._present(path)
                    _require(key, present, if_generation)
                    taken = max(present or 0, os.fstat(lock).st_mtime_ns)
                    if generation <= taken:
                        generation = durable.stamp(descriptor, above_ns=taken)
                    if metadata:
                        self._sidecars.write(key, generation, metadata, present)
                    durable.rename_into(tmp, path)
                    if not metadata:
                        self._sidecars.drop(key)
                written = os.fstat(descriptor)
            finally:
                os.close(descriptor)
                durable.unlink_quietly(tmp)
            self._settle(key, path)
        return _info(key, written, metadata)

    def delete(self, key: str, if_generation: Generation = None) -> bool:
        path = self._path(key)
        with self._store_errors("delete", key):
            with self._locked(key) as lock:
                present = self._present(path)
                if present is None:
                    self._clock_s()
                    return False
                _require(key, present, if_generation)
                durable.raise_stamp(lock, present)
                os.unlink(path)
                self._sidecars.drop(key)
            self._settle(key, path)
            durable.remove_empty_folders(os.path.dirname(path), self.root)
        return True

    def _settle(self, key: str, path: str) -> None:
        """The change was made and is visible; the sync decides whether it survives a power cut."""
        try:
            durable.sync_folder(os.path.dirname(path))
        except OSError as error:
            raise StoreUnavailable("%r was changed, but its folder was not synced: %s" % (key, error)) from error

    # --- reading --------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Tuple[bytes, ObjectInfo]:
        path = self._path(key)
        with self._store_errors("read", key):
            for _ in range(_TRIES):
                with _opened(path) as descriptor:
                    seen = os.fstat(descriptor)
                    data = b"".join(_chunks(descriptor, None))
                metadata = self._sidecars.of(key, seen.st_mtime_ns, path)
                if metadata is not None:
                    return data, _info(key, seen, metadata)
            raise StoreUnavailable("%s: %r changes faster than it can be read" % (self.root, key))

    def read(self, key: str, offset: int = 0, length: Optional[int] = None) -> Iterator[bytes]:
        """Errors come with the first bytes."""
        path = self._path(key)
        if offset < 0 or (length is not None and length < 0):
            raise ValueError("offset and length are not negative")
        with self._store_errors("read", key), _opened(path) as descriptor:
            os.lseek(descriptor, offset, os.SEEK_SET)
            yield from _chunks(descriptor, length)

    def stat(self, key: str) -> ObjectInfo:
        path = self._path(key)
        with self._store_errors("read", key):
            info = self._look(key, path)
            if info is None:
                raise FileNotFoundError(errno.ENOENT, "no plain file", key)
            return info

    def pages(self, prefix: str, page_size: int = MAX_PAGE, is_known: IsKnown = None) -> Iterator[Page]:
        check_prefix(prefix)
        check_page_size(page_size)
        if "/" in prefix:
            check_free(prefix)
        objects: List[ObjectInfo] = []
        any_page, count = False, 0
        with self._store_errors("list", prefix):
            for key in durable.keys_under(self.root, prefix):
                try:
                    info = self._look(key, self.root + "/" + key, is_known)
                except FileNotFoundError:  # deleted since its name was read
                    continue
                if info is not None:
                    objects.append(info)
                    count += 1
                if len(objects) == page_size:
                    yield Page(tuple(objects), self._clock_s())
                    any_page, objects = True, []
            if objects or not any_page:
                yield Page(tuple(objects), self._clock_s())
            else:
                self._clock_s()  # proof that the disk is still mounted: an unmounted disk ends a listing early
        if is_known is None:
            self._sidecars.listed(count)

    def _look(self, key: str, path: str, is_known: IsKnown = None) -> Optional[ObjectInfo]:
        """The object at `path`, None for anything but a plain file. FileNotFoundError."""
        for _ in range(_TRIES):
            seen = os.stat(path)
            if not stat_module.S_ISREG(seen.st_mode):
                return None
            if is_known is not None and is_known(key, str(seen.st_mtime_ns)):
                return _info(key, seen, durable.NONE)
            metadata = self._sidecars.of(key, seen.st_mtime_ns, path, keep=is_known is None)
            if metadata is not None:
                return _info(key, seen, metadata)
        raise StoreUnavailable("%s: %r changes faster than it can be read" % (self.root, key))

    # --- the folder itself ----------------------------------------------------------------------------------------

    def _path(self, key: str) -> str:
        check_key(key)
        check_free(key)
        return os.path.join(self.root, key)

    def _present(self, path: str) -> Optional[int]:
        """The object's generation, None when there is no object."""
        try:
            seen = os.stat(path)
        except FileNotFoundError:
            return None
        return None if stat_module.S_ISDIR(seen.st_mode) else seen.st_mtime_ns

    def _locked(self, key: str) -> ContextManager[int]:
        return durable.locked(os.path.join(self.root, LOCKS, key_hash(key)[:2]), self.lock_wait_s)

    def _clock_s(self) -> float:
        """The file system's own time (on a network disk the server's), and proof that the store is mounted."""
        os.utime(self._marker)
        return os.stat(self._marker).st_mtime

    def _sweep(self) -> None:
        """Once an hour and at the first write: remove the files of killed writers."""
        if time.monotonic() < self._next_sweep:
            return
        self._next_sweep = time.monotonic() + _ORPHAN_S
        horizon_s = self._clock_s() - _ORPHAN_S
        with os.scandir(self._tmp) as entries:
            for entry in entries:
                with suppress(OSError):  # another process has removed it, or owns it
                    if entry.stat().st_mtime < horizon_s:
                        os.unlink(entry.path)

    @contextmanager
    def _store_errors(self, verb: str, key: str) -> Iterator[None]:
        """Turn errors of the system into the store's, with the action (`verb`) and the object in the text.

        A missing file means ObjectMissing for the verb "read" alone, and only while the store's marker is there.
        """
        doing = "object store %s: cannot %s %r" % (self.root, verb, key)
        try:
            yield
        except FileNotFoundError as error:
            if not os.path.exists(self._marker):
                raise StoreUnavailable("%s: there is no object store (is its disk mounted?)" % doing) from error
            if verb == "read":
                raise ObjectMissing(key) from None
            raise StoreUnavailable("%s: %s" % (doing, error.strerror)) from error
        except (NotADirectoryError, IsADirectoryError) as error:
            text = "%s: a file has the name of a folder, or a folder has the name of a file" % doing
            raise StoreUnavailable(text) from error
        except BlockingIOError as error:
            raise StoreUnavailable("%s: another writer has held its lock for too long" % doing) from error
        except OSError as error:
            if error.errno in _FULL:
                text = "%s: no space or no inodes left; the object is unchanged, free some space" % doing
                raise StoreFull(text) from error
            raise StoreUnavailable("%s: %s" % (doing, error.strerror or error)) from error


def _require(key: str, present: Optional[int], if_generation: Optional[str]) -> None:
    current = ABSENT if present is None else str(present)
    if if_generation is not None and if_generation != current:
        raise PreconditionFailed("%r is of generation %s, not %s" % (key, current, if_generation))


def _info(key: str, seen: os.stat_result, metadata: Mapping[str, str]) -> ObjectInfo:
    return ObjectInfo(key, seen.st_size, str(seen.st_mtime_ns), seen.st_ctime, metadata)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """A descriptor of the plain file at `path`; a folder there means that no object has this key."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kind = os.fstat(descriptor).st_mode
        if stat_module.S_ISDIR(kind):
            raise FileNotFoundError(errno.ENOENT, "a folder", path)
        if not stat_module.S_ISREG(kind):
            raise OSError(errno.EINVAL, "not a plain file", path)
        yield descriptor
    finally:
        os.close(descriptor)


def _chunks(descriptor: int, length: Optional[int]) -> Iterator[bytes]:
    """The rest of the file, or `length` bytes of it, in pieces of at most 256 KiB."""
    left = length
    while left is None or left > 0:
        chunk = os.read(descriptor, _CHUNK_BYTES if left is None else min(left, _CHUNK_BYTES))
        if not chunk:
            return
        if left is not None:
            left -= len(chunk)
        yield chunk
