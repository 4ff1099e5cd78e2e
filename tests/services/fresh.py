"""A new SQLite database at once: the file that bringing one up leaves, made once in a process and copied from then on.

For tests that are not about how a database comes to be: bringing it up takes ten times as long as opening it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from supervisor.storage.store import SqlStore, open_store


def open_fresh(path: Path, channels: Sequence[str] = ("log",)) -> SqlStore:
    """The store of a new database at this path; there must be no file yet."""
    with path.open("xb") as target:
        target.write(_brought_up())
    return open_store(f"sqlite:///{path}", False, channels)


@cache
def _brought_up() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "new.db")
        open_store(f"sqlite:///{path}", migrate=True).close()
        (left,) = Path(folder).iterdir()  # the last who closes it leaves one file
        return left.read_bytes()
