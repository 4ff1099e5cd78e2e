"""Tokens, and receivers of announcements with what was sent to them."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _tokens()
    _endpoints()
    _deliveries()


def downgrade() -> None:
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
    op.create_index("deliveries_due", "deliveries", ["next_at"], sqlite_where=due, postgresql_where=due)
    op.create_index("deliveries_event", "deliveries", ["event"])
