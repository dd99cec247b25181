"""Record the prefixes that the model of an embedding space puts before texts.

Older code ignores the columns.
"""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; spaces that exist have no prefixes."""
    op.execute(
        "ALTER TABLE kosmos.embedding_spaces"
        " ADD COLUMN query_prefix text NOT NULL DEFAULT '', ADD COLUMN passage_prefix text NOT NULL DEFAULT ''"
    )


def downgrade() -> None:
    """Drop the columns; the spaces stay."""
    op.execute("ALTER TABLE kosmos.embedding_spaces DROP COLUMN query_prefix, DROP COLUMN passage_prefix")
