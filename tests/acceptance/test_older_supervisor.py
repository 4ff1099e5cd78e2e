"""A supervisor takes over from an older one: its runs, its events and its live trainings, on SQLite and PostgreSQL.

The older one is real: `supervisor_before_the_rooms.tar.xz` holds the package and the migrations of November 2026, when
the folders had other names (made by `git archive COMMIT supervisor migrations | xz -9e`). It runs with today's
libraries, is killed with -9 in the middle of two trainings. `spot migrate` brings its database to today's schema, as
docs/operations.md says, and today's package starts on what it left.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.acceptance.daemon import running
from tests.acceptance.replicas import leading
from tests.acceptance.stories import STORY, Stories

OLDER = Path(__file__).with_name("supervisor_before_the_rooms.tar.xz")
FULL = {"zones": ["local-c"]}  # where nothing is to be had
ENVIRON = {**STORY, "SPOT_LOCAL_CAPACITY": "local-c=0", "SPOT_COOLDOWN_MIN_S": "600", "SPOT_COOLDOWN_MAX_S": "600"}


@pytest.fixture(params=["sqlite", "postgres"])
def environ(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    if request.param == "sqlite":
        return ENVIRON
    (tmp_path / "objects").mkdir()
    database = request.getfixturevalue("postgres_database")
    return {**ENVIRON, "SPOT_DATABASE_URL": database, "SPOT_STORE_URL": (tmp_path / "objects").as_uri()}


@pytest.fixture
def house(tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Stories]:
    """Run by the older supervisor."""
    with tarfile.open(OLDER) as archive:
        archive.extractall(tmp_path / "older", filter="data")
    monkeypatch.setattr("tests.acceptance.daemon.Daemon.sources", tmp_path / "older")
    with running(tmp_path / "data", environ) as daemon:
        leading(daemon)
        yield Stories(daemon, tmp_path, tmp_path / "objects" if "SPOT_STORE_URL" in environ else None)


def test_runs_of_an_older_supervisor_go_on(house: Stories) -> None:
    for run_id in ("live", "moves", "over"):
        house.train(run_id, env={"LIKE": "this"}, labels={"team": "vision"})
    house.train("in-line", **FULL)
    house.completes("over")
    house.wait("in-line", "waiting")
    house.saved("live", at_least=3)
    house.saved("moves", at_least=3)
    before = {run_id: _facts(house, run_id) for run_id in ("live", "moves", "over", "in-line")}
    pids = house.training_pids("live")
    assert pids

    house.daemon.kill()
    assert house.daemon.sources is not None
    house.daemon.sources = None
    migrated = forked.spot("migrate", "--data-dir", str(house.daemon.data_dir), environ=house.daemon.environ)
    assert migrated.returncode == 0, migrated.stderr
    house.daemon.start()
    leading(house.daemon)

    for run_id, facts in before.items():
        _same(facts, _facts(house, run_id))
    assert house.training_pids("live") == pids
    beyond = house.saved("live", at_least=int(house.trains("live")["progress"]["step"]) + 3)
    assert house.trains("live", beyond=beyond)["counters"]["attempts"] == 1
    assert house.completes("live")["cause"] == "finished"
    assert house.lives("live") == [(1, 0)]

    saved = house.saved("moves")
    house.daemon.call("POST", "/v1/dev/preempt", {"run_id": "moves", "notice_s": 5})
    house.until(lambda: len(house.lives("moves")) == 2, 90, "the second life of moves")
    house.completes("moves")
    attempt, began_at = house.lives("moves")[1]
    assert attempt == 2
    assert began_at >= saved

    assert house.post("/v1/runs/in-line/stop").is_success
    house.wait("in-line", "stopped")


def _facts(house: Stories, run_id: str) -> dict[str, Any]:
    return {
        "run": house.daemon.run(run_id),
        "spec": house.get(f"/v1/runs/{run_id}/spec"),
        "attempts": house.attempts(run_id),
        "events": house.events(run_id),
    }


def _same(before: dict[str, Any], now: dict[str, Any]) -> None:
    """What was told once is told again; a history only grows."""
    now["spec"].pop("profile")  # newer than that supervisor
    assert now["spec"] == before["spec"]
    assert now["run"]["status"] == before["run"]["status"]
    for name in ("run_id", "created_at", "generation", "labels"):
        assert now["run"][name] == before["run"][name], name
    assert now["events"][: len(before["events"])] == before["events"]
    for older, newer in zip(before["attempts"], now["attempts"], strict=True):
        assert [newer[name] for name in ("number", "machine", "cause")] == [
            older[name] for name in ("number", "machine", "cause")
        ]
