"""Store an upload in several rows, so that no process holds all of it while it arrives.

A downgrade deletes uploads of more than one row: jobs that wait for them fail, and the documents are sent again.
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Number the rows of an upload; those that exist are complete, and have the number 0."""
    op.execute("ALTER TABLE kosmos.uploads ADD COLUMN number integer NOT NULL DEFAULT 0")
    op.execute("ALTER TABLE kosmos.uploads DROP CONSTRAINT uploads_pkey")
    op.execute("ALTER TABLE kosmos.uploads ADD PRIMARY KEY (tenant_id, id, number)")


def downgrade() -> None:
    """Delete uploads of several rows, and drop their numbers."""
    op.execute("ALTER TABLE kosmos.uploads NO FORCE ROW LEVEL SECURITY")
    op.execute(
        "DELETE FROM kosmos.uploads u USING kosmos.uploads more"
        " WHERE more.tenant_id = u.tenant_id AND more.id = u.id AND more.number > 0"
    )
    op.execute("ALTER TABLE kosmos.uploads FORCE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE kosmos.uploads DROP CONSTRAINT uploads_pkey")
    op.execute("ALTER TABLE kosmos.uploads ADD PRIMARY KEY (tenant_id, id)")
    op.execute("ALTER TABLE kosmos.uploads DROP COLUMN number")
