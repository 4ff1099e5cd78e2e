"""Canaries: values that must be nowhere, and a look into every store, row, event, log and answer for them.

Each supervisor that tests start carries one in its environment under a name that looks like a secret's; when it is
over, all that it has left is searched.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
from psycopg import sql

if TYPE_CHECKING:
    from tests.acceptance.daemon import Daemon

CANARY_NAME = "CANARY_API_KEY"


def canary() -> str:
    """A value that nothing else contains, with characters that every form of writing changes."""
    return f'canary"{secrets.token_hex(8)}+{secrets.token_hex(4)}='


def forms(value: str) -> Iterator[bytes]:
    """How a value may be written; kept apart from the masks of the agent, which are judged by it."""
    yield value.encode()
    yield max(re.findall("[0-9A-Za-z_-]+", value), key=len).encode()  # no half of it either
    yield json.dumps(value)[1:-1].encode()
    yield quote(value, safe="").encode()
    yield base64.b64encode(value.encode())


def files_with(data_dir: Path, values: Iterable[str]) -> list[str]:
    """Files below a supervisor's data folder that hold one of the values. A living machine's own disk is not searched:
    what a training writes there is its own; it is removed with the machine."""
    found = []
    wanted = [form for value in values for form in forms(value)]
    for path in sorted(data_dir.rglob("*")):
        parts = path.relative_to(data_dir).parts
        if not path.is_file() or (parts[0] == "machines" and "work" in parts):
            continue
        try:
            content = path.read_bytes() + "/".join(parts).encode()
        except FileNotFoundError:
            continue
        if any(form in content for form in wanted):
            found.append("/".join(parts))
    return found


def doors(daemon: Daemon) -> list[str]:
    """The addresses of everything that the living supervisor tells of its runs."""
    paths = [
        "/v1/runs",
        "/v1/events?limit=500",
        "/v1/doctor",
        "/v1/meta",
        "/v1/loop",
        "/v1/whoami",
        "/metrics",
        "/v1/cost",
        "/v1/ledger",
        "/v1/ledger/billed",
        "/v1/completion",
        "/v1/machines?all=true",
        "/v1/machines/kept",
        "/v1/bases",
        "/v1/gpus",
        "/v1/incidents?all=true",
        "/v1/providers",
        "/v1/prices",
        "/v1/zones",
        "/v1/webhooks",
        "/v1/webhooks/settings",
        "/v1/tokens",
        "/v1/webhooks/settings/deliveries?page_size=1000",
        "/v1/door/agent.pyz",
        "/livez",
        "/readyz?verbose=true",
    ]
    for run in daemon.call("GET", "/v1/runs?page_size=1000")["runs"]:
        base = f"/v1/runs/{run['run_id']}"
        paths += [
            base,
            f"{base}/events?limit=500",
            f"{base}/attempts",
            f"{base}/gates",
            f"{base}/login",
            f"{base}/teardown",
            f"{base}/facts",
            f"{base}/diagnosis",
            f"{base}/spec",
            f"{base}/launch",
            f"{base}/cost",
            f"{base}/forecast",
            f"{base}/beats",
            f"{base}/metrics",
            f"{base}/code",
            f"{base}/code/files",
            f"{base}/cell",
            f"/v1/compare?run_id={run['run_id']}",
        ]
        paths += [f"{base}/console", f"{base}/console?after=-1048576", f"{base}/console?source=cloud_logging"]
        paths += [f"{base}/events?limit=500&cloud=true"]
        for attempt in daemon.call("GET", f"{base}/attempts")["attempts"]:
            number = attempt["number"]
            paths += [f"{base}/logs?attempt={number}&limit=1048576", f"{base}/attempts/{number}/evidence"]
            paths += [f"{base}/attempts/{number}/log.txt", f"{base}/logs?attempt={number}&tail=1000"]
        paths += [f"{base}/files?kind={kind}" for kind in ("results", "checkpoints", "logs", "evidence", "code")]
    return paths


def answers_with(daemon: Daemon, values: Iterable[str]) -> list[str]:
    """Addresses of the living supervisor whose answers hold one of the values."""
    wanted = [form for value in values for form in forms(value)]
    told = {path: daemon.http.get(daemon.url + path) for path in doors(daemon)}
    strange = {path: answer.status_code for path, answer in told.items() if b"There is nothing at" in answer.content}
    assert strange == {}, "addresses that do not exist tell nothing"
    return [path for path, answer in told.items() if any(form in answer.content for form in wanted)]


def rows_with(database: str, values: Iterable[str]) -> list[str]:
    """Tables with a row that holds one of the values. `database`: a URL for SQLAlchemy with psycopg."""
    wanted = [form for value in values for form in forms(value)]
    found = []
    with psycopg.connect(database.replace("+psycopg", ""), autocommit=True) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert tables
        for (table,) in sorted(tables):
            with connection.cursor().copy(
                sql.SQL("COPY {} TO STDOUT (FORMAT csv)").format(sql.Identifier(table))
            ) as rows:
                text = b"".join(bytes(row) for row in rows).replace(b'""', b'"')
            if any(form in text for form in wanted):
                found.append(str(table))
    return found


def assert_nowhere(
    daemon: Daemon, values: Iterable[str], objects: Path | None = None, database: str | None = None
) -> None:
    """No value in the database with its log, the object store, the service's log, what is kept of machines, or any
    answer. `objects`: the store, where it is not below the data folder; `database`: a PostgreSQL's URL. The supervisor
    must live."""
    values = tuple(values)
    settle(daemon.data_dir)
    found = files_with(daemon.data_dir, values) + answers_with(daemon, values)
    found += files_with(objects, values) if objects is not None else []
    found += rows_with(database, values) if database is not None else []
    assert found == [], f"values of secrets lie in {', '.join(found)}"


def settle(data_dir: Path) -> None:
    """Bring the database's log into its file, so that a row that was changed meanwhile is searched in both."""
    path = data_dir / "supervisor.db"
    if path.exists():
        with sqlite3.connect(path, timeout=30) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        connection.close()
