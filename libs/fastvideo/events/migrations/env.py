"""Alembic's entry: it runs on the connection that `fastvideo.events.migrate` hands over."""

from alembic import context

from fastvideo.events.tables import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
