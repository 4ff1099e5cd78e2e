"""An object store in memory whose every misfortune the test can switch on.

It keeps the promises of ports/objectstore.py (the conformance suite runs on it) and can be told to break the calm:
    away altogether         fail_reads = True, fail_writes = True
    away in one place       fail_prefixes.add("runs/a/"): reads, writes, and every listing that would pass there
    no space left           full = True
    the answer of a write   lose_answers = 1: that many writes are carried out and answered with StoreUnavailable
    its clock               step(-3600.0); time passes as the `now` given to it says
`calls` counts what was asked, by method and by (method, key or prefix).
"""

from __future__ import annotations

import bisect
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from supervisor.contract.stores.promise import check_key, check_metadata, check_page_size, check_prefix
from supervisor.ports.objectstore import (
    ABSENT,
    MAX_PAGE,
    IsKnown,
    ObjectInfo,
    ObjectMissing,
    Page,
    PreconditionFailed,
    StoreFull,
    StoreUnavailable,
)

CHUNK_BYTES = 1 << 16


class MemoryStore:
    def __init__(self, now: Callable[[], float] = time.time, url: str = "memory://test") -> None:
        self.url = url
        self.fail_reads = False
        self.fail_writes = False
        self.fail_prefixes: set[str] = set()
        self.full = False
        self.lose_answers = 0
        self.calls: Counter[str | tuple[str, str]] = Counter()
        self._now = now
        self._stepped_s = 0.0
        self._objects: dict[str, tuple[bytes, ObjectInfo]] = {}
        self._keys: list[str] = []  # sorted; code points sort as UTF-8 bytes do
        self._generations = itertools.count(1)
        self._guard = threading.RLock()

    def step(self, seconds: float) -> None:
        """Set the store's clock forward or back; no time passes."""
        self._stepped_s += seconds

    # --- the port ---------------------------------------------------------------------------------------------

    def put(
        self, key: str, data: bytes, if_generation: str | None = None, metadata: Mapping[str, str] | None = None
    ) -> ObjectInfo:
        check_key(key)
        check_metadata(metadata or {})
        with self._guard:
            self._count("put", key)
            self._require_writable(key)
            self._require(key, if_generation)
            if self.full:
                raise StoreFull(f"no space left for {key!r}")
            generation = str(next(self._generations))
            info = ObjectInfo(key, len(data), generation, self._time(), dict(metadata or {}))
            if key not in self._objects:
                bisect.insort(self._keys, key)
            self._objects[key] = (bytes(data), info)
            self._answer(key)
            return info

    def put_file(self, key: str, path: Path, if_generation: str | None = None) -> ObjectInfo:
        return self.put(key, Path(path).read_bytes(), if_generation)

    def get(self, key: str) -> tuple[bytes, ObjectInfo]:
        return self._found("get", key)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        if offset < 0 or (length is not None and length < 0):
            raise ValueError("offset and length are not negative")
        data, _ = self._found("read", key)
        end = len(data) if length is None else min(len(data), offset + length)
        for start in range(offset, end, CHUNK_BYTES):
            yield data[start : min(start + CHUNK_BYTES, end)]

    def stat(self, key: str) -> ObjectInfo:
        return self._found("stat", key)[1]

    def pages(self, prefix: str, page_size: int = MAX_PAGE, is_known: IsKnown = None) -> Iterator[Page]:
        check_prefix(prefix)
        check_page_size(page_size)
        after, told = None, False
        while True:
            with self._guard:
                self._count("pages", prefix)
                self._require_listable(prefix)
                keys = self._some_keys(prefix, after, page_size)
                page = Page(tuple(_told(self._objects[key][1], is_known) for key in keys), self._time())
            if keys or not told:
                yield page
            if len(keys) < page_size:
                return
            after, told = keys[-1], True

    def delete(self, key: str, if_generation: str | None = None) -> bool:
        check_key(key)
        with self._guard:
            self._count("delete", key)
            self._require_writable(key)
            if key not in self._objects:
                return False
            self._require(key, if_generation)
            del self._objects[key]
            self._keys.remove(key)
            self._answer(key)
            return True

    # --- inside -----------------------------------------------------------------------------------------------

    def _time(self) -> float:
        return self._now() + self._stepped_s

    def _count(self, method: str, name: str) -> None:
        self.calls[method] += 1
        self.calls[method, name] += 1

    def _found(self, method: str, key: str) -> tuple[bytes, ObjectInfo]:
        check_key(key)
        with self._guard:
            self._count(method, key)
            if self.fail_reads or key.startswith(tuple(self.fail_prefixes)):
                raise StoreUnavailable(f"cannot read {key!r}")
            if key not in self._objects:
                raise ObjectMissing(key)
            return self._objects[key]

    def _some_keys(self, prefix: str, after: str | None, at_most: int) -> list[str]:
        first = bisect.bisect_left(self._keys, prefix) if after is None else bisect.bisect_right(self._keys, after)
        keys = self._keys[first : first + at_most]
        return list(itertools.takewhile(lambda key: key.startswith(prefix), keys))

    def _require_listable(self, prefix: str) -> None:
        if self.fail_reads or any(prefix.startswith(p) or p.startswith(prefix) for p in self.fail_prefixes):
            raise StoreUnavailable(f"cannot list {prefix!r}")

    def _require_writable(self, key: str) -> None:
        if self.fail_writes or key.startswith(tuple(self.fail_prefixes)):
            raise StoreUnavailable(f"cannot write {key!r}")

    def _require(self, key: str, if_generation: str | None) -> None:
        present = self._objects[key][1].generation if key in self._objects else ABSENT
        if if_generation is not None and if_generation != present:
            raise PreconditionFailed(f"{key!r} is of generation {present}, not {if_generation}")

    def _answer(self, key: str) -> None:
        if self.lose_answers > 0:
            self.lose_answers -= 1
            raise StoreUnavailable(f"no answer about {key!r}")


def _told(info: ObjectInfo, is_known: IsKnown) -> ObjectInfo:
    """Without what the caller need not be told again: it must not use it."""
    return info._replace(metadata={}) if is_known is not None and is_known(info.key, info.generation) else info
