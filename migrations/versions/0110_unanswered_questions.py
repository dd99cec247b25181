"""Keep questions that find nothing or are refused. Older code does not read them."""

from alembic import op

revision = "0110"
down_revision = "0109"
branch_labels = None
depends_on = None

TENANT = "tenant_id = kosmos.current_tenant()"

QUESTIONS = """
CREATE TABLE kosmos.unanswered_questions (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    first_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL,
    times integer NOT NULL CHECK (times > 0),
    collection text COLLATE "C",
    subject text,
    principals text[] NOT NULL,
    question text NOT NULL,
    reason text NOT NULL CHECK (reason IN ('none', 'refused', 'declined')),
    group_id uuid,
    vector halfvec,
    vector_model text,
    checked_at timestamptz NOT NULL,
    checked_state text,
    answered_at timestamptz,
    PRIMARY KEY (tenant_id, id)
);
"""


def upgrade() -> None:
    """Create the table, for the worker role alone: readers never see questions of others."""
    op.execute(QUESTIONS)
    op.execute("ALTER TABLE kosmos.unanswered_questions ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE kosmos.unanswered_questions FORCE ROW LEVEL SECURITY")
    op.execute(
        "CREATE POLICY worker_all ON kosmos.unanswered_questions FOR ALL TO kosmos_worker "
        f"USING ({TENANT}) WITH CHECK ({TENANT})"
    )
    op.execute(f"CREATE POLICY app_read ON kosmos.unanswered_questions FOR SELECT TO kosmos_app USING ({TENANT})")
    op.execute("CREATE POLICY backup_read ON kosmos.unanswered_questions FOR SELECT TO kosmos_backup USING (true)")
    op.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.unanswered_questions TO kosmos_worker")
    op.execute("GRANT SELECT ON kosmos.unanswered_questions TO kosmos_backup")


def downgrade() -> None:
    """Drop the table with all questions."""
    op.execute("DROP TABLE kosmos.unanswered_questions")
