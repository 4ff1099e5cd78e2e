"""Caps of tokens in dollars, and what a token has let each run spend."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("tokens", sa.Column("usd_per_day_micro", sa.BigInteger(), nullable=True))
    op.add_column("tokens", sa.Column("usd_per_run_micro", sa.BigInteger(), nullable=True))
    op.add_column("tokens", sa.Column("plans_only", sa.SmallInteger(), server_default=sa.text("0"), nullable=False))
    op.create_table(
        "allowances",
        sa.Column("run", KEY, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("most_micro", sa.BigInteger(), nullable=False),
        sa.Column("spent_micro", sa.BigInteger(), nullable=True),
        sa.Column("closed_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["run"], ["runs.key"]),
        sa.PrimaryKeyConstraint("run", "generation"),
    )
    op.create_index("allowances_token", "allowances", ["token", "closed_at"])


def downgrade() -> None:
    op.drop_table("allowances")
    # Recreated with its rows, so that it is the same as before.
    columns = (
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
    )
    names = [column.name for column in columns]
    rows = op.get_bind().execute(sa.select(sa.table("tokens", *(sa.column(name) for name in names)))).all()
    op.drop_table("tokens")
    table = op.create_table("tokens", *columns, sa.PrimaryKeyConstraint("id"), sa.UniqueConstraint("hash"))
    op.bulk_insert(table, [dict(zip(names, row, strict=True)) for row in rows])
