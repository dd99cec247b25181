"""Store the places of lines on their pages, and the files of documents. Older code ignores the columns."""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; documents that exist have neither until they are ingested again."""
    op.execute("ALTER TABLE kosmos.document_versions ADD COLUMN boxes bytea NOT NULL DEFAULT ''")
    # Files are compressed already. Citus takes the storage with the column alone.
    op.execute("ALTER TABLE kosmos.document_versions ADD COLUMN original bytea STORAGE EXTERNAL")


def downgrade() -> None:
    """Drop the columns with what they hold; the documents stay."""
    op.execute("ALTER TABLE kosmos.document_versions DROP COLUMN original")
    op.execute("ALTER TABLE kosmos.document_versions DROP COLUMN boxes")
