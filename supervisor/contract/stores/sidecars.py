"""Metadata of the folder store: one small file per object that has any, under names that cannot clash.

A file system swaps one name at a time, but an object and its metadata must change together. So a sidecar holds the
metadata of two generations, the present and the coming one, each on a line `<generation> <JSON>`: it is written
before the object gets its name, and whichever generation a reader has seen, its line is there. A writer killed in
between leaves a line that nobody asks for, and the next one drops it. A generation's metadata never changes, so it is
kept in memory: a listing in which nothing moved opens no sidecar.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from contextlib import suppress
from typing import Dict, Mapping, Optional, Tuple

from supervisor.contract.stores import durable
from supervisor.contract.stores.errors import StoreUnavailable

MAX_REMEMBERED = 20_000
_NONE: Mapping[str, str] = {}
_READ_BYTES = 1 << 16


def key_hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


class Sidecars:
    """The sidecars below `folder`; new ones are written in `tmp_folder` first. Raises OSError, and StoreUnavailable for
    a torn sidecar, which only a hand or a broken disk can make."""

    def __init__(self, folder: str, tmp_folder: str) -> None:
        self._folder = folder
        self._tmp_folder = tmp_folder
        self._remembered: Dict[str, Tuple[int, Mapping[str, str]]] = {}
        self._guard = threading.Lock()

    def of(self, key: str, generation: int, object_path: str) -> Optional[Mapping[str, str]]:
        """Metadata of this generation, {} when it has none; None when the object is of another one by now."""
        known = self._remembered.get(key)
        if known is not None and known[0] == generation:
            return known[1]
        line = self._line(key, generation)
        if line is None:
            # No line: the generation has no metadata, or it was replaced, twice, after the caller saw it.
            if os.stat(object_path).st_mtime_ns != generation:
                return None
            found = _NONE
        else:
            found = self._parsed(key, line)
        self._remember(key, generation, found)
        return found

    def write(self, key: str, generation: int, metadata: Mapping[str, str], present: Optional[int]) -> None:
        """Add the coming generation's line, durably, keeping the present one's. The caller holds the key's lock."""
        lines = [b"%d %s\n" % (generation, json.dumps(dict(metadata)).encode())]
        kept = None if present is None else self._line(key, present)
        if kept is not None and present is not None:
            lines.append(b"%d %s\n" % (present, kept))
        durable.replace_file(self._tmp_folder, self._path(key), b"".join(lines))

    def drop(self, key: str) -> None:
        """The object has no metadata any more; a line that stays is asked for by nobody. Under the key's lock."""
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
            found: Mapping[str, str] = json.loads(line)
        except ValueError as error:
            raise StoreUnavailable("the metadata of %r is torn: %s" % (key, self._path(key))) from error
        return found

    def _remember(self, key: str, generation: int, metadata: Mapping[str, str]) -> None:
        with self._guard:
            if key not in self._remembered and len(self._remembered) >= MAX_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[key] = (generation, metadata)
