"""Zones record when machines were lost.

The table is recreated with its rows, so that it is the same as in a new database.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

KEPT = ("cell", "provider", "zone", "shape", "spot", "failures", "cool_until", "cause", "detail")


def upgrade() -> None:
    _recreate(sa.Column("lost_at", sa.Text(), nullable=False))


def downgrade() -> None:
    _recreate()


def _recreate(*more: sa.Column[str]) -> None:
    old = sa.table("zones", *(sa.column(name) for name in KEPT))
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
        *more,
        sa.PrimaryKeyConstraint("cell", "provider", "zone", "shape", "spot"),
    )
    new = {column.name: "[]" for column in more}
    op.bulk_insert(table, [{**dict(zip(KEPT, row, strict=True)), **new} for row in rows])
