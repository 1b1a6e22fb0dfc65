"""The port's allowance, if it gave a decision's window. Rows written before have 0."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    allowance = sa.Column("allowance_bytes", sa.BigInteger(), nullable=False, server_default="0")
    op.add_column("decisions", allowance)
