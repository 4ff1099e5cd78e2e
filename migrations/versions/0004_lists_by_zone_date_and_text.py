"""Lists by zone, by date and by a part of the id are read in indexes alone."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.drop_index("runs_status", "runs")
    op.create_index("runs_status", "runs", ["status", "key", "created_at", "run_id"])
    op.create_index("runs_zone", "runs", ["zone", "status", "key"])


def downgrade() -> None:
    for index in ("runs_zone", "runs_status"):
        op.drop_index(index, "runs")
    op.create_index("runs_status", "runs", ["status", "key"])
