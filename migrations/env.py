"""How alembic runs the revisions: on the connection it is handed, as kosmos_owner, in one transaction.

`kosmos-rag migrate` is the way in (kosmos_rag/storage/migrate.py); it makes the roles and the schema first.
"""

from alembic import context

from kosmos_rag.storage.migrate import SCHEMA
from kosmos_rag.storage.tables import metadata

connection = context.config.attributes["connection"]

context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table_schema=SCHEMA,
    include_schemas=True,
)
with context.begin_transaction():
    context.run_migrations()
