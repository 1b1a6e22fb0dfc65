"""Alembic's environment: runs in the connection, and the transaction, that ``flowdb.schema`` hands over."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=context.config.attributes["target_metadata"],
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
