"""Durable objects with generations: the folder on disk, Google Cloud Storage.

Every write is atomic: a reader sees the old object or the new one, never a mixture. Each content of a key has a
generation, an opaque string that differs from every other generation of that key. Listings are strongly consistent.
Could not read is not absent: whatever is neither a clear answer nor a clear "not there" raises StoreUnavailable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

ABSENT = "0"  # if_generation=ABSENT: only if no object has this key (the meaning generation 0 has on GCS)
MAX_PAGE = 1000
MAX_KEY_BYTES = 512
MAX_METADATA_BYTES = 8192  # all keys and values of one object in UTF-8: Cloud Storage's limit


class ObjectMissing(Exception):
    """No object has this key; a definite answer of the store."""


class PreconditionFailed(Exception):
    """The object's generation is not the one given; nothing was changed."""


class StoreUnavailable(Exception):
    """The store did not answer, or not clearly. Says nothing about whether the object exists."""


class StoreMissing(StoreUnavailable):
    """There is no such store: the bucket does not exist. What it may have held stays unknown."""


class StoreForbidden(StoreUnavailable):
    """The store says that this account may not; asking again does not help."""


class StoreFull(StoreUnavailable):
    """No space, or no inodes, for this write; the old object is untouched."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    key: str
    size: int
    generation: str
    updated: float  # epoch seconds by the store's own clock
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a listing, in key order. `server_time` is the store's clock when the page was made."""

    objects: tuple[ObjectInfo, ...]
    server_time: float


class ObjectReader(Protocol):
    """The reading half of a store, each method as in ObjectStore: for places that are not ours to write."""

    url: str

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]: ...

    def stat(self, key: str) -> ObjectInfo: ...

    def pages(self, prefix: str, page_size: int = MAX_PAGE) -> Iterator[Page]: ...


class ObjectStore(Protocol):
    """Keys: relative, `/` between parts, no empty part, no `.` or `..`; ValueError for any other, and from Cloud
    Storage for one with a line break, which it cannot keep."""

    url: str  # what a run's cell is named by, e.g. file:///var/lib/spot/objects

    def put(
        self,
        key: str,
        data: bytes,
        if_generation: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        """Write the object. PreconditionFailed when `if_generation` is given and is not the present generation;
        ValueError for more metadata than MAX_METADATA_BYTES."""
        ...

    def put_file(self, key: str, path: Path, if_generation: str | None = None) -> ObjectInfo:
        """The same from a file, without holding it in memory."""
        ...

    def get(self, key: str) -> tuple[bytes, ObjectInfo]:
        """Content and info of one and the same generation. ObjectMissing, StoreUnavailable."""
        ...

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Stream bytes [offset, offset+length) of one generation. Past the end: nothing."""
        ...

    def stat(self, key: str) -> ObjectInfo:
        """ObjectMissing, StoreUnavailable."""
        ...

    def pages(self, prefix: str, page_size: int = MAX_PAGE) -> Iterator[Page]:
        """All objects whose key begins with `prefix`, in key order, at most `page_size` (≤ 1000) a page; at least
        one page, so that `server_time` is always told. StoreUnavailable may come at any page: then the whole
        listing is worthless, not partial."""
        ...

    def delete(self, key: str, if_generation: str | None = None) -> bool:
        """True when an object was deleted, False when there was none. PreconditionFailed as in `put`."""
        ...
