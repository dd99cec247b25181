"""Record queries on described databases in the audit log under a kind of their own.

Rows of the log are never changed: earlier queries keep the kind `search`, and rows of the new kind stay after a
downgrade. Older code cannot list these rows.
"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Allow the kind `query`."""
    _allow_kinds("'search', 'context', 'answer', 'query'")


def downgrade() -> None:
    """Refuse new rows of the kind `query`."""
    # Not valid: rows of that kind stay, under the seals.
    _allow_kinds("'search', 'context', 'answer'", " NOT VALID")


def _allow_kinds(kinds: str, validity: str = "") -> None:
    op.execute("ALTER TABLE kosmos.audit_events DROP CONSTRAINT audit_events_kind_check")
    op.execute(
        f"ALTER TABLE kosmos.audit_events ADD CONSTRAINT audit_events_kind_check CHECK (kind IN ({kinds})){validity}"
    )
