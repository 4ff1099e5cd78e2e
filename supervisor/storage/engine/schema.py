"""Which schema the database has, and how it gets the one this version knows.

Serving only compares a number: Alembic is imported for `spot migrate` alone, the start has no time for it. A new
database gets its tables at once from tables.py, marked as migrated; a test checks that the migrations lead there too.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

import supervisor
from supervisor.domain.errors import SchemaMismatch
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Session, Statement
from supervisor.storage.engine.tables import meta, metadata, runs

HEAD = "0003"  # revisions are numbered, so that older and newer can be told apart
SECRET_BYTES = 32
VERSION_TABLE = "schema_version"  # not Alembic's usual name: a Postgres database may be shared with others
CREATE_LOCK = 5_370_710_477  # any number that nobody else uses: two servers may meet the same new database

_version = sa.table(VERSION_TABLE, sa.column("version_num"))
READ_VERSION = Statement(lambda _: sa.select(_version.c.version_num))
READ_OWN = Statement(
    lambda _: sa.select(meta.c.name, meta.c.value).where(
        sa.or_(meta.c.name == "supervisor_id", meta.c.name == "secret")
    )
)


def bring_up(database: Database, create: bool, before_creating: Callable[[], None]) -> tuple[str, str]:
    """The supervisor's id and the database's secret, both made with the database. A new database is brought up where
    `create` says so and `before_creating` does not raise; raises SchemaMismatch for any other schema than HEAD,
    StoreDown."""
    with database.reading() as session:
        new = _is_new(session.connection)
    if new and create:
        before_creating()
        with database.defining() as connection:
            _create(connection)
    with database.reading() as session:
        check_version(session)
        own = dict(session.run(READ_OWN, {}))
        return own["supervisor_id"], own["secret"]


def check_version(session: Session) -> None:
    """Raises SchemaMismatch unless the schema is HEAD."""
    if not sa.inspect(session.connection).has_table(VERSION_TABLE):
        found = ""
    else:
        found = session.run(READ_VERSION, {}).scalar() or ""
    if found == HEAD:
        return
    facts = {"found": found, "needed": HEAD}
    if found > HEAD:
        raise SchemaMismatch(
            f"The database has schema {found}, made by a newer spot-supervisor; this one knows {HEAD}. "
            "Install the newer version again, or restore the backup from before its `spot migrate`.",
            facts,
        )
    has = f"schema {found}" if found else "no schema of ours"
    raise SchemaMismatch(
        f"The database has {has}, this version needs {HEAD}. Stop every supervisor that uses it, make a backup, then "
        "run `spot migrate` with the same settings.",
        facts,
    )


def migrate(url: str) -> str:
    """Bring the database, new or old, to HEAD; the revision it has now. Raises SchemaMismatch, StoreDown."""
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
    """Inside the package where it was installed, beside it in a checkout."""
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
        return  # another server was faster
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
    """What a database has of its own; an older one gets what it lacks."""
    for name, size in (("supervisor_id", 8), ("secret", SECRET_BYTES)):
        if connection.execute(sa.select(meta.c.value).where(meta.c.name == name)).first() is None:
            connection.execute(meta.insert().values(name=name, value=secrets.token_hex(size)))
