"""Store the reason of a rating. Older code ignores the column."""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; ratings that exist have no reason."""
    op.execute("ALTER TABLE kosmos.feedback ADD COLUMN reason text")
    op.execute(
        "ALTER TABLE kosmos.feedback ADD CONSTRAINT ck_feedback_reason "
        "CHECK (reason IN ('wrong', 'incomplete', 'outdated', 'not_covered'))"
    )


def downgrade() -> None:
    """Drop the column with the reasons."""
    op.execute("ALTER TABLE kosmos.feedback DROP COLUMN reason")
