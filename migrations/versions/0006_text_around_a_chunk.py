"""The span of the section around a chunk: a small piece is found, and what stands around it is shown."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

COLUMNS = """
ALTER TABLE kosmos.chunks
    ADD COLUMN around_start integer,
    ADD COLUMN around_end integer,
    ADD CONSTRAINT chunks_around_check CHECK (
        (around_start IS NULL) = (around_end IS NULL) AND around_start <= start_offset AND around_end >= end_offset);
"""


def upgrade() -> None:
    """Add the columns: chunks of before have nothing around them, and are shown as they are."""
    op.execute(COLUMNS)


def downgrade() -> None:
    """Drop them."""
    op.execute("ALTER TABLE kosmos.chunks DROP COLUMN around_start, DROP COLUMN around_end")
