"""Whose data folder this is: a database that is new beside a folder or a store that is not does not start.

A database that was deleted, has lost its write-ahead log or has zero bytes would silently become a new supervisor: live
machines would be foreign to it, and nobody would release or resume anything. So the supervisor's id stands in the data
folder too (DATA_DIR/supervisor-id), in the papers of the machines on this computer, and in the object store (the name
of the canary that each look writes). Folders of earlier versions have no id file yet; they get it at the next start.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from supervisor.contract import runfiles
from supervisor.domain.errors import DatabaseNew, DatabaseOther, SettingsRefused, Unavailable
from supervisor.ports.objectstore import ObjectReader, StoreUnavailable
from supervisor.services.access.tokens import write_private

FILE = "supervisor-id"
ID = re.compile(r"[0-9a-f]{16}\b")
RESTORE = "Restore the database from a backup (docs/operations.md#backup-and-restore)"
START_OVER = "or start over on purpose with `spot serve --start-over`: it will not know the runs and machines of before"

Opened = Callable[[], AbstractContextManager[ObjectReader | None]]


class Ownership:
    """`objects` opens the object store; it gives None where there is none yet."""

    def __init__(self, data_dir: Path, objects: Opened, start_over: bool = False) -> None:
        self._data_dir = data_dir
        self._file = data_dir / FILE
        self._objects = objects
        self._start_over = start_over

    def allow_new(self) -> None:
        """Before a database is made. Raises DatabaseNew where something knows a supervisor, Unavailable where the store
        cannot be read: that is not the same as empty."""
        if self._start_over:
            return
        mark = self._in_folder() or next(self._of_machines(), None) or self._in_store()
        if mark is not None:
            place, owner_id = mark
            raise DatabaseNew(
                f"The database is new or empty, but {place} belongs to supervisor {owner_id}. Nothing was started or "
                f"changed. {RESTORE}, {START_OVER}.",
                {"place": place, "supervisor_id": owner_id},
            )

    def keep(self, supervisor_id: str) -> None:
        """The folder belongs to this database from now on. Raises DatabaseOther where it belongs to another one,
        SettingsRefused."""
        mark = self._in_folder()
        if mark is not None and mark[1] == supervisor_id:
            return
        if mark is not None and not self._start_over:
            raise DatabaseOther(
                f"The database belongs to supervisor {supervisor_id}, but {mark[0]} to {mark[1]}. Nothing was "
                f"started or changed. Name the database of this folder. {RESTORE}, {START_OVER}.",
                {"place": mark[0], "supervisor_id": mark[1], "database_id": supervisor_id},
            )
        try:
            write_private(self._file, supervisor_id)
        except OSError as error:
            raise _unusable(self._file, error) from None

    def _in_folder(self) -> tuple[str, str] | None:
        try:
            text = self._file.read_text(encoding="ascii", errors="replace").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self._file, error) from None
        return f"the data folder {self._data_dir}", text

    def _of_machines(self) -> Iterator[tuple[str, str]]:
        """Of machines on this computer. A paper that cannot be read names nobody: the provider tells of it."""
        for paper in sorted((self._data_dir / "machines").glob("*/job.json")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                owner_id = str(json.loads(paper.read_bytes())["supervisor_id"])
                yield f"the machine {paper.parent.name} in {self._data_dir}", owner_id

    def _in_store(self) -> tuple[str, str] | None:
        prefix = runfiles.canary("")
        try:
            with self._objects() as objects:
                for page in objects.pages(prefix) if objects is not None else ():
                    for info in page.objects:
                        if match := ID.match(info.key.removeprefix(prefix)):
                            return f"the object store {objects.url if objects else ''}", match[0]
        except StoreUnavailable as error:
            raise Unavailable(
                f"The database is new, and the object store cannot be read: {error}. So nobody knows whether the "
                "store belongs to another supervisor, and nothing was started. `spot doctor` says what is wrong; "
                "`spot serve --start-over` starts all the same."
            ) from None
        return None


def _unusable(path: Path, error: OSError) -> SettingsRefused:
    return SettingsRefused(
        f"{path}: {error.strerror}. The supervisor's id is kept there; the data folder must be the supervisor's own.",
        {"path": str(path)},
    )
