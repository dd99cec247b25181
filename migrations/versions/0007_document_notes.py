"""Let a document have notes: what of its file was guessed or could not be read. Older code ignores the column."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; documents that exist have no notes."""
    op.execute("ALTER TABLE kosmos.documents ADD COLUMN notes jsonb NOT NULL DEFAULT '[]'")


def downgrade() -> None:
    """Drop the column with the notes."""
    op.execute("ALTER TABLE kosmos.documents DROP COLUMN notes")
