"""Let an API key name the collection of requests that name none. The column is added; older code ignores it."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; keys without a value ask all collections, as before."""
    op.execute('ALTER TABLE kosmos.api_keys ADD COLUMN default_collection text COLLATE "C"')


def downgrade() -> None:
    """Drop the column with the default collections of keys."""
    op.execute("ALTER TABLE kosmos.api_keys DROP COLUMN default_collection")
