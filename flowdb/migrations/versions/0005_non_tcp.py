"""The part of an alarm's queue that would be there without TCP. Rows written before have 0."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    percent = sa.Column("non_tcp_percent", sa.BigInteger(), nullable=False, server_default="0")
    op.add_column("alarms", percent)
