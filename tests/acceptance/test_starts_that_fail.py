"""A start that fails says one sentence with what helps, whatever is away or in the way."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.daemon import QUICK, Daemon

Damage = Callable[[Path], object]


def _objects_is_a_file(data: Path) -> None:
    (data / "objects").rename(data / "objects-aside")
    (data / "objects").write_text("not a folder")


def _machines_is_a_file(data: Path) -> None:
    (data / "machines").rename(data / "machines-aside")
    (data / "machines").write_text("not a folder")


def _pages_are_torn(data: Path) -> None:
    with sqlite3.connect(data / "supervisor.db") as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with (data / "supervisor.db").open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 20_000)


def _no_database(data: Path) -> None:
    (data / "supervisor.db").write_bytes(b"this is no database, and long enough to be read as one " * 200)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_no_database, ("supervisor.db", "not a database", "spot doctor", "backup")),
        (_pages_are_torn, ("supervisor.db", "malformed", "spot doctor", "backup")),
        (_objects_is_a_file, ("objects", "spot doctor")),
        (_machines_is_a_file, ("machines", "remove the obstacle")),
    ],
)
def test_what_is_damaged_or_in_the_way(tmp_path: Path, damage: Damage, words: tuple[str, ...]) -> None:
    daemon = Daemon(tmp_path / "data", QUICK)
    try:
        daemon.start()
        daemon.kill(signal.SIGTERM)
        damage(daemon.data_dir)
        (daemon.data_dir / "serve.log").unlink()
        _fails_in_one_sentence(daemon, words)
    finally:
        daemon.close()


def test_a_postgres_that_is_away(tmp_path: Path) -> None:
    url = "postgresql://spot:hunter2@127.0.0.1:1/nothing"
    daemon = Daemon(tmp_path / "data", {**QUICK, "SPOT_DATABASE_URL": url})
    try:
        said = _fails_in_one_sentence(daemon, ("postgresql", "127.0.0.1:1/nothing", "refused", "spot doctor"))
        assert "hunter2" not in said
    finally:
        daemon.close()


def _fails_in_one_sentence(daemon: Daemon, words: tuple[str, ...]) -> str:
    assert daemon.spawn().wait(60) in (1, 2)
    said = daemon.log()
    assert "Traceback" not in said, said
    [error] = [line for line in said.splitlines() if line.startswith("error: ")]
    assert [word for word in words if word not in error] == [], error
    return said
