"""How alembic runs the revisions: on the connection it is handed, as kosmos_owner, in one transaction.

`kosmos-rag migrate` is the way in (kosmos_rag/storage/migrate.py); it makes the roles and the schema first.
"""

from alembic import context

from kosmos_rag.storage.migrate import SCHEMA

connection = context.config.attributes["connection"]

context.configure(connection=connection, version_table_schema=SCHEMA)
with context.begin_transaction():
    context.run_migrations()
