"""Let a chunk carry the caption and column names of its table. Older code ignores the column."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; chunks that exist have no such context."""
    op.execute("ALTER TABLE kosmos.chunks ADD COLUMN table_context text[] NOT NULL DEFAULT '{}'")


def downgrade() -> None:
    """Drop the column; the chunks stay."""
    op.execute("ALTER TABLE kosmos.chunks DROP COLUMN table_context")
