"""Delete the statistics of access control lists without chunks: each change of permissions left some.

Older code serves cached results by the epoch of these rows alone, so it cannot serve from databases without them.
"""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Delete the rows; newer code deletes them as the last chunk goes."""
    op.execute("ALTER TABLE kosmos.acl_statistics NO FORCE ROW LEVEL SECURITY")
    op.execute("DELETE FROM kosmos.acl_statistics s WHERE s.chunks = 0")
    op.execute("ALTER TABLE kosmos.acl_statistics FORCE ROW LEVEL SECURITY")


def downgrade() -> None:
    """Leave all rows: older code has empty caches when it starts."""
