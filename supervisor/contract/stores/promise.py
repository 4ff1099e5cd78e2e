"""The promise of an object store: durable objects with generations, for the supervisor and for the agent.

Shared with the agent: Python 3.8, standard library only. Every write is atomic: a reader sees the old object or the new
one, never a mixture. Each content of a key has a generation, an opaque string that differs from every other generation
of that key. Listings are strongly consistent. "Could not read" is not "absent": every outcome that is neither a clear
success nor a clear "not there" raises StoreUnavailable.
"""

from __future__ import annotations

import os
from typing import Callable, Iterator, Mapping, NamedTuple, Optional, Protocol, Tuple, Union

StrPath = Union[str, "os.PathLike[str]"]
Generation = Optional[str]  # as a condition; None = any
Metadata = Optional[Mapping[str, str]]
IsKnown = Optional[Callable[[str, str], bool]]  # (key, generation) -> the caller has its metadata; None = of none

ABSENT = "0"  # if_generation=ABSENT: only if no object has this key (the meaning generation 0 has in a bucket)
NO_METADATA: Mapping[str, str] = {}
MAX_PAGE = 1000
MAX_KEY_BYTES = 512
MAX_PART_BYTES = 255  # every file system accepts a name of this length
MAX_METADATA_BYTES = 8192  # all keys and values of one object; the limit of Cloud Storage


class ObjectMissing(Exception):
    """No object has this key; a definite response of the store."""


class PreconditionFailed(Exception):
    """The object does not have the given generation; nothing was changed."""


class StoreUnavailable(Exception):
    """The store did not respond, or not clearly. This says nothing about whether the object exists."""


class StoreMissing(StoreUnavailable):
    """There is no such store: the bucket does not exist. What it may have held stays unknown."""


class StoreForbidden(StoreUnavailable):
    """The store denies this account access; a retry does not help."""


class StoreFull(StoreUnavailable):
    """No space, or no inodes, for this write; the old object is untouched."""


class ObjectInfo(NamedTuple):
    key: str
    size: int
    generation: str
    updated: float  # epoch seconds by the store's own clock
    metadata: Mapping[str, str] = NO_METADATA


class Page(NamedTuple):
    """Part of a listing, in key order. `server_time` is the store's clock when the page was made."""

    objects: Tuple[ObjectInfo, ...]
    server_time: float


class ObjectReader(Protocol):
    """The reading half of a store, each method as in ObjectStore: for locations that we may not write."""

    url: str

    def read(self, key: str, offset: int = 0, length: Optional[int] = None) -> Iterator[bytes]: ...

    def stat(self, key: str) -> ObjectInfo: ...

    def pages(self, prefix: str, page_size: int = MAX_PAGE) -> Iterator[Page]: ...


class ObjectStore(Protocol):
    """Keys: relative, `/` between parts, no empty part, no `.` or `..`; ValueError for any other key. Cloud Storage
    also raises it for a key with a line break, which it cannot keep."""

    url: str  # it names a run's cell, for example file:///var/lib/spot/objects

    def put(self, key: str, data: bytes, if_generation: Generation = None, metadata: Metadata = None) -> ObjectInfo:
        """Write the object. PreconditionFailed when `if_generation` is given and is not the present generation;
        ValueError for more metadata than MAX_METADATA_BYTES."""
        ...

    def put_file(self, key: str, path: StrPath, if_generation: Generation = None) -> ObjectInfo:
        """The same from a file, without holding it in memory."""
        ...

    def get(self, key: str) -> Tuple[bytes, ObjectInfo]:
        """Content and info of the same generation. ObjectMissing, StoreUnavailable."""
        ...

    def read(self, key: str, offset: int = 0, length: Optional[int] = None) -> Iterator[bytes]:
        """Stream bytes [offset, offset+length) of one generation; nothing past the end."""
        ...

    def stat(self, key: str) -> ObjectInfo:
        """ObjectMissing, StoreUnavailable."""
        ...

    def pages(self, prefix: str, page_size: int = MAX_PAGE, is_known: IsKnown = None) -> Iterator[Page]:
        """All objects whose key begins with `prefix`, in key order, at most `page_size` (≤ 1000) per page. There is
        always one page at least, so the caller always gets a `server_time`. StoreUnavailable may come at any page: then
        the whole listing is worthless, not partial.

        A caller that keeps what it reads gives `is_known`. Where it returns True, `metadata` may be empty: the store
        need neither read it again nor keep it in memory."""
        ...

    def delete(self, key: str, if_generation: Generation = None) -> bool:
        """True when an object was deleted, False when there was none. PreconditionFailed as in `put`."""
        ...


def check_key(key: str) -> None:
    """ValueError unless `key` is relative, `/` between parts, no part empty, `.` or `..`, and short enough."""
    parts = _checked_bytes(key, "key").split(b"/")
    for part in parts:
        if part in {b"", b".", b".."}:
            raise ValueError("a key has no empty part, no '.' and no '..': %r" % key)
        if len(part) > MAX_PART_BYTES:
            raise ValueError("a part of a key is longer than %d bytes: %r..." % (MAX_PART_BYTES, key[:40]))


def check_object_name(key: str) -> None:
    """Also ValueError for a line break, which Cloud Storage does not allow."""
    check_key(key)
    if "\n" in key or "\r" in key:
        raise ValueError("a key has no line break: %r" % key[:40])


def is_key(key: str) -> bool:
    """False for other names in a bucket, such as the "folders" of a cloud's console: no method accepts them."""
    try:
        check_key(key)
    except ValueError:
        return False
    return True


def check_prefix(prefix: str) -> None:
    """ValueError unless a key could begin with `prefix`, which may end anywhere, in the middle of a part too."""
    folder, slash, _ = prefix.rpartition("/")
    _checked_bytes(prefix, "prefix")
    if slash:
        check_key(folder)


def check_metadata(metadata: Mapping[str, str]) -> None:
    """ValueError when keys and values together are longer than MAX_METADATA_BYTES."""
    size = sum(len(text.encode("utf-8")) for pair in metadata.items() for text in pair)
    if size > MAX_METADATA_BYTES:
        raise ValueError("metadata has at most %d bytes, not %d" % (MAX_METADATA_BYTES, size))


def check_page_size(page_size: int) -> None:
    if not 1 <= page_size <= MAX_PAGE:
        raise ValueError("page_size is from 1 to %d, not %d" % (MAX_PAGE, page_size))


def _checked_bytes(text: str, what: str) -> bytes:
    try:
        raw = text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a %s is UTF-8 text: %r" % (what, text[:40])) from None
    if len(raw) > MAX_KEY_BYTES:
        raise ValueError("a %s is longer than %d bytes: %r..." % (what, MAX_KEY_BYTES, text[:40]))
    if b"\x00" in raw:
        raise ValueError("a %s has no NUL: %r" % (what, text[:40]))
    return raw
