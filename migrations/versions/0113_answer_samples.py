"""Keep a share of delivered answers until their check, and what the check found. Older code does not read them."""

from alembic import op

revision = "0113"
down_revision = "0112"
branch_labels = None
depends_on = None

TENANT = "tenant_id = kosmos.current_tenant()"

SAMPLES = """
CREATE TABLE kosmos.answer_samples (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    collection text COLLATE "C",
    subject text,
    principals text[] NOT NULL,
    retrieval_id uuid,
    question_sha256 text NOT NULL,
    is_refused boolean NOT NULL,
    answer jsonb,
    sources text[] NOT NULL,
    verdict text CHECK (verdict IN ('supported', 'unsupported', 'outdated')),
    checked_at timestamptz,
    PRIMARY KEY (tenant_id, id)
);
"""


def upgrade() -> None:
    """Create the table, for the worker role alone: readers never see answers of others."""
    op.execute(SAMPLES)
    op.execute("ALTER TABLE kosmos.answer_samples ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE kosmos.answer_samples FORCE ROW LEVEL SECURITY")
    op.execute(
        "CREATE POLICY worker_all ON kosmos.answer_samples FOR ALL TO kosmos_worker "
        f"USING ({TENANT}) WITH CHECK ({TENANT})"
    )
    op.execute(f"CREATE POLICY app_read ON kosmos.answer_samples FOR SELECT TO kosmos_app USING ({TENANT})")
    op.execute("CREATE POLICY backup_read ON kosmos.answer_samples FOR SELECT TO kosmos_backup USING (true)")
    op.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.answer_samples TO kosmos_worker")
    op.execute("GRANT SELECT ON kosmos.answer_samples TO kosmos_backup")


def downgrade() -> None:
    """Drop the table with all samples."""
    op.execute("DROP TABLE kosmos.answer_samples")
