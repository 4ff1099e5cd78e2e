"""One daemon per data folder: an exclusive lock that the kernel gives back when its holder dies, however it dies.

The folder is the supervisor's own: its files are private from their creation, whatever the mode of the folder, and none
of them is opened through a link, which somebody else may have laid there.

Who serves a data folder, and who has a port: seen without taking either. And where a database would be.

Whether the folder's lock is held stands in /proc/locks (proc(5)); taking it, even for a moment, could make a supervisor
that starts just then believe that another one runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
from pathlib import Path

from sqlalchemy.engine import make_url

from supervisor.domain.errors import DataDirHeld, SettingsRefused
from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.telemetry import logs as telemetry

LOCKS = Path("/proc/locks")
CONNECT_S = 0.5


def holder(data_dir: Path) -> str | None:
    """The pid of the process that serves this folder, "unknown" where only that it is held is known; None = nobody.
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
        # Btrfs and overlays show another device there than stat() does: then the holder's pid must agree instead.
        same_file = wanted in words or any(word.endswith(f":{lock_stat.st_ino}") for word in words if pid in words)
        if "FLOCK" in words and same_file:
            return pid or "unknown"
    return None


def database_file(url: str) -> Path | None:
    """The file of an SQLite database; None = the database is a server's."""
    parsed = make_url(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def shown(url: str) -> str:
    """The database's address for people, without its password."""
    return make_url(url).render_as_string(hide_password=True)


def port_line(data_dir: Path, host: str, port: int) -> Finding:
    """Whether `spot serve` could listen, or already does."""
    try:
        pid = holder(data_dir)
    except OSError as error:
        fix = "ls -l on the folder shows whose it is"
        return Finding("port", WARN, "who serves the data folder was not read", str(error), fix)
    if pid is not None:
        return Finding("port", OK, f"the data folder {data_dir} is served already, by pid {pid}")
    if port == 0:
        return Finding("port", OK, "any free one is taken at the start")
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except TimeoutError as error:
        cause, fix = str(error), f"ss -ltnp 'sport = :{port}' shows who has it"
        return Finding("port", WARN, f"{host}:{port} does not say whether it is free", cause, fix)
    except OSError:
        return Finding("port", OK, f"{host}:{port} is free")
    cause = "another program listens there, so that `spot serve` could not start"
    fix = f"spot serve --port 0; or end that program: ss -ltnp 'sport = :{port}' shows it"
    return Finding("port", FAIL, f"{host}:{port} is taken", cause, fix)


log = logging.getLogger(__name__)

FILES = ("lock", "supervisor-id", "admin-token", "server.json", "starting.json")
PRICES = "*-prices.json"  # price lists that providers keep
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
        fields = {telemetry.ACTION: "make_private", "data_dir": str(folder), "changed": ", ".join(changed)}
        log.warning("Others could read files of the data folder; they are private now.", extra=fields)


def readable_by_others(folder: Path, database: Path | None) -> list[str]:
    """Names of what others can read there. Empty where they cannot enter the folder at all. Raises OSError."""
    if not folder.exists() or not folder.stat().st_mode & OTHERS:
        return []
    return [path.name for path in _ours(folder, database) if path.exists() and path.stat().st_mode & OTHERS]


def _ours(folder: Path, database: Path | None) -> list[Path]:
    parts = [] if database is None else [Path(f"{database}{part}") for part in ("", "-wal", "-shm")]
    files = [*(folder / name for name in FILES), *sorted(folder.glob(PRICES))]
    return [*parts, *files, *(folder / name for name in FOLDERS)]


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
