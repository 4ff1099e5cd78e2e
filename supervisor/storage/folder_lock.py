"""One daemon per data folder: an exclusive lock that the kernel gives back when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from supervisor.domain.errors import DataDirHeld, SettingsRefused


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
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SettingsRefused(
                f"The data folder {self._path.parent} cannot be used: {error.strerror or error}. "
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
