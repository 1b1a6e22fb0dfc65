"""Alembic's environment. Migrations run in the connection and transaction that ``flowdb.schema`` passes."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=context.config.attributes["target_metadata"],
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
