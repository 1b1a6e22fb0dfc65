"""A column for the port counters that have none of their own. Rows written before have NULL there."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("port_samples", sa.Column("other_counters", sa.JSON(), nullable=True))
