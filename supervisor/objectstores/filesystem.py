"""Folders of this computer as object stores: our own, and those of others, which are only read.

Our own store is the folder store of the contract: the supervisor and the agents of one machine write to the same
folder, so there is one implementation of its locking. A plain folder, such as a copy of another bucket, needs no marker
and contains nothing of ours. Links that lead out of it are not followed, so that a name cannot reach other files of
this computer.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from supervisor.contract.stores.folder import FolderStore
from supervisor.ports.objectstore import MAX_PAGE, ObjectInfo, ObjectMissing, Page, StoreMissing, StoreUnavailable

PIECE_BYTES = 1 << 20


class FilesystemStore(FolderStore):
    """Our own objects in the folder `root`, which `create` made once; until then every call is StoreUnavailable."""

    @property
    def folder(self) -> Path:
        return Path(self.root)


class PlainFolder:
    """ObjectReader of ports/objectstore.py."""

    def __init__(self, url: str) -> None:
        """ValueError for any URL but file:///FOLDER."""
        parts = urlsplit(url)
        if parts.scheme != "file" or parts.netloc or not parts.path.startswith("/") or parts.query or parts.fragment:
            raise ValueError("a folder of this computer is file:///FOLDER")
        self.root = Path(os.path.realpath(unquote(parts.path)))
        self.url = url

    def stat(self, key: str) -> ObjectInfo:
        try:
            file_stat = os.stat(self._path(key))
        except (FileNotFoundError, NotADirectoryError):
            self._require_root()
            raise ObjectMissing(key) from None
        except OSError as error:
            raise self._unreadable(key, error) from error
        if not stat.S_ISREG(file_stat.st_mode):
            raise ObjectMissing(key)
        generation = f"{file_stat.st_mtime_ns}-{file_stat.st_size}"
        return ObjectInfo(key, file_stat.st_size, generation, file_stat.st_mtime)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        self.stat(key)
        try:
            with open(self._path(key), "rb") as file:
                file.seek(offset)
                left = length
                while piece := file.read(PIECE_BYTES if left is None else min(PIECE_BYTES, left)):
                    yield piece
                    left = None if left is None else left - len(piece)
        except OSError as error:
            raise self._unreadable(key, error) from error

    def pages(self, prefix: str, page_size: int = MAX_PAGE) -> Iterator[Page]:
        above = prefix.rpartition("/")[0]
        self._require_root()
        keys = []
        for folder, _, names in os.walk(self._path(above) if above else self.root, onerror=self._refuse):
            for name in names:
                key = (Path(folder) / name).relative_to(self.root).as_posix()
                if key.startswith(prefix) and key.isprintable():
                    keys.append(key)
        keys.sort()
        now = time.time()
        for start in range(0, max(1, len(keys)), page_size):
            yield Page(tuple(self._infos(keys[start : start + page_size])), now)

    def _infos(self, keys: list[str]) -> Iterator[ObjectInfo]:
        for key in keys:
            try:
                yield self.stat(key)
            except ObjectMissing:
                continue

    def _path(self, key: str) -> Path:
        if not key or "\x00" in key or any(part in ("", ".", "..") for part in key.split("/")):
            raise ValueError("a key has no empty part, no '.' and no '..'")
        path = Path(os.path.realpath(self.root / key))
        if not path.is_relative_to(self.root):
            raise ObjectMissing(key)
        return path

    def _require_root(self) -> None:
        if not self.root.is_dir():
            raise StoreMissing(f"{self.url}: there is no such folder")

    def _refuse(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise self._unreadable("", error)

    def _unreadable(self, key: str, error: OSError) -> StoreUnavailable:
        return StoreUnavailable(f"{self.url}: {key!r} cannot be read: {error.strerror}")
