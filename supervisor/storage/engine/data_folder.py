"""The data folder: which process serves it, and which of its files other users must not read.

A folder has one daemon: the kernel frees its exclusive lock when the holder ends, in any way. Whether the lock is held
is read from /proc/locks (proc(5)): to take it, even for a moment, could make a starting supervisor believe that another
one runs. The supervisor's files are private from their creation, whatever the mode of the folder, and none is opened
through a link, which another user may have put there.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from pathlib import Path

from sqlalchemy.engine import make_url

from supervisor.domain.errors import DataDirHeld, SettingsRefused
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

LOCKS = Path("/proc/locks")
FILES = ("lock", "supervisor-id", "admin-token", "server.json", "starting.json")
PRICES = "*-prices.json"  # price lists of providers
FOLDERS = ("objects", "machines", "local", "imports")
OTHERS = 0o077


class FolderLock:
    """Held from `take` until `give_back` or the end of the process. The file has the holder's pid, for people."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._file: int | None = None

    def take(self) -> None:
        """Creates a missing folder. Raises DataDirHeld with the holder's pid when another process serves this folder,
        SettingsRefused when the folder cannot be used."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            linked = f"{self._path.name} in it is a link" if self._path.is_symlink() else ""
            raise SettingsRefused(
                f"The data folder {self._path.parent} cannot be used: {linked or error.strerror or error}. "
                "Set --data-dir or SPOT_DATA_DIR to a writable folder.",
                {"data_dir": str(self._path.parent)},
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(file, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(file)
            raise DataDirHeld(
                f"The data folder {self._path.parent} is served by pid {pid} already. "
                f"Stop that process first (kill {pid}), or use another --data-dir.",
                {"pid": pid, "data_dir": str(self._path.parent)},
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def give_back(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def holder(data_dir: Path) -> str | None:
    """The pid of the process that serves this folder; "unknown" = it has one, without a known pid; None = it has none.
    Raises OSError."""
    path = data_dir / "lock"
    try:
        lock_stat = path.stat()
        pid = path.read_text(encoding="ascii", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    wanted = f"{os.major(lock_stat.st_dev):02x}:{os.minor(lock_stat.st_dev):02x}:{lock_stat.st_ino}"
    for line in LOCKS.read_text(encoding="ascii").splitlines():
        words = line.split()
        # On btrfs and overlays the device differs from the one in stat(): then the holder's pid must be the same.
        same_file = wanted in words or any(word.endswith(f":{lock_stat.st_ino}") for word in words if pid in words)
        if "FLOCK" in words and same_file:
            return pid or "unknown"
    return None


def database_file(url: str) -> Path | None:
    """The file of an SQLite database; None = it is on a server."""
    parsed = make_url(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def shown(url: str) -> str:
    """The database's URL without its password."""
    return make_url(url).render_as_string(hide_password=True)


def make_private(folder: Path, database: Path | None) -> None:
    """Make the supervisor's files in its data folder private, after an earlier version or a restore, and create a new
    database as a private file: SQLite gives its log the same mode. Call it before the database is opened: to close a
    descriptor of the file would free SQLite's own locks. `database` None = it is on a server."""
    changed = []
    if database is not None:
        with contextlib.suppress(OSError):  # it exists, or SQLite gives a better error
            os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for path in _ours(folder, database):
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # missing, or a link, whose target is not ours
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
        fields = {telemetry.ACTION: "make_private", "data_dir": str(folder), "changed": ", ".join(changed)}
        log.warning("Others could read files of the data folder; they are private now.", extra=fields)


def readable_by_others(folder: Path, database: Path | None) -> list[str]:
    """The names of the files that other users can read. Empty if they cannot enter the folder. Raises OSError."""
    if not folder.exists() or not folder.stat().st_mode & OTHERS:
        return []
    return [path.name for path in _ours(folder, database) if path.exists() and path.stat().st_mode & OTHERS]


def _ours(folder: Path, database: Path | None) -> list[Path]:
    parts = [] if database is None else [Path(f"{database}{part}") for part in ("", "-wal", "-shm")]
    files = [*(folder / name for name in FILES), *sorted(folder.glob(PRICES))]
    return [*parts, *files, *(folder / name for name in FOLDERS)]
