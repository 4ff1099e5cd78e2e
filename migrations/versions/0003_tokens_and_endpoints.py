"""Tokens; endpoints of announcements and their deliveries; events have the owner of their run."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _tokens()
    _endpoints()
    _deliveries()
    _owned_events()
    # Announcements that wait for the alert_url go to its webhook: the channel has a new name, the row stays.
    op.execute("UPDATE outbox SET channel = 'webhooks' WHERE channel = 'alerts' AND next_at IS NOT NULL")
    _recreate_zones([sa.Column("stocked_out_at", sa.Double(), nullable=False)], {"stocked_out_at": 0.0})


def downgrade() -> None:
    _recreate_zones([], {})
    _ownerless_events()
    for table in ("deliveries", "endpoints", "tokens"):
        op.drop_table(table)


def _tokens() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("max_active_runs", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("last_used_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("hash"),
    )


def _endpoints() -> None:
    op.create_table(
        "endpoints",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("everything", sa.SmallInteger(), nullable=False),
        sa.Column("form", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secrets", sa.Text(), nullable=False),
        sa.Column("kinds", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("failing_since", sa.Double(), nullable=True),
        sa.Column("disabled_at", sa.Double(), nullable=True),
        sa.Column("disabled_why", sa.Text(), nullable=False),
        sa.Column("next_message_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def _deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column("id", KEY, nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("event", KEY, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("tries", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.Double(), nullable=True),
        sa.Column("delivered_at", sa.Double(), nullable=True),
        sa.Column("last_at", sa.Double(), nullable=True),
        sa.Column("status", sa.BigInteger(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["endpoint"], ["endpoints.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["event"], ["events.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("deliveries_once", "deliveries", ["endpoint", "event"], unique=True)
    due = sa.text("next_at IS NOT NULL")
    columns = ["endpoint", "next_at"]
    op.create_index("deliveries_due", "deliveries", columns, sqlite_where=due, postgresql_where=due)
    op.create_index("deliveries_event", "deliveries", ["event"])


PEOPLE = sa.text("actor <> 'supervisor'")
OF_RUN = "(SELECT runs.owner FROM runs WHERE runs.key = events.run)"


def _owned_events() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _recreate_events([sa.Column("owner", sa.Text(), nullable=False)], f"coalesce({OF_RUN}, '')")
    else:
        op.add_column("events", sa.Column("owner", sa.Text(), nullable=True))
        op.execute(f"UPDATE events SET owner = coalesce({OF_RUN}, '')")  # noqa: S608 - a constant
        op.alter_column("events", "owner", nullable=False)
    op.create_index("events_owner", "events", ["owner", "id"])
    op.create_index("events_actor", "events", ["actor", "id"], sqlite_where=PEOPLE, postgresql_where=PEOPLE)


def _ownerless_events() -> None:
    for index in ("events_owner", "events_actor"):
        op.drop_index(index, "events")
    if op.get_bind().dialect.name == "sqlite":
        _recreate_events([], "")
    else:
        op.drop_column("events", "owner")


KEPT = "id, run, sequence, at, generation, attempt, kind, actor, text, data"


def _recreate_events(more: list[sa.Column[str]], value: str) -> None:
    """So that the table is the same as in a new database. The number of the last event ever written is kept, so that no
    number is used twice."""
    op.execute("CREATE TABLE events_before AS SELECT * FROM events")
    last = op.get_bind().exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = 'events'").scalar()
    op.drop_table("events")
    op.create_table(
        "events",
        sa.Column("id", KEY, nullable=False),
        sa.Column("run", KEY, nullable=True),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        *more,
        sa.ForeignKeyConstraint(["run"], ["runs.key"]),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    values = f"{KEPT}, {value.replace('events.', 'events_before.')}" if value else KEPT
    op.execute(f"INSERT INTO events SELECT {values} FROM events_before")  # noqa: S608 - constants
    op.execute("DROP TABLE events_before")
    if last is not None:
        numbers = sa.table("sqlite_sequence", sa.column("name"), sa.column("seq"))
        op.execute(sa.delete(numbers).where(numbers.c.name == "events"))
        op.bulk_insert(numbers, [{"name": "events", "seq": last}])
    op.create_index("events_age", "events", ["at"])
    op.create_index("events_run", "events", ["run", "sequence"], unique=True)


KEPT_OF_ZONES = ("cell", "provider", "zone", "shape", "spot", "failures", "cool_until", "cause", "detail", "lost_at")


def _recreate_zones(more: list[sa.Column[float]], values: dict[str, float]) -> None:
    """Recreate the table with its rows, so that it is the same as in a new database."""
    old = sa.table("zones", *(sa.column(name) for name in KEPT_OF_ZONES))
    rows = op.get_bind().execute(sa.select(old)).all()
    op.drop_table("zones")
    table = op.create_table(
        "zones",
        sa.Column("cell", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.Column("shape", sa.Text(), nullable=False),
        sa.Column("spot", sa.SmallInteger(), nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("cool_until", sa.Double(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("lost_at", sa.Text(), nullable=False),
        *more,
        sa.PrimaryKeyConstraint("cell", "provider", "zone", "shape", "spot"),
    )
    op.bulk_insert(table, [{**dict(zip(KEPT_OF_ZONES, row, strict=True)), **values} for row in rows])
