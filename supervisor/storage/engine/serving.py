"""Who serves a data folder, and who has a port: seen without taking either. And where a database would be.

Whether the folder's lock is held stands in /proc/locks (proc(5)); taking it, even for a moment, could make a supervisor
that starts just then believe that another one runs.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from sqlalchemy.engine import make_url

from supervisor.domain.findings import FAIL, OK, WARN, Finding

LOCKS = Path("/proc/locks")
CONNECT_S = 0.5


def holder(data_dir: Path) -> str | None:
    """The pid of the process that serves this folder, "unknown" where only that it is held is known; None = nobody.
    Raises OSError."""
    path = data_dir / "lock"
    try:
        found = path.stat()
        pid = path.read_text(encoding="ascii", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in LOCKS.read_text(encoding="ascii").splitlines():
        words = line.split()
        # Btrfs and overlays show another device there than stat() does: then the holder's pid must agree instead.
        same_file = wanted in words or any(
            word.endswith(f":{found.st_ino}") for word in words if pid in words
        )
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
