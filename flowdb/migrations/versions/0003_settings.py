"""The settings of each controller's run."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "settings",
        sa.Column("run_id", ROW_ID, primary_key=True, autoincrement=False),
        sa.Column("section", sa.String(32), primary_key=True),
        sa.Column("chosen", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="settings_run_id_fkey", ondelete="CASCADE"),
    )
