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
    for column in ("plans_only", "usd_per_run_micro", "usd_per_day_micro"):
        op.drop_column("tokens", column)
