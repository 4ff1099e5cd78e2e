"""PostgreSQL goes away while trainings run, and comes back: no deeds meanwhile, no run is lost, nothing runs twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from supervisor.contract.heartbeat import Beat, encode
from tests.acceptance.daemon import Daemon, running
from tests.acceptance.replicas import LEASE_TTL_S, Training, agents, environment, leading
from tests.integration.postgres_server import PostgresServer, running_postgres
from tests.waiting import wait_for

LIFE = ["submitted", "launching", "obtained", "started", "finishing", "results_verified", "completed"]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Of this file's own: what is done to it here must not disturb other tests."""
    with running_postgres() as one:
        yield one


@contextmanager
def refusing(server: PostgresServer, name: str) -> Iterator[None]:
    """Every connection to the database is cut, and no new one gets in."""
    with _admin(server) as admin:
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        try:
            yield
        finally:
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


@contextmanager
def hanging(server: PostgresServer, name: str) -> Iterator[None]:
    """No process of the server does anything; connections stay open and nothing answers."""
    with _admin(server) as admin:
        folder = Path(str(admin.execute("SHOW data_directory").fetchone()[0]))
    first = int((folder / "postmaster.pid").read_text().splitlines()[0])
    pids = _family(first)
    for pid in pids:
        _send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(pids):
            _send(pid, signal.SIGCONT)


def _admin(server: PostgresServer) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(server.url().replace("+psycopg", ""), autocommit=True)


def _family(first: int) -> list[int]:
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    return [first, *map(int, children)]


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


@contextmanager
def training(tmp_path: Path, server: PostgresServer, name: str) -> Iterator[tuple[Daemon, Training]]:
    (tmp_path / "objects").mkdir()
    with running(tmp_path / "data", environment(server.url(name), tmp_path / "objects")) as daemon:
        leading(daemon)
        run = Training(tmp_path, "digits-1")
        run.submit(daemon)
        daemon.wait_status("digits-1", "running")
        yield daemon, run


def push(daemon: Daemon) -> int:
    """The status of the answer to a beat of the run's launch that anybody could have sent."""
    beat = Beat("digits-1", 1, "1.1.1", "local:0:1:1", "0", 1, "training", nonce="not the right one")
    return daemon.http.post(f"{daemon.url}/v1/runs/digits-1/heartbeat", content=encode(beat)).status_code


@pytest.mark.parametrize("away", [refusing, hanging])
def test_the_database_is_away_for_a_while(
    tmp_path: Path, server: PostgresServer, away: Callable[[PostgresServer, str], contextmanager[None]]
) -> None:
    name = server.create_database()
    with training(tmp_path, server, name) as (daemon, run):
        before = agents(daemon)
        assert len(before) == 1
        assert push(daemon) == 403
        with away(server, name):
            # What the daemon knows already it may still decide on, until its lease is over.
            wait_for(lambda: push(daemon) == 503, LEASE_TTL_S + 15.0, "pushes to be refused")
            assert agents(daemon) == before
        wait_for(lambda: push(daemon) == 403, 30, "pushes to be heard again")
        leading(daemon)
        assert daemon.run("digits-1")["status"] == "running"
        assert agents(daemon) == before
        daemon.call("POST", "/v1/runs", {"run_id": "digits-2", "spec": {"command": "true"}})
        daemon.wait_status("digits-2", "completed")
        run.finish()
        assert daemon.wait_status("digits-1", "completed")["attempt"] == 1
        assert run.lives == 1
        told = [event["kind"] for event in daemon.call("GET", "/v1/runs/digits-1/events")["events"]]
        told = [kind for kind in told if kind != "beat_rejected"]  # ours, above
        assert told[: len(LIFE)] == LIFE
    server.drop_database(name)
