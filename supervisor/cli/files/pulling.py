"""Files from a server onto this disk: nothing outside the folder, no incomplete file, no byte twice.

The names come from outside and are not trusted: each folder is opened without following links, and a finished file gets
its name by a rename inside the open folder. A part lies in DIR/.spot-pull under the hash of its name, beside the tag of
its content, so that a later pull fetches only the rest of that content. A file is complete when its size and checksum
are those of the list.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

PARTS = ".spot-pull"
PULLED = ".spot-pulled"  # marks a folder that a pull has created: it holds results, so it is not code (pack)
_GENERATION = re.compile(r"results/g(\d{1,9})/.")
CHUNK_BYTES = 1 << 20
PART_NAME_BYTES = 255
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileRefused(Exception):
    """This file cannot be fetched; the text says why, without the file's name."""


class Mismatch(FileRefused):
    """The content is not the one of the list."""


@dataclass(frozen=True)
class Wanted:
    """One entry of the list. `sha256` None: the server does not know it. `dropped`: how many leading folders of the
    path are left out on this disk."""

    path: str
    kind: str
    size: int
    sha256: str | None
    dropped: int = 0


def wanted(entry: Any, kinds: Collection[str]) -> Wanted:
    """An entry of the server's list. ValueError for anything else, and for a kind that was not requested."""
    path, kind, size, sha256 = entry["path"], entry["kind"], entry["size"], entry["sha256"]
    plain = isinstance(path, str) and kind in kinds and type(size) is int and size >= 0
    if not plain or not (sha256 is None or isinstance(sha256, str)):
        raise ValueError("not an entry of a list of files")
    return Wanted(path, kind, size, sha256)


def laid_out(listed: list[Wanted], kinds: Collection[str]) -> list[Wanted]:
    """Results alone lie flat in DIR; below their generation (`g1`) only where there are several. With other kinds every
    file keeps its whole path, and so does a result whose name this folder needs itself."""
    if set(kinds) != {"results"}:
        return listed
    several = len({match.group(1) for file in listed if (match := _GENERATION.match(file.path))}) > 1
    return [replace(file, dropped=_dropped(file.path, several)) for file in listed]


def _dropped(path: str, several: bool) -> int:
    if _GENERATION.match(path) is None or (not several and path.split("/")[2] in (PARTS, PULLED)):
        return 0
    return 1 if several else 2


def results_folder(listed: list[Wanted]) -> str:
    """The folder of the newest generation's results in DIR."""
    generations = [(int(match.group(1)), file.dropped) for file in listed if (match := _GENERATION.match(file.path))]
    generation, dropped = max(generations, default=(0, 2))
    return "/".join(["results", f"g{generation}"][dropped:]) or "."


def parts_of(file: Wanted) -> list[str]:
    """The checked folders and name on this disk. Raises FileRefused for a name that a run's file cannot have."""
    parts = file.path.split("/")
    if parts[0] != file.kind or len(parts) < 2:
        raise FileRefused("its name does not match its kind")
    for part in parts:
        if part in ("", ".", "..") or "\0" in part or not part.isprintable():
            raise FileRefused("its name leads out of the folder or cannot be printed")
        if len(os.fsencode(part)) > PART_NAME_BYTES:
            raise FileRefused("its name is too long for this disk")
    return parts[file.dropped :]


class Destination:
    """The folder DIR, created if needed. One pull at a time: FileRefused while another one holds it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not os.listdir(self._root):
                os.close(os.open(PULLED, os.O_WRONLY | os.O_CREAT | _OPEN, 0o666, dir_fd=self._root))
            self._parts = _below(self._root, PARTS)
        except BaseException:
            os.close(self._root)
            raise
        try:
            fcntl.flock(self._parts, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise FileRefused("another pull into this folder is running") from None

    def close(self) -> None:
        os.close(self._parts)
        os.close(self._root)

    def clear(self) -> None:
        """Remove the folder of the parts."""
        for name in os.listdir(self._parts):
            with suppress(OSError):
                os.unlink(name, dir_fd=self._parts)
        with suppress(OSError):
            os.rmdir(PARTS, dir_fd=self._root)

    def has(self, file: Wanted) -> bool:
        """The complete file exists already, by size and checksum. Raises FileRefused, OSError."""
        if file.sha256 is None:
            return False
        *folders, name = parts_of(file)
        with self._inside(folders) as folder:
            try:
                descriptor = os.open(name, os.O_RDONLY | _OPEN, dir_fd=folder)
            except OSError:
                return False  # absent, or a link, which a rename replaces
        with os.fdopen(descriptor, "rb") as content:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size != file.size:
                return False
            return hashlib.file_digest(content, "sha256").hexdigest() == file.sha256

    def part(self, file: Wanted) -> Part:
        """The bytes fetched before, if any. Raises FileRefused, OSError."""
        parts_of(file)
        return Part(self._parts, file)

    def settle(self, part: Part) -> None:
        """Give the finished part its name. Raises FileRefused, OSError."""
        *folders, name = parts_of(part.file)
        with self._inside(folders) as folder:
            os.rename(part.name, name, src_dir_fd=self._parts, dst_dir_fd=folder)
            os.fsync(folder)

    @contextmanager
    def _inside(self, folders: list[str]) -> Iterator[int]:
        """The descriptor of a folder below DIR; missing folders are created, links are not followed."""
        descriptor = os.dup(self._root)
        try:
            for folder in folders:
                below = _below(descriptor, folder)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)


def _below(folder: int, name: str) -> int:
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except NotADirectoryError:
        raise FileRefused(f"{name} on its path is a link or a file, not a folder") from None
    except OSError as error:
        raise FileRefused(f"{name} on its path cannot be opened: {error.strerror}") from None


class Part:
    """An incomplete file: `size` bytes of the content `tag` ("" = unknown), hashed in `digest`."""

    def __init__(self, parts: int, file: Wanted) -> None:
        self.file = file
        self.name = hashlib.sha256(file.path.encode("utf-8", "surrogatepass")).hexdigest()
        self._folder = parts
        descriptor = os.open(self.name, os.O_RDWR | os.O_CREAT | _OPEN, 0o666, dir_fd=parts)
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        self.tag = self._kept_tag()
        self.digest = hashlib.sha256()
        self.size = 0
        if not self.tag:
            self.restart("")
            return
        for chunk in iter(lambda: self._file.read(CHUNK_BYTES), b""):
            self.digest.update(chunk)
            self.size += len(chunk)

    def restart(self, tag: str) -> None:
        """Begin again, with the content `tag`."""
        self._file.seek(0)
        self._file.truncate()
        self.digest, self.size, self.tag = hashlib.sha256(), 0, tag
        note = os.open(self._note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _OPEN, 0o666, dir_fd=self._folder)
        with os.fdopen(note, "w", encoding="utf-8") as target:
            json.dump({"tag": tag, "size": self.file.size, "sha256": self.file.sha256}, target)

    def write(self, chunk: bytes) -> None:
        rest = memoryview(chunk)
        while rest:
            rest = rest[self._file.write(rest) :]
        self.digest.update(chunk)
        self.size += len(chunk)

    def finish(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def drop(self) -> None:
        """Close it and delete what was fetched."""
        self.close()
        for name in (self.name, self._note):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._folder)

    @property
    def _note(self) -> str:
        return self.name + ".json"

    def _kept_tag(self) -> str:
        """The tag, where the part belongs to the content that the list has now."""
        try:
            descriptor = os.open(self._note, os.O_RDONLY | _OPEN, dir_fd=self._folder)
            with os.fdopen(descriptor, encoding="utf-8") as source:
                note = json.load(source)
            same = (note["size"], note["sha256"]) == (self.file.size, self.file.sha256)
            tag = str(note["tag"])
            return tag if same and tag.isprintable() else ""
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return ""
