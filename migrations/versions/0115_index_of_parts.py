"""Find the parts of large files without reading all documents of a collection."""

from alembic import op

revision = "0115"
down_revision = "0114"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Build an index of the documents with the name of a part; publications wait while it is built."""
    op.execute(
        "CREATE INDEX documents_parts ON kosmos.documents (tenant_id, collection) "
        "WHERE source ~ '#part-[1-9][0-9]{0,8}$'"
    )


def downgrade() -> None:
    """Drop the index; no data is lost."""
    op.execute("DROP INDEX kosmos.documents_parts")
