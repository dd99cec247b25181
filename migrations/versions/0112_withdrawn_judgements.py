"""Keep judgements that were withdrawn: they say whose question results of evaluations have."""

from alembic import op

revision = "0112"
down_revision = "0111"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Extend the judgements that a question may have."""
    _set_judgements("'accepted', 'rejected', 'open'")


def downgrade() -> None:
    """Delete the judgements that were withdrawn."""
    op.execute("ALTER TABLE kosmos.judged_questions NO FORCE ROW LEVEL SECURITY")
    op.execute("DELETE FROM kosmos.judged_questions WHERE judgement = 'open'")
    op.execute("ALTER TABLE kosmos.judged_questions FORCE ROW LEVEL SECURITY")
    _set_judgements("'accepted', 'rejected'")


def _set_judgements(names: str) -> None:
    op.execute("ALTER TABLE kosmos.judged_questions DROP CONSTRAINT judged_questions_judgement_check")
    op.execute(
        "ALTER TABLE kosmos.judged_questions ADD CONSTRAINT judged_questions_judgement_check "
        f"CHECK (judgement IN ({names}))"
    )
