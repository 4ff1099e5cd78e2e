"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "idempotency",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("status", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "key"),
    )
    op.create_index("idempotency_age", "idempotency", ["created_at"])
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "meta",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "runs",
        sa.Column("key", KEY, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("cell", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("settled", sa.SmallInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("usd_per_h_micro", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("try_attempt", sa.BigInteger(), nullable=False),
        sa.Column("try_number", sa.BigInteger(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
        sa.UniqueConstraint("run_id"),
    )
    op.create_index(
        "runs_active",
        "runs",
        ["cell", "key", "version", "settled"],
        sqlite_where=sa.text("settled = 0"),
        postgresql_where=sa.text("settled = 0"),
    )
    op.create_index(
        "runs_billing",
        "runs",
        ["usd_per_h_micro"],
        sqlite_where=sa.text("usd_per_h_micro > 0"),
        postgresql_where=sa.text("usd_per_h_micro > 0"),
    )
    op.create_index("runs_owner", "runs", ["owner", "status", "key"])
    op.create_index("runs_status", "runs", ["status", "key"])
    op.create_table(
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
        sa.PrimaryKeyConstraint("cell", "provider", "zone", "shape", "spot"),
    )
    op.create_table(
        "attempts",
        sa.Column("run", KEY, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.key"]),
        sa.PrimaryKeyConstraint("run", "number"),
    )
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
        sa.ForeignKeyConstraint(["run"], ["runs.key"]),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("events_age", "events", ["at"])
    op.create_index("events_run", "events", ["run", "sequence"], unique=True)
    op.create_table(
        "labels",
        sa.Column("run", KEY, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.key"]),
        sa.PrimaryKeyConstraint("run", "key"),
        sqlite_with_rowid=False,
    )
    op.create_index("labels_value", "labels", ["key", "value", "status", "run"])
    op.create_table(
        "pulses",
        sa.Column("run", KEY, nullable=False, autoincrement=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.key"]),
        sa.PrimaryKeyConstraint("run"),
    )
    op.create_table(
        "pushed_beats",
        sa.Column("run", KEY, nullable=False, autoincrement=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("try_number", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.Double(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.key"]),
        sa.PrimaryKeyConstraint("run"),
    )
    op.create_table(
        "samples",
        sa.Column("run", KEY, nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("coarse", sa.SmallInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.key"]),
        sa.PrimaryKeyConstraint("run", "at_ms"),
        sqlite_with_rowid=False,
    )
    op.create_index("samples_age", "samples", ["coarse", "at_ms"])
    op.create_table(
        "specs",
        sa.Column("run", KEY, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.key"]),
        sa.PrimaryKeyConstraint("run", "generation"),
    )
    op.create_table(
        "tries",
        sa.Column("run", KEY, nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("launch_id", sa.Text(), nullable=False),
        sa.Column("nonce_hash", sa.Text(), nullable=False),
        sa.Column("open", sa.SmallInteger(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.key"]),
        sa.PrimaryKeyConstraint("run", "attempt", "number"),
    )
    op.create_table(
        "outbox",
        sa.Column("id", KEY, nullable=False),
        sa.Column("event", KEY, nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("tries", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.Double(), nullable=True),
        sa.Column("delivered_at", sa.Double(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["event"], ["events.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "outbox_due",
        "outbox",
        ["next_at"],
        sqlite_where=sa.text("next_at IS NOT NULL"),
        postgresql_where=sa.text("next_at IS NOT NULL"),
    )
    op.create_index("outbox_event", "outbox", ["event"])
