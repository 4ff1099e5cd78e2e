"""Incidents: ends of several runs with something in common."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "incidents",
        sa.Column("id", KEY, nullable=False),
        sa.Column("cell", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("closed_at", sa.Double(), nullable=True),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    is_open = sa.text("closed_at IS NULL")
    columns = ["cell", "kind", "value"]
    op.create_index("incidents_open", "incidents", columns, unique=True, sqlite_where=is_open, postgresql_where=is_open)
    op.create_index("incidents_closed", "incidents", ["closed_at"])


def downgrade() -> None:
    op.drop_table("incidents")
