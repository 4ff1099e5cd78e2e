"""Alembic's environment: it uses the connection and the transaction of supervisor/storage/engine/schema.py.

Batch mode, because SQLite changes a table by recreating it.
"""

from alembic import context

from supervisor.storage.engine.schema import VERSION_TABLE
from supervisor.storage.engine.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
