"""The database as a whole: creation, schema version, migration and backup.

A start only compares the schema version; Alembic is slow to import and is for `spot migrate` alone. A new database gets
its tables from tables.py, marked as migrated; a test checks that the migrations make the same tables.

A backup is SQLite's online backup: it reads one snapshot and blocks no supervisor. The copy is written beside its
target and linked there when it is complete. Only its owner can read it, because it has commands, environments and
hashes of tokens. For PostgreSQL there is `pg_dump`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import make_url

import supervisor
from supervisor.domain.errors import SchemaMismatch, SettingsRefused
from supervisor.ports.store import StoreDown
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Session, Statement
from supervisor.storage.engine.tables import meta, metadata, runs

HEAD = "0007"  # revisions are numbered, so an older one sorts before a newer one
SECRET_BYTES = 32
VERSION_TABLE = "schema_version"  # not Alembic's default: a Postgres database may be shared with other programs
CREATE_LOCK = 5_370_710_477  # any unused number: two servers may start on the same new database

_version = sa.table(VERSION_TABLE, sa.column("version_num"))
READ_VERSION = Statement(sa.select(_version.c.version_num))
READ_OWN = Statement(
    sa.select(meta.c.name, meta.c.value).where(sa.or_(meta.c.name == "supervisor_id", meta.c.name == "secret"))
)


def bring_up(database: Database, create: bool, before_creating: Callable[[], None]) -> tuple[str, str]:
    """The supervisor's id and the database's secret, both made with the database. A new database gets its tables if
    `create` is set and `before_creating` does not raise. Raises SchemaMismatch for any schema but HEAD, StoreDown."""
    with database.reading() as session:
        new = _is_new(session.connection)
    if new and create:
        before_creating()
        with database.defining() as connection:
            _create(connection)
    with database.reading() as session:
        check_version(session)
        own = dict(session.run(READ_OWN))
        return own["supervisor_id"], own["secret"]


def check_version(session: Session) -> None:
    """Raises SchemaMismatch unless the schema is HEAD."""
    if not sa.inspect(session.connection).has_table(VERSION_TABLE):
        version = ""
    else:
        version = session.run(READ_VERSION).scalar() or ""
    if version == HEAD:
        return
    facts = {"found": version, "needed": HEAD}
    if version > HEAD:
        raise SchemaMismatch(
            f"The database has schema {version} of a newer spot-supervisor; this version needs {HEAD}. "
            "Install the newer version again, or restore the backup from before its `spot migrate`.",
            facts,
        )
    has = f"schema {version}" if version else "no schema of ours"
    raise SchemaMismatch(
        f"The database has {has}, this version needs {HEAD}. Stop every supervisor that uses it, make a backup, then "
        "run `spot migrate` with the same settings.",
        facts,
    )


def migrate(url: str) -> str:
    """Bring the database, new or old, to HEAD; returns its revision. Raises SchemaMismatch, StoreDown."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    database = Database(url)
    try:
        with database.defining() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, HEAD)
            _keep_own(connection)
        with database.reading() as session:
            check_version(session)
    finally:
        database.close()
    return HEAD


def migrations_folder() -> Path:
    """Inside an installed package; beside the package in a checkout."""
    package = Path(supervisor.__file__).parent
    inside = package / "_migrations"
    return inside if inside.is_dir() else package.parent / "migrations"


def _is_new(connection: sa.Connection) -> bool:
    tables = sa.inspect(connection)
    return not tables.has_table(VERSION_TABLE) and not tables.has_table(runs.name)


def _create(connection: sa.Connection) -> None:
    if connection.dialect.name != "sqlite":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(CREATE_LOCK)))
    if not _is_new(connection):
        return  # another server has created it meanwhile
    metadata.create_all(connection)
    version = sa.Table(
        VERSION_TABLE,
        sa.MetaData(),
        sa.Column("version_num", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
    )
    version.create(connection)
    connection.execute(version.insert().values(version_num=HEAD))
    _keep_own(connection)


def _keep_own(connection: sa.Connection) -> None:
    """Write the id and the secret of this database; an older one gets what it lacks."""
    for name, size in (("supervisor_id", 8), ("secret", SECRET_BYTES)):
        if connection.execute(sa.select(meta.c.value).where(meta.c.name == name)).first() is None:
            connection.execute(meta.insert().values(name=name, value=secrets.token_hex(size)))


def copy_to(database_url: str, target: Path) -> int:
    """The number of bytes written. Raises SettingsRefused for a database with its own tool and for an existing
    `target`, StoreDown where the database cannot be read, OSError where the copy cannot be written."""
    url = make_url(database_url)
    if url.get_backend_name() != "sqlite":
        raise SettingsRefused(
            "spot backup is for SQLite. The database of this supervisor is PostgreSQL; use its own tool: "
            "pg_dump --format=custom --file=FILE DATABASE"
        )
    if target.exists():
        raise SettingsRefused(f"{target} exists already; a backup replaces no file.", {"path": str(target)})
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        _copy(Path(url.database or ""), draft)
        size_bytes = draft.stat().st_size
        os.link(draft, target)  # unlike a rename, it does not replace a file that was created meanwhile
    finally:
        draft.unlink(missing_ok=True)
    return size_bytes


def _copy(source: Path, draft: Path) -> None:
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as old,
            contextlib.closing(sqlite3.connect(draft)) as new,
        ):
            old.backup(new)
            new.execute("PRAGMA journal_mode=DELETE")  # one file, without others beside it
            verdict = new.execute("PRAGMA integrity_check").fetchone()[0]
    except sqlite3.Error as error:
        raise StoreDown(f"{source} could not be copied: {error}") from error
    if verdict != "ok":
        raise StoreDown(f"{source} is damaged, so no copy was made: {verdict}")
    with draft.open("rb") as written:
        os.fsync(written.fileno())
