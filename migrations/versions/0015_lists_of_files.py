"""Index stored files by time and documents by collection: their lists were sorted whole, and one store read all."""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the indexes."""
    op.execute("CREATE INDEX files_created_at ON kosmos.files (tenant_id, created_at, id)")
    op.execute("CREATE INDEX documents_collection ON kosmos.documents (tenant_id, collection)")


def downgrade() -> None:
    """Drop the indexes."""
    op.execute("DROP INDEX kosmos.documents_collection")
    op.execute("DROP INDEX kosmos.files_created_at")
