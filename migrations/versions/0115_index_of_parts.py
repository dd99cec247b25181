"""Mark the parts of large files with the document id of their file, and find them by an index."""

import re
import uuid

import sqlalchemy as sa
from alembic import op

revision = "0115"
down_revision = "0114"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column with its index, and mark the stored parts; publications wait meanwhile."""
    op.execute("ALTER TABLE kosmos.documents ADD COLUMN file_id uuid")
    op.execute("ALTER TABLE kosmos.documents NO FORCE ROW LEVEL SECURITY")
    _mark_parts(op.get_bind())
    op.execute("ALTER TABLE kosmos.documents FORCE ROW LEVEL SECURITY")
    op.execute(
        "CREATE INDEX documents_parts ON kosmos.documents (tenant_id, collection, file_id) WHERE file_id IS NOT NULL"
    )


def downgrade() -> None:
    """Drop the column and its index: what tells parts from files with such names is lost."""
    op.execute("DROP INDEX kosmos.documents_parts")
    op.execute("ALTER TABLE kosmos.documents DROP COLUMN file_id")


def _mark_parts(connection: sa.Connection) -> None:
    """Mark the documents that have the name and the type of a part."""
    rows = connection.execute(
        sa.text(
            "SELECT tenant_id, id, collection, source FROM kosmos.documents "
            "WHERE source ~* '[^/][.](csv|tsv|tab|jsonl|ndjson)#part-[1-9][0-9]{0,8}$' "
            "AND media_type IN ('text/csv', 'text/tab-separated-values', 'application/jsonl')"
        )
    ).all()
    update = sa.text("UPDATE kosmos.documents SET file_id = :file_id WHERE tenant_id = :tenant_id AND id = :id")
    for tenant_id, key, collection, source in rows:
        corpus = tenant_id if collection == "default" else uuid.uuid5(tenant_id, f"\x1f{collection}")
        file_id = uuid.uuid5(corpus, re.sub(r"#part-\d+$", "", source))
        connection.execute(update, {"tenant_id": tenant_id, "id": key, "file_id": file_id})
