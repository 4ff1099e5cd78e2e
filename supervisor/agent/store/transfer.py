"""Files into and out of the store, believed only by their sha256.

An upload counts when the content was read back and hashed; a download when its hash is the one that was promised.
"""

from __future__ import annotations

import hashlib
import os
from typing import Callable, Iterable, Tuple

from supervisor.agent.store.reach import Store
from supervisor.contract.baton import FileEntry
from supervisor.contract.stores.errors import ObjectMissing

_CHUNK_BYTES = 1 << 20
TRIES = 3


class Mismatch(Exception):
    """The content is not what it should be, or is not there; the text says which file."""


def nothing() -> None:
    """The `between` of a transfer that nobody interrupts."""


def hash_file(path: str, name: str, between: Callable[[], None] = nothing) -> FileEntry:
    """Size and sha256 of the file at `path`, under `name`. OSError."""
    with open(path, "rb") as source:
        size, digest = _hash(iter(lambda: source.read(_CHUNK_BYTES), b""), between)
    return FileEntry(name, size, digest)


def hash_start(path: str, size: int) -> str:
    """The sha256 of the first `size` bytes of the file at `path`, or of all where it is shorter. OSError."""
    digest = hashlib.sha256()
    with open(path, "rb") as source:
        while size > 0:
            data = source.read(min(_CHUNK_BYTES, size))
            if not data:
                break
            digest.update(data)
            size -= len(data)
    return digest.hexdigest()


def upload(
    store: Store, prefix: str, path: str, entry: FileEntry, between: Callable[[], None] = nothing
) -> None:
    """Write the file and read it back. `between` is called between chunks and may raise to give up.

    Raises Mismatch, StoreUnavailable, OSError (the local file), ValueError (a name that no key can have).
    """
    key = prefix + entry.name
    between()
    store.put_file(key, path)
    try:
        found = _hash(store.read(key), between)
    except ObjectMissing:
        raise Mismatch("%s is not there after its upload" % entry.name) from None
    if found != (entry.size, entry.sha256):
        raise Mismatch("%s differs after its upload" % entry.name)


def upload_file(
    store: Store, prefix: str, path: str, *, name: str, between: Callable[[], None], if_generation: str
) -> Tuple[FileEntry, str]:
    """Write the file and read it back beside the local one, byte by byte: one hash tells of both. With the generation
    that it now has.

    Raises Mismatch (also when the file is written to meanwhile), PreconditionFailed, StoreUnavailable, OSError,
    ValueError.
    """
    key = prefix + name
    between()
    info = store.put_file(key, path, if_generation)
    with open(path, "rb") as source:

        def same() -> Iterable[bytes]:
            for chunk in store.read(key):
                if source.read(len(chunk)) != chunk:
                    raise Mismatch("%s differs after its upload" % name)
                yield chunk
            if source.read(1):
                raise Mismatch("%s is cut off after its upload" % name)

        try:
            size, digest = _hash(same(), between)
        except ObjectMissing:
            raise Mismatch("%s is not there after its upload" % name) from None
    return FileEntry(name, size, digest), info.generation


def no_link(path: str, flags: int) -> int:
    """An opener for a file that we write: through no link that somebody laid in its place."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def download(
    store: Store, prefix: str, path: str, entry: FileEntry, between: Callable[[], None] = nothing
) -> None:
    """Write the object to `path`, durably. Raises Mismatch, StoreUnavailable, OSError."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb", opener=no_link) as target:

        def chunks() -> Iterable[bytes]:
            for chunk in store.read(prefix + entry.name):
                target.write(chunk)
                yield chunk

        try:
            found = _hash(chunks(), between)
        except ObjectMissing:
            raise Mismatch("%s is not in the store" % entry.name) from None
        except ValueError:
            raise Mismatch("%s cannot be a name in the store" % entry.name) from None
        if found != (entry.size, entry.sha256):
            raise Mismatch("%s differs from its checksum" % entry.name)
        target.flush()
        os.fsync(target.fileno())


def _hash(chunks: Iterable[bytes], between: Callable[[], None]) -> Tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        between()
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()
