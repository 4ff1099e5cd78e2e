"""Disks that can be filled: a small one in memory where this system lets us mount it, else one that says it is full.

Database and object store lie on it; the machines' folders do not, so that the trainings' own files have room.
`python -m tests.acceptance.disks` is `python -m supervisor` with the second kind built in.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from supervisor.contract.stores import durable
from tests.acceptance.daemon import Daemon
from tests.acceptance.own_mounts import own_mounts

FULL = "STORY_DISK_FULL"  # environment: the file that says, while it is there, that the disk is full
_MOUNT = 'mount -t tmpfs -o size=16m tmpfs "$0"'


class RoomyDaemon(Daemon):
    """Its database and its object store lie in `disk`, a folder beside the data folder."""

    def __init__(self, data_dir: Path, environ: Mapping[str, str]) -> None:
        self.disk = data_dir.parent / "disk"
        self.disk.mkdir()
        places = {
            "SPOT_DATABASE_URL": f"sqlite:///{self.disk}/supervisor.db",
            "SPOT_STORE_URL": (self.disk / "objects").as_uri(),
        }
        super().__init__(data_dir, {**environ, **places})

    @property
    def seen(self) -> Path:
        """The disk as it is seen from here."""
        return self.disk


class SmallDisk(RoomyDaemon):
    """A tmpfs of 16 MiB in a mount namespace of the supervisor and its machines alone."""

    def __init__(self, data_dir: Path, environ: Mapping[str, str]) -> None:
        super().__init__(data_dir, environ)
        self.first = partial(own_mounts, _MOUNT, str(self.disk))

    @staticmethod
    def allowed(folder: Path) -> bool:
        command = ["unshare", "-Urm", "sh", "-c", _MOUNT, str(folder)]
        try:
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            return False

    @property
    def seen(self) -> Path:
        return Path(f"/proc/{self.pid}/root{self.disk}")

    def fill(self) -> None:
        """To the last byte."""
        with (self.seen / "filler").open("ab", buffering=0) as filler:
            for size in (1 << 20, 4096, 1):
                with suppress(OSError):
                    while True:
                        filler.write(b"\0" * size)

    def free(self) -> None:
        (self.seen / "filler").unlink()


class SayingFull(RoomyDaemon):
    """Writes to the object store and commits to the database fail with ENOSPC, as their adapters hear it."""

    module = "tests.acceptance.disks"

    def __init__(self, data_dir: Path, environ: Mapping[str, str]) -> None:
        self._flag = data_dir.parent / "full"
        super().__init__(data_dir, {**environ, FULL: str(self._flag)})

    def fill(self) -> None:
        self._flag.touch()

    def free(self) -> None:
        self._flag.unlink()


def _inject(flag: Path) -> None:
    def room() -> bool:
        return not flag.exists()

    def if_room(write: Callable[..., Any]) -> Callable[..., Any]:
        def write_or_refuse(*args: Any) -> Any:
            if room():
                return write(*args)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return write_or_refuse

    class Cursor(sqlite3.Cursor):
        def execute(self, statement: str, *args: Any) -> Cursor:
            if statement == "COMMIT" and self.connection.began == "BEGIN IMMEDIATE" and not room():
                raise sqlite3.OperationalError("database or disk is full")
            super().execute(statement, *args)
            if statement.startswith("BEGIN"):
                self.connection.began = statement
            return self

    class Connection(sqlite3.Connection):
        began = ""

        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

        def commit(self) -> None:
            self.cursor().execute("COMMIT")

    durable.write_all, durable.copy_all = if_room(durable.write_all), if_room(durable.copy_all)
    sqlite3.dbapi2.connect = partial(sqlite3.dbapi2.connect, factory=Connection)  # type: ignore[attr-defined]


if __name__ == "__main__":
    from supervisor.cli.main import main

    _inject(Path(os.environ.pop(FULL)))
    sys.exit(main())
