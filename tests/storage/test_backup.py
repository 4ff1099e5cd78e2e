"""Backups of a database in use."""

from __future__ import annotations

import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.events import Event, EventKind
from supervisor.ports.store import StoreDown
from supervisor.storage.engine import schema
from supervisor.storage.store import open_store


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def test_a_copy_made_in_mid_writing_opens_as_a_whole_store(tmp_path: Path) -> None:
    """The writer never pauses: a copy of the file alone would lack the changes in its log."""
    source, target = tmp_path / "a b%20c.db", tmp_path / "copy.db"
    store = open_store(url(source), migrate=True)
    ending, begun = threading.Event(), threading.Event()

    def write() -> None:
        while not ending.is_set():
            store.add_events(None, [Event(EventKind.PATROL, "All is well.")] * 20, 1.0)
            begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert begun.wait(30)
        size_bytes = schema.copy_to(url(source), target)
    finally:
        ending.set()
        writer.join()
    assert target.stat().st_size == size_bytes > 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith((".", "copy.db-"))] == []
    copy = open_store(url(target), migrate=False)
    try:
        assert copy.supervisor_id == store.supervisor_id
        found = copy.events(None, 0, 100_000)
        assert [one.id for one in found] == list(range(1, len(found) + 1))
        assert len(found) % 20 == 0, "whole transactions only"
        assert found
    finally:
        copy.close()
        store.close()


def test_nothing_is_replaced(tmp_path: Path) -> None:
    open_store(url(tmp_path / "a.db"), migrate=True).close()
    (tmp_path / "copy.db").write_text("precious")
    with pytest.raises(SettingsRefused, match="exists already"):
        schema.copy_to(url(tmp_path / "a.db"), tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "precious"


def test_what_comes_while_the_copy_is_made_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(url(tmp_path / "a.db"), migrate=True).close()
    copied = schema._copy

    def slow(source: Path, draft: Path) -> None:
        copied(source, draft)
        (tmp_path / "copy.db").write_text("precious")

    monkeypatch.setattr(schema, "_copy", slow)
    with pytest.raises(FileExistsError):
        schema.copy_to(url(tmp_path / "a.db"), tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "precious"
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_postgres_has_its_own_tool(tmp_path: Path) -> None:
    with pytest.raises(SettingsRefused, match="pg_dump") as refused:
        schema.copy_to("postgresql://spot:pa55word@db/spot", tmp_path / "copy.db")
    assert "pa55word" not in refused.value.detail


def test_a_damaged_database_or_none_gives_no_copy(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.db"
    with sqlite3.connect(damaged) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.executemany("INSERT INTO t VALUES (?)", [("y" * 500,)] * 200)
        connection.execute("CREATE INDEX i ON t (x)")
    connection.close()
    subtly = tmp_path / "subtly.db"  # every page can be read; index and table say different things
    subtly.write_bytes(damaged.read_bytes().replace(b"y" * 500, b"z" * 500, 1))
    content = bytearray(damaged.read_bytes())
    content[3 * 4096 : 6 * 4096] = b"\x55" * (3 * 4096)
    damaged.write_bytes(content)
    for source in (damaged, subtly, tmp_path / "none.db"):
        with pytest.raises(StoreDown):
            schema.copy_to(url(source), tmp_path / "copy.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged.db", "subtly.db"]
