"""A lost database is never silently a new one: the data folder and the object store know whose they are."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.daemon import QUICK, Daemon
from tests.acceptance.stories import STORY, Stories

CONFLICT = 6


def refused(daemon: Daemon) -> str:
    """The sentence with which it does not start."""
    process = daemon.spawn()
    assert process.wait(60) == CONFLICT
    said = daemon.log().strip().splitlines()[-1]
    assert said.startswith("error: ")
    assert "Traceback" not in daemon.log()
    return said


def lose(daemon: Daemon, how: str) -> None:
    """ "no WAL": a young database is a header alone, everything else is still in its WAL."""
    database = daemon.data_dir / "supervisor.db"
    for path in daemon.data_dir.glob("supervisor.db*"):
        path.unlink()
    if how == "zero bytes":
        database.write_bytes(b"")
    elif how == "no WAL":
        with closing(sqlite3.connect(database)) as young:
            young.execute("PRAGMA journal_mode=WAL")
        assert 0 < database.stat().st_size <= 4096


@pytest.mark.parametrize("how", ["no WAL", "zero bytes", "deleted"])
def test_a_lost_database_does_not_start_and_its_backup_does(tmp_path: Path, how: str) -> None:
    daemon = Daemon(tmp_path / "data", STORY)
    stories = Stories(daemon, tmp_path, tmp_path / "data" / "objects")
    try:
        daemon.start()
        stories.train("lives")
        stories.trains("lives")
        daemon.kill(signal.SIGKILL)
        shutil.copytree(daemon.data_dir, tmp_path / "copy", ignore=lambda _, names: set(names) - OF_THE_DATABASE)
        lose(daemon, how)
        said = refused(daemon)
        assert "The database is new or empty, but the data folder" in said
        assert "spot serve --start-over" in said
        assert "backup" in said
        assert said.endswith("(DATABASE_NEW)")
        refused(daemon)  # nothing was made that would count as a database now
        for path in daemon.data_dir.glob("supervisor.db*"):
            path.unlink()
        shutil.copytree(tmp_path / "copy", daemon.data_dir, dirs_exist_ok=True)
        daemon.start()
        stories.completes("lives")
        assert stories.lives("lives") == [(1, 0)]
    finally:
        daemon.close()


OF_THE_DATABASE = {"supervisor.db", "supervisor.db-wal"}


def test_the_store_knows_where_the_data_folder_is_lost_too_and_a_person_may_start_over(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    environ = {**QUICK, "SPOT_STORE_URL": (tmp_path / "objects").as_uri()}
    first, second = Daemon(tmp_path / "first", environ), Daemon(tmp_path / "second", environ)
    try:
        first.start()
        first.submit("old", command=["true"])
        first.wait_status("old", "completed")
        first.kill(signal.SIGTERM)
        assert f"but the object store file://{tmp_path}/objects belongs to" in refused(second)
        second.started_with = ("--start-over",)
        second.start()
        second.kill(signal.SIGTERM)
        second.started_with = ()
        second.start()
        assert second.call("GET", "/v1/runs")["runs"] == []
    finally:
        first.close()
        second.close()


def test_a_folder_of_an_earlier_version_gets_its_id_and_keeps_its_runs(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "data", QUICK)
    try:
        daemon.start()
        daemon.submit("old", command=["true"])
        daemon.wait_status("old", "completed")
        daemon.kill(signal.SIGTERM)
        known = (daemon.data_dir / "supervisor-id").read_text()
        (daemon.data_dir / "supervisor-id").unlink()
        daemon.start()
        assert daemon.run("old")["status"] == "completed"
        assert (daemon.data_dir / "supervisor-id").read_text() == known
        assert (daemon.data_dir / "supervisor-id").stat().st_mode & 0o777 == 0o600
        daemon.kill(signal.SIGTERM)
        (daemon.data_dir / "supervisor-id").unlink()
        lose(daemon, "deleted")
        assert refused(daemon).endswith("(DATABASE_NEW)"), "also where no id was written yet"
    finally:
        daemon.close()


def test_another_supervisors_database_is_not_taken_for_this_folders(tmp_path: Path) -> None:
    one, other = Daemon(tmp_path / "one", QUICK), Daemon(tmp_path / "other", QUICK)
    try:
        for daemon in (one, other):
            daemon.start()
            daemon.kill(signal.SIGTERM)
        shutil.copy(other.data_dir / "supervisor.db", one.data_dir / "supervisor.db")
        said = refused(one)
        assert said.startswith("error: The database belongs to supervisor ")
        assert said.endswith("(DATABASE_OTHER)")
    finally:
        one.close()
        other.close()
