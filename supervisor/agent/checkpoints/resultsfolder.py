"""Reading the results folder: every plain file in it, and nothing that lies outside, wherever a link leads.

The command owns the folder and may turn any part of it into a link between two of our calls, so a file counts by where
its open descriptor really is, not by the name it was opened under.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import contextmanager, suppress
from typing import Iterator, List, NamedTuple, Tuple

_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LEADS_OUT = "a link that leads out of the results folder is not followed"


class LeadsOut(OSError):
    """A link leads out of the results folder."""


class Signature(NamedTuple):
    """As long as it is the same, so is the content, but for writes in the clock tick of the last one."""

    device: int
    inode: int
    size: int
    mtime_ns: int


class Listing(NamedTuple):
    """Names relative to the folder, sorted. `folders`: those with nothing in them."""

    files: Tuple[str, ...]
    folders: Tuple[str, ...]


class ResultsFolder:
    """Made before the command starts: what the folder's own path leads to then is what counts as inside."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._real = os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path)

    def listing(self) -> Listing:
        """Links to files are listed, links to folders are not followed. A folder that is gone holds nothing. OSError:
        it cannot be read, or it is no folder any more."""
        if not os.path.lexists(self.path):
            return Listing((), ())
        os.close(os.open(self.path, _FOLDER))
        files: List[str] = []
        folders: List[str] = []
        _list(self.path, "", files, folders)
        return Listing(tuple(sorted(files)), tuple(sorted(folders)))

    @contextmanager
    def opened(self, name: str) -> Iterator[Tuple[str, Signature]]:
        """(a path that leads to the open file whatever becomes of its name, its signature). LeadsOut, OSError."""
        descriptor = os.open(os.path.join(self.path, name), _OPEN)
        try:
            own = "/proc/self/fd/%d" % descriptor
            place = os.readlink(own)
            # A file that was removed or replaced meanwhile is shown with a mark behind its old place.
            if not place.startswith(self._real + "/"):
                raise LeadsOut(LEADS_OUT)
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError("it is no plain file")
            yield own, signature_of(found)
        finally:
            os.close(descriptor)

    def empty(self) -> None:
        """A fresh folder, whatever lies there. OSError."""
        if os.path.islink(self.path) or os.path.isfile(self.path):
            os.unlink(self.path)
        with suppress(FileNotFoundError):
            shutil.rmtree(self.path)
        os.makedirs(self.path)


def signature_of(found: os.stat_result) -> Signature:
    return Signature(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _list(folder: str, below: str, files: List[str], folders: List[str]) -> None:
    with os.scandir(os.path.join(folder, below)) as entries:
        names = 0
        for entry in entries:
            names += 1
            if entry.is_dir(follow_symlinks=False):
                _list(folder, below + entry.name + "/", files, folders)
            elif entry.is_file():
                files.append(below + entry.name)
    if below and not names:
        folders.append(below[:-1])
