"""Backup, disaster, restore: the same runs, tokens that still open, and a training that never noticed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from supervisor.cli.server import server
from tests import forked
from tests.acceptance.daemon import Daemon
from tests.acceptance.stories import STORY, Stories
from tests.integration.postgres_server import postgres_tool
from tests.waiting import wait_for

NO_SETTINGS = {name: None for name in os.environ if name.startswith("SPOT_")}
FILES_OF_THE_DATABASE = "supervisor.db*"


def backup(daemon: Daemon, target: Path) -> None:
    done = forked.spot("backup", str(target), "--data-dir", str(daemon.data_dir), environ=daemon.environ)
    assert done.returncode == 0, done.stderr
    assert "whole and checked" in done.stdout


def everything(daemon: Daemon) -> dict[str, object]:
    """What must be the same afterwards."""
    runs = daemon.call("GET", "/v1/runs")["runs"]
    tokens = [one["token_id"] for one in daemon.call("GET", "/v1/tokens")["tokens"] if one["name"] == "ci"]
    kept = ("run_id", "owner", "generation", "labels", "created_at")
    return {"runs": [[run[name] for name in kept] for run in runs], "tokens": tokens}


def ci_token(daemon: Daemon) -> str:
    body = {"name": "ci", "owner": "local", "scopes": ["runs:read"]}
    return str(daemon.call("POST", "/v1/tokens", body)["token"])


def opens(daemon: Daemon, token: str) -> bool:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{daemon.url}/v1/runs", headers=headers, trust_env=False, timeout=60).status_code == 200


def nothing_was_released(stories: Stories, run_id: str, training: list[int], step: int) -> None:
    stories.trains(run_id, beyond=step)
    assert stories.training_pids(run_id) == training
    assert stories.lives(run_id) == [(1, 0)]
    assert not stories.events(run_id, "machine_leaked")


def test_sqlite(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "data", {**STORY, "SPOT_STORE_URL": (tmp_path / "objects").as_uri()})
    (tmp_path / "objects").mkdir()
    stories = Stories(daemon, tmp_path, tmp_path / "objects")
    copy = tmp_path / "copy.db"
    try:
        daemon.start()
        token = ci_token(daemon)
        stories.train("lives", labels={"team": "a"})
        stories.train("stopped")
        stories.trains("stopped")
        stories.post("/v1/runs/stopped/stop")
        stories.wait("stopped", "stopped")
        step, training = stories.trains("lives")["progress"]["step"], stories.training_pids("lives")
        before = everything(daemon)
        backup(daemon, copy)

        daemon.kill(signal.SIGKILL)
        for path in daemon.data_dir.glob(FILES_OF_THE_DATABASE):
            path.unlink()
        (daemon.data_dir / "admin-token").unlink()
        shutil.copy(copy, daemon.data_dir / "supervisor.db")
        daemon.start()
        assert everything(daemon) == before
        assert opens(daemon, token)
        nothing_was_released(stories, "lives", training, step)
        stories.completes("lives")
    finally:
        daemon.close()


def test_into_an_empty_folder(tmp_path: Path) -> None:
    """Nothing is left but the copy and the bucket."""
    (tmp_path / "objects").mkdir()
    daemon = Daemon(tmp_path / "data", {**STORY, "SPOT_STORE_URL": (tmp_path / "objects").as_uri()})
    stories = Stories(daemon, tmp_path, tmp_path / "objects")
    try:
        daemon.start()
        token = ci_token(daemon)
        stories.train("stopped")
        stories.trains("stopped")
        saved = stories.saved("stopped")
        stories.post("/v1/runs/stopped/stop")
        stories.wait("stopped", "stopped")
        before = everything(daemon)
        backup(daemon, tmp_path / "copy.db")
        daemon.kill(signal.SIGTERM)

        shutil.move(daemon.data_dir, tmp_path / "lost")
        daemon.data_dir.mkdir()
        shutil.copy(tmp_path / "copy.db", daemon.data_dir / "supervisor.db")
        daemon.start()
        assert everything(daemon) == before
        assert opens(daemon, token)
        stories.post("/v1/runs/stopped/resume")
        stories.completes("stopped")
        assert stories.lives("stopped")[-1][1] >= saved, "it went on from its checkpoint"
    finally:
        daemon.close()


def test_postgres(tmp_path: Path, postgres_database: str) -> None:
    pg_dump, pg_restore = postgres_tool("pg_dump"), postgres_tool("pg_restore")
    (tmp_path / "objects").mkdir()
    environ = {**STORY, "SPOT_STORE_URL": (tmp_path / "objects").as_uri(), "SPOT_DATABASE_URL": postgres_database}
    daemon = Daemon(tmp_path / "data", environ)
    stories = Stories(daemon, tmp_path, tmp_path / "objects")
    address, dump = (postgres_database.replace("postgresql+psycopg://", "postgresql://"), tmp_path / "spot.dump")

    def run(*command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ))
        assert done.returncode == 0, done.stderr

    try:
        daemon.start()
        token = ci_token(daemon)
        stories.train("lives")
        step, training = stories.trains("lives")["progress"]["step"], stories.training_pids("lives")
        before = everything(daemon)
        run(pg_dump, "--format=custom", f"--file={dump}", f"--dbname={address}")
        daemon.submit("after-the-copy", command="true")
        daemon.kill(signal.SIGTERM)

        run(pg_restore, "--clean", "--if-exists", f"--dbname={address}", str(dump))
        (daemon.data_dir / "admin-token").unlink()
        daemon.start()
        wait_for(lambda: everything(daemon) == before, 30, "the runs of the copy, and no other")
        assert opens(daemon, token)
        nothing_was_released(stories, "lives", training, step)
        stories.completes("lives")
    finally:
        daemon.close()


@pytest.mark.parametrize(("folder", "why"), [("there", "exists already"), ("nowhere", "cannot be written")])
def test_a_backup_that_cannot_be_made_says_why(tmp_path: Path, folder: str, why: str) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "copy.db").write_text("precious")
    target = tmp_path / folder / "copy.db"
    done = CliRunner().invoke(server.backup, [str(target), "--data-dir", str(tmp_path)], env=NO_SETTINGS)
    assert why in str(done.exception)
    assert (tmp_path / "there" / "copy.db").read_text() == "precious"
