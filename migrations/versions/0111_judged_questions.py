"""Keep questions of readers that a person has judged. Older code does not read them."""

from alembic import op

revision = "0111"
down_revision = "0110"
branch_labels = None
depends_on = None

TENANT = "tenant_id = kosmos.current_tenant()"

QUESTIONS = """
CREATE TABLE kosmos.judged_questions (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    judgement text NOT NULL CHECK (judgement IN ('accepted', 'rejected')),
    judge text,
    collection text COLLATE "C",
    question text NOT NULL,
    question_id text COLLATE "C" NOT NULL,
    source text,
    section text,
    line_start integer,
    line_end integer,
    principal text NOT NULL,
    subjects text[] NOT NULL,
    ups integer NOT NULL,
    downs integer NOT NULL,
    clicks integer NOT NULL,
    last_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
"""


def upgrade() -> None:
    """Create the table, for the worker role alone: readers never see questions of others."""
    op.execute(QUESTIONS)
    op.execute("ALTER TABLE kosmos.judged_questions ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE kosmos.judged_questions FORCE ROW LEVEL SECURITY")
    op.execute(
        "CREATE POLICY worker_all ON kosmos.judged_questions FOR ALL TO kosmos_worker "
        f"USING ({TENANT}) WITH CHECK ({TENANT})"
    )
    op.execute(f"CREATE POLICY app_read ON kosmos.judged_questions FOR SELECT TO kosmos_app USING ({TENANT})")
    op.execute("CREATE POLICY backup_read ON kosmos.judged_questions FOR SELECT TO kosmos_backup USING (true)")
    op.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.judged_questions TO kosmos_worker")
    op.execute("GRANT SELECT ON kosmos.judged_questions TO kosmos_backup")


def downgrade() -> None:
    """Drop the table with all decisions."""
    op.execute("DROP TABLE kosmos.judged_questions")
