"""The epoch of a corpus, raised by each transaction that changes its documents: a kept result is known as old by it."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.execute("ALTER TABLE kosmos.corpus_statistics ADD COLUMN epoch bigint NOT NULL DEFAULT 0")
    op.execute("ALTER TABLE kosmos.corpus_statistics ALTER COLUMN epoch DROP DEFAULT")


def downgrade() -> None:
    """Drop the column."""
    op.execute("ALTER TABLE kosmos.corpus_statistics DROP COLUMN epoch")
