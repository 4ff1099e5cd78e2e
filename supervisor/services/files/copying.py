"""A large object from one store to another, in constant memory: by way of a file on this computer's disk.

Hashed while it is read, compared with what the source says of it, and read back after it was written. A copy that is
there already, of a copying that was cut off, is used again when its content is the same.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor.contract.baton import FileEntry
from supervisor.domain.errors import Unavailable
from supervisor.ports.objectstore import (
    ABSENT,
    ObjectInfo,
    ObjectReader,
    ObjectStore,
    PreconditionFailed,
)
from supervisor.wording.figures import size_text

UPLOADS = 100  # names that are tried for one file
SPARE_BYTES = 256 * 1024 * 1024  # of the disk; the database lives there too


@dataclass(frozen=True)
class Copied:
    prefix: str
    entry: FileEntry


def copy(
    source: tuple[ObjectReader, ObjectInfo],
    name: str,
    target: ObjectStore,
    *,
    prefix: Callable[[int], str],
    scratch: Path,
    closing: threading.Event,
) -> Copied:
    """`prefix(n)`: where the copy goes, for n = 1, 2, … while another content lies there. `scratch`: a folder for the
    file. Raises Unavailable (repeat it), StoreUnavailable, ObjectMissing."""
    reader, info = source
    free = shutil.disk_usage(scratch).free
    if free < info.size + SPARE_BYTES:
        raise Unavailable(
            f"{name} has {size_text(info.size)}, and the data folder's disk has {size_text(free)} left: free some.",
            {"size_bytes": info.size, "free_bytes": free},
        )
    with tempfile.NamedTemporaryFile(dir=scratch, prefix="import-") as file:
        digest, size = hashlib.sha256(), 0
        for piece in _until(closing, reader.read(info.key)):
            digest.update(piece)
            size += len(piece)
            if size > info.size:
                break
            file.write(piece)
        file.flush()
        if size != info.size or reader.stat(info.key).generation != info.generation:
            raise Unavailable(
                f"{name} changed while it was copied: the old run still writes. Try again later."
            )
        entry = FileEntry(name, size, digest.hexdigest())
        return _placed(Path(file.name), entry, target, prefix, closing)


def _placed(
    path: Path, entry: FileEntry, target: ObjectStore, prefix: Callable[[int], str], closing: threading.Event
) -> Copied:
    for number in range(1, UPLOADS + 1):
        key = prefix(number) + entry.name
        fresh = True
        try:
            target.put_file(key, path, if_generation=ABSENT)
        except PreconditionFailed:
            fresh = False
        if _sha256(target, key, closing) == entry.sha256:
            return Copied(prefix(number), entry)
        if fresh:  # no baton names it: the run's next machine removes it
            raise Unavailable(f"What was stored of {entry.name} is not what was read. Try again.")
    raise Unavailable(f"{UPLOADS} other copies of {entry.name} lie in the store.")


def _sha256(store: ObjectReader, key: str, closing: threading.Event) -> str:
    digest = hashlib.sha256()
    for piece in _until(closing, store.read(key)):
        digest.update(piece)
    return digest.hexdigest()


def _until(closing: threading.Event, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Raises Unavailable when this process must end."""
    for piece in pieces:
        if closing.is_set():
            raise Unavailable("The supervisor is being stopped: the copy was broken off. Repeat it.")
        yield piece
