"""The fixture itself: a real server, a new database for each test, and no leftovers of killed tests."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.integration.postgres_server import PostgresServer


def scalar(url: str, statement: str) -> object:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        return connection.execute(sa.text(statement)).scalar()


def test_it_is_a_real_server(postgres_url: str) -> None:
    assert str(scalar(postgres_url, "SELECT version()")).startswith("PostgreSQL 1")


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_gets_an_empty_database(postgres_database: str, turn: int) -> None:
    engine = sa.create_engine(postgres_database, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE only_mine (turn integer)"))


def test_a_database_can_be_copied_from_a_template(postgres_server: PostgresServer) -> None:
    template = postgres_server.create_database()
    engine = sa.create_engine(postgres_server.url(template), poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE t AS SELECT 7 AS x"))
    copy = postgres_server.create_database(template)
    assert scalar(postgres_server.url(copy), "SELECT x FROM t") == 7
    postgres_server.drop_database(copy)
    postgres_server.drop_database(template)


HOLDER = """
import time
from tests.integration.postgres_server import running_postgres
with running_postgres() as server:
    import psycopg
    with psycopg.connect(server.url().replace("+psycopg", "")) as connection:
        print(connection.execute("SHOW data_directory").fetchone()[0], flush=True)
        time.sleep(600)
"""


def test_no_server_outlives_tests_that_were_killed() -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", HOLDER], cwd=root, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        data = Path(holder.stdout.readline().strip())
        server_pid = int((data / "postmaster.pid").read_text().splitlines()[0])
        os.kill(holder.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while data.exists():
        assert time.monotonic() < deadline, "the server's folder is still there"
        time.sleep(0.02)
    assert not Path(f"/proc/{server_pid}/stat").exists() or "Z" in Path(f"/proc/{server_pid}/stat").read_text()
