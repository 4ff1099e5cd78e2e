"""A copy of a SQLite database that is being written to, of one instant and whole.

SQLite's own online backup reads under one snapshot, so a serving supervisor neither waits nor is waited for. The copy
is written beside its place and appears there by rename, readable by its owner only: it holds commands, environments
and hashes of tokens. PostgreSQL brings `pg_dump` along, which does the same for all that it keeps.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from sqlalchemy.engine import make_url

from supervisor.domain.errors import SettingsRefused
from supervisor.ports.store import StoreDown


def copy_to(database_url: str, target: Path) -> int:
    """The number of bytes written. Raises SettingsRefused where this database has a tool of its own or `target` is
    there already, StoreDown where it cannot be read, OSError where the copy cannot be written."""
    url = make_url(database_url)
    if url.get_backend_name() != "sqlite":
        raise SettingsRefused(
            "spot backup copies SQLite. This supervisor keeps its runs in PostgreSQL, whose own tool copies them: "
            "pg_dump --format=custom --file=FILE DATABASE"
        )
    if target.exists():
        raise SettingsRefused(f"{target} is there already; a backup replaces nothing.", {"path": str(target)})
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        _copy(Path(url.database or ""), draft)
        size_bytes = draft.stat().st_size
        os.link(draft, target)  # unlike a rename it replaces nothing that has come meanwhile
    finally:
        draft.unlink(missing_ok=True)
    return size_bytes


def _copy(source: Path, draft: Path) -> None:
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as old,
            contextlib.closing(sqlite3.connect(draft)) as new,
        ):
            old.backup(new)
            new.execute("PRAGMA journal_mode=DELETE")  # one file, with nothing beside it
            verdict = new.execute("PRAGMA integrity_check").fetchone()[0]
    except sqlite3.Error as error:
        raise StoreDown(f"{source} could not be copied: {error}") from error
    if verdict != "ok":
        raise StoreDown(f"{source} is damaged, so no copy was made: {verdict}")
    with draft.open("rb") as written:
        os.fsync(written.fileno())
