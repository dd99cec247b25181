"""Count the documents of a run whose jobs were cancelled apart from those that failed.

A downgrade counts them as failed again. Older code ignores the column, and runs with cancelled jobs stay open for it.
"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column and the state; earlier runs keep their counts."""
    op.execute("ALTER TABLE kosmos.sync_runs ADD COLUMN cancelled integer NOT NULL DEFAULT 0")
    _allow_states("'listing', 'working', 'finished', 'failed', 'cancelled'")


def downgrade() -> None:
    """Count cancelled documents and runs as failed."""
    op.execute("ALTER TABLE kosmos.sync_runs NO FORCE ROW LEVEL SECURITY")
    op.execute(
        "UPDATE kosmos.sync_runs SET failed = failed + cancelled,"
        " state = CASE WHEN state = 'cancelled' THEN 'failed' ELSE state END"
        " WHERE cancelled > 0 OR state = 'cancelled'"
    )
    op.execute("ALTER TABLE kosmos.sync_runs FORCE ROW LEVEL SECURITY")
    _allow_states("'listing', 'working', 'finished', 'failed'")
    op.execute("ALTER TABLE kosmos.sync_runs DROP COLUMN cancelled")


def _allow_states(states: str) -> None:
    op.execute("ALTER TABLE kosmos.sync_runs DROP CONSTRAINT sync_runs_state_check")
    op.execute(f"ALTER TABLE kosmos.sync_runs ADD CONSTRAINT sync_runs_state_check CHECK (state IN ({states}))")
