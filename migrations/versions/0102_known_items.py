"""Keep how well each retriever finds known items of a collection. Older code does not read it."""

from alembic import op

revision = "0102"
down_revision = "0101"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Maintenance fills it."""
    op.execute("ALTER TABLE kosmos.collection_statistics ADD COLUMN known_items jsonb")


def downgrade() -> None:
    """Drop the column with its measurements, which maintenance can repeat."""
    op.execute("ALTER TABLE kosmos.collection_statistics DROP COLUMN known_items")
