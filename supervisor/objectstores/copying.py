"""Copies of a run's files between our object store and the store on a host (relay.py, mirror.py).

Every content has the size and the SHA-256 that its agent has stored, and is compared before it counts. A transfer that
was cut off goes on at its byte, from a part file here. A training can write any key into the baton and the manifests on
its host: only what agents of the same run write is copied, and any other key is refused in one place.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, FileEntry, Pointer
from supervisor.host.files import private_opener
from supervisor.ports.objectstore import ObjectInfo, ObjectMissing, ObjectReader, ObjectStore, StoreUnavailable

SMALL_BYTES, SMALL_AT_ONCE = 64 << 10, 32  # objects that are read from a host in one request
LISTED_BYTES = 8 << 20  # a larger log or record is copied by way of a file
WRITTEN_BY_AGENTS = ("checkpoints/", "results/", "logs/", "instances/")  # below a run's folder


class Damaged(StoreUnavailable):
    """An object is missing at its source, or has another content than it must have."""


@dataclass
class Copier:
    """Copies objects with known contents, each once: their keys are never used again. `look`: of a source that reads
    several small objects in one request. `needs`: other keys that may be copied. Raises StoreUnavailable."""

    source: ObjectReader
    target: ObjectStore
    run_id: str
    parts: Path
    look: Callable[[Sequence[str], Sequence[str], int], tuple[Mapping[str, tuple[bytes, ObjectInfo]], object]] | None
    needs: Collection[str] = ()
    _known_keys: set[str] = field(default_factory=set)  # keys that are in the target
    _manifests: dict[str, tuple[FileEntry, ...]] = field(default_factory=dict)  # by key: what they name

    def carry_pointer(self, pointer: Pointer) -> None:
        """A checkpoint, and the results of the same moment."""
        self.carry(keyed(pointer.prefix, pointer.files))
        self.carry_results(pointer.results)

    def carry_results(self, manifest: FileEntry | None) -> None:
        if manifest is not None:
            self.carry((manifest,))
            self.carry(self.contents(manifest))

    def has_pointer(self, pointer: Pointer) -> bool:
        return all(map(self._has, keyed(pointer.prefix, pointer.files))) and self.has_results(pointer.results)

    def has_results(self, manifest: FileEntry | None) -> bool:
        return manifest is None or (self._has(manifest) and all(map(self._has, self.contents(manifest))))

    def contents(self, manifest: FileEntry) -> tuple[FileEntry, ...]:
        """The objects that this manifest of results names; none where it is missing or torn, as for the agent."""
        if manifest.name not in self._manifests:
            try:
                saved = runfiles.decode_saved(self.target.get(manifest.name)[0])
            except (ObjectMissing, ValueError):
                return ()
            files = tuple(FileEntry(file.key, file.size, file.sha256) for file in saved.files)
            self._manifests[manifest.name] = files
        return self._manifests[manifest.name]

    def keep(self, names: Iterable[str]) -> None:
        """Forget all others: they are deleted, and their names never come back."""
        named = set(names)
        self._known_keys &= named
        self._manifests = {name: files for name, files in self._manifests.items() if name in named}

    def carry(self, entries: Iterable[FileEntry]) -> None:
        """Objects, named by their keys."""
        entries = tuple(entries)
        for entry in entries:
            self.check(entry.name)
        missing = [entry for entry in entries if not self._has(entry)]
        if self.look is not None:
            small = [entry for entry in missing if entry.size <= SMALL_BYTES]
            for begin in range(0, len(small), SMALL_AT_ONCE):
                self._carry_small(small[begin : begin + SMALL_AT_ONCE], self.look)
        for entry in missing:
            if entry.name not in self._known_keys:
                carry(self.source, self.target, entry, self.parts)
                self._known_keys.add(entry.name)

    def _carry_small(self, entries: Sequence[FileEntry], look: Any) -> None:
        objects, _ = look([entry.name for entry in entries], (), 0)
        for entry in entries:
            data, _ = objects.get(entry.name, (None, None))
            if data is None or (len(data), hashlib.sha256(data).hexdigest()) != (entry.size, entry.sha256):
                raise Damaged(f"{entry.name} from {self.source.url} is missing, or has another SHA-256")
            self.target.put(entry.name, data)
            self._known_keys.add(entry.name)

    def carry_listed(self, info: ObjectInfo) -> None:
        """A log or a record. No more of it is read than was listed."""
        self.check(info.key)
        if info.size > LISTED_BYTES:
            carry(self.source, self.target, FileEntry(info.key, info.size, ""), self.parts)
            return
        data = b"".join(self.source.read(info.key, 0, info.size + 1))
        if len(data) != info.size:
            raise StoreUnavailable(f"{info.key} changed while it was copied from {self.source.url}")
        self.target.put(info.key, data, metadata=info.metadata)

    def check(self, key: str) -> None:
        """Raises Damaged."""
        if not self._may_copy(key):
            raise Damaged(f"{key!r} is no object that an agent of {self.run_id} writes: refused")

    def _may_copy(self, key: str) -> bool:
        folder, parts = runfiles.folder(self.run_id), key.split("/")
        own = key.startswith(tuple(folder + name for name in WRITTEN_BY_AGENTS)) and not {"", ".", ".."} & set(parts)
        return own or key in self.needs

    def _has(self, entry: FileEntry) -> bool:
        if not self._may_copy(entry.name):
            return False
        if entry.name not in self._known_keys:
            with suppress(ObjectMissing):
                if self.target.stat(entry.name).size == entry.size:
                    self._known_keys.add(entry.name)
        return entry.name in self._known_keys


def fetch(copier: Copier, baton: Baton) -> None:
    """What the baton names: the results of finished work, then the newest checkpoint. A checkpoint that is damaged at
    its source is left out (`held`); results never are."""
    if baton.done is not None:
        copier.carry(keyed(baton.done.prefix, baton.done.results))
    for pointer in batons.pointers(baton):
        with suppress(Damaged):
            copier.carry_pointer(pointer)
    with suppress(Damaged):
        copier.carry_results(baton.last)


def held(copier: Copier, baton: Baton) -> Baton:
    """The baton with those checkpoints that are in the target, each with its results."""
    newest = [pointer for pointer in (baton.checkpoint, *baton.previous) if pointer and copier.has_pointer(pointer)]
    return baton._replace(
        checkpoint=next(iter(newest), None),
        previous=tuple(newest[1:]),
        kept=tuple(filter(copier.has_pointer, baton.kept)),
        best=tuple(filter(copier.has_pointer, baton.best)),
        last=baton.last if copier.has_results(baton.last) else None,
    )


def keyed(prefix: str, files: Iterable[FileEntry]) -> Iterator[FileEntry]:
    return (entry._replace(name=prefix + entry.name) for entry in files)


def carry(source: ObjectReader, target: ObjectStore, entry: FileEntry, parts: Path) -> None:
    """Copy one object, continued at the byte where an earlier call was cut off. `entry.sha256` "": not known. `parts`:
    of one run. Its files come one after the other, so a part of another file is not needed any more. Only an object
    that was read from its first byte to its last in this call counts as damaged."""
    try:
        with alone(parts):
            part = parts / hashlib.sha256(f"{entry.name} {entry.sha256}".encode()).hexdigest()
            for other in set(parts.iterdir()) - {part}:
                other.unlink(missing_ok=True)
            with open(part, "a+b", opener=private_opener) as file:
                begun = file.tell() if entry.sha256 else file.truncate(0)  # what has no hash may have changed since
                good = _filled(file, source, entry)
                if begun and not good:
                    file.truncate(0)
                    good = _filled(file, source, entry)
            if good:
                target.put_file(entry.name, part)
            part.unlink()
    except OSError as error:
        raise StoreUnavailable(f"{entry.name} cannot be kept in {parts}: {error.strerror}") from error
    if not good:
        raise Damaged(f"{entry.name} from {source.url} is missing, or has another SHA-256")


def _filled(file: BinaryIO, source: ObjectReader, entry: FileEntry) -> bool:
    """Read what is missing at its end, and no more. True: its content is the right one."""
    size = file.seek(0, os.SEEK_END)
    try:
        for chunk in source.read(entry.name, size, entry.size - size) if size < entry.size else ():
            file.write(chunk)
            file.flush()
    except ObjectMissing:
        return False
    os.fsync(file.fileno())
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    return file.tell() == entry.size and entry.sha256 in ("", digest)


@contextmanager
def alone(parts: Path) -> Iterator[None]:
    """A mirror and a move of one run may want the same file: the second one raises StoreUnavailable. The folder is
    removed when it is empty."""
    parts.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = os.open(parts, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreUnavailable(f"files of {parts.name} are being copied already") from None
        try:
            yield
        finally:
            with suppress(OSError):  # a part of a file is there
                parts.rmdir()
    finally:
        os.close(folder)
