"""Leave half of each page of `lexemes` free: a publication updates most rows, in place where their page has space."""

from alembic import op

revision = "0114"
down_revision = "0113"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Set the fill factor of new pages; nothing is rewritten, and neither readers nor writers wait."""
    op.execute("ALTER TABLE kosmos.lexemes SET (fillfactor = 50)")


def downgrade() -> None:
    """Set the fill factor of the baseline; no data is lost."""
    op.execute("ALTER TABLE kosmos.lexemes SET (fillfactor = 70)")
