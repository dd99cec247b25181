"""What readers think of answers and passages: work for those who write the documents."""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# A retrieval is in the log, which is partitioned and referred to by nothing; a chunk goes with its version.
TABLE = """
CREATE TABLE kosmos.feedback (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    subject text NOT NULL,
    collection text COLLATE "C",
    retrieval_id uuid,
    question text,
    question_sha256 text NOT NULL,
    rating text NOT NULL CHECK (rating IN ('up', 'down')),
    chunk_id uuid,
    source text,
    comment text,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX feedback_down ON kosmos.feedback (tenant_id, at) WHERE rating = 'down';
"""

OWN = "tenant_id = kosmos.tenant()"


def upgrade() -> None:
    """Create the table. What one reader thinks is not for the others: none but a worker reads it."""
    op.execute(TABLE)
    op.execute("ALTER TABLE kosmos.feedback ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE kosmos.feedback FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY app_read ON kosmos.feedback FOR SELECT TO kosmos_app USING ({OWN})")
    op.execute(f"CREATE POLICY worker_all ON kosmos.feedback FOR ALL TO kosmos_worker USING ({OWN}) WITH CHECK ({OWN})")
    op.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.feedback TO kosmos_worker")


def downgrade() -> None:
    """Drop it with all that was said."""
    op.execute("DROP TABLE kosmos.feedback")
