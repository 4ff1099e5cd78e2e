"""One file of a run as a stream of bytes, or a range of it: all of one generation of the object, or the stream breaks.

A read opens one generation. The object's metadata is read before and after it was opened, so the headers (size, tag,
checksum) and the bytes always belong to the same content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from supervisor.domain.errors import FileChanged, RangeRefused
from supervisor.domain.run import Run
from supervisor.ports.objectstore import ObjectInfo, ObjectMissing, ObjectStore
from supervisor.services.files.files import find_file, unknown

OPENINGS = 3  # of an object that is being written
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})\Z")


class CutShort(Exception):
    """The object returned fewer bytes than it has: the connection is dropped, because the response has started."""


@dataclass(frozen=True, slots=True)
class FileStream:
    """Bytes [begin, end) of a file of `size` bytes. `part`: the response is the requested range. `sha256`: of the whole
    file, None = not known. `tag`: differs for each content. `info`: of the object."""

    name: str
    size: int
    tag: str
    sha256: str | None
    begin: int
    end: int
    part: bool
    chunks: Iterator[bytes]
    info: ObjectInfo


def open_file(
    objects: ObjectStore, run: Run, path: str, *, range_: str = "", if_range: str = "", body: bool = True
) -> FileStream:
    """`range_`, `if_range`: the headers of the request, "" = none. `body` False: without bytes. Raises FileUnknown,
    RangeRefused, FileChanged, StoreUnavailable."""
    file = find_file(objects, run, path)
    try:
        stream = open_object(objects, file.key, range_=range_, if_range=if_range, body=body)
    except (ObjectMissing, ValueError):
        raise unknown(run, path) from None
    if stream is None:
        raise FileChanged(f"{path} of {run.run_id} is being written. Retry.", {"run_id": run.run_id})
    sha256 = file.sha256 if file.size == stream.size else None
    return replace(stream, name=path.rpartition("/")[2], sha256=sha256)


def open_object(
    objects: ObjectStore, key: str, *, range_: str = "", if_range: str = "", body: bool = True
) -> FileStream | None:
    """The same for any object; None: it is replaced faster than it can be opened. Raises ObjectMissing, ValueError,
    RangeRefused, StoreUnavailable."""
    for _ in range(OPENINGS):
        info = objects.stat(key)
        tag = f'"{info.generation}"'
        wanted = _wanted(range_, info.size) if if_range in ("", tag) else None
        begin, end = wanted or (0, info.size)
        chunks = _opened(objects, info, begin, end) if body else iter(())
        if chunks is not None:
            name = key.rpartition("/")[2]
            return FileStream(name, info.size, tag, None, begin, end, wanted is not None, chunks, info)
    return None


def _opened(objects: ObjectStore, info: ObjectInfo, begin: int, end: int) -> Iterator[bytes] | None:
    """The bytes of this generation; None = the object has another generation now."""
    source = objects.read(info.key, begin, end - begin)
    first = next(source, b"")
    if objects.stat(info.key).generation != info.generation:
        return None
    return _whole(first, source, end - begin, info.key)


def _whole(first: bytes, source: Iterator[bytes], length: int, key: str) -> Iterator[bytes]:
    left = length - len(first)
    if first:
        yield first
    for chunk in source:
        left -= len(chunk)
        yield chunk
    if left:
        raise CutShort(f"{key} returned {length - left} of {length} bytes")


def _wanted(range_: str, size: int) -> tuple[int, int] | None:
    """[begin, end) of one range of bytes; None: no range, or another form, which a server may ignore (RFC 9110, section
    14.2). Raises RangeRefused for a range after the end."""
    match = _RANGE.match(range_.strip().lower())
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        begin, end = max(0, size - int(last)), size
    else:
        begin, end = int(first), min(int(last) + 1 if last else size, size)
        if last and int(last) < int(first):
            return None
    if begin >= size:
        raise RangeRefused(f"The file has {size} bytes; the requested range starts after its end.", {"size": size})
    return begin, end
