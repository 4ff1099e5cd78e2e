"""One daemon per data folder: an exclusive lock that the kernel gives back when its holder dies, however it dies.

The folder is the supervisor's own: its files are private from their creation, whatever the mode of the folder, and none
of them is opened through a link, which somebody else may have laid there.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from pathlib import Path

from supervisor.domain.errors import DataDirHeld, SettingsRefused
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

FILES = ("lock", "supervisor-id", "admin-token", "server.json", "starting.json", "google-prices.json")
FOLDERS = ("objects", "machines", "local", "imports")
OTHERS = 0o077


def make_private(folder: Path, database: Path | None) -> None:
    """Files of the supervisor in its data folder that others may read, left by an earlier version or a restore, are
    private from now on, and so is a new database: SQLite gives its log the mode of the file. Call it before the
    database is opened: closing a descriptor of it would give back SQLite's own locks. `database` None = a server's."""
    changed = []
    if database is not None:
        with contextlib.suppress(OSError):  # it is there already, or SQLite says better why it cannot be
            os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for path in _ours(folder, database):
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # not there, or a link: what lies behind it is not ours
            continue
        try:
            mode = os.fstat(file).st_mode
            if mode & OTHERS:
                os.fchmod(file, mode & 0o7700)
                changed.append(path.name)
        except OSError as error:
            log.warning(
                "others can read a file of the data folder, and its mode could not be changed",
                extra={telemetry.ACTION: "make_private", "path": str(path), telemetry.ERROR: str(error)},
            )
        finally:
            os.close(file)
    if changed:
        told = {telemetry.ACTION: "make_private", "data_dir": str(folder), "changed": ", ".join(changed)}
        log.warning("Others could read files of the data folder; they are private now.", extra=told)


def readable_by_others(folder: Path, database: Path | None) -> list[str]:
    """Names of what others can read there. Empty where they cannot enter the folder at all. Raises OSError."""
    if not folder.exists() or not folder.stat().st_mode & OTHERS:
        return []
    return [path.name for path in _ours(folder, database) if path.exists() and path.stat().st_mode & OTHERS]


def _ours(folder: Path, database: Path | None) -> list[Path]:
    parts = [] if database is None else [Path(f"{database}{part}") for part in ("", "-wal", "-shm")]
    return [*parts, *(folder / name for name in (*FILES, *FOLDERS))]


class FolderLock:
    """Held from `take` until `give_back` or the end of the process. The file tells the holder's pid to people."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._file: int | None = None

    def take(self) -> None:
        """Makes the folder where it is missing. Raises DataDirHeld, naming the holder's pid, when another process
        serves this folder, and SettingsRefused when there can be no such folder."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            linked = f"{self._path.name} in it is a link" if self._path.is_symlink() else ""
            raise SettingsRefused(
                f"The data folder {self._path.parent} cannot be used: {linked or error.strerror or error}. "
                "Name a folder that can be written, by --data-dir or SPOT_DATA_DIR.",
                {"data_dir": str(self._path.parent)},
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(file)
            raise DataDirHeld(
                f"The data folder {self._path.parent} is served by pid {holder} already. "
                f"Stop that process first (kill {holder}), or give this one its own --data-dir.",
                {"pid": holder, "data_dir": str(self._path.parent)},
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def give_back(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
