"""Evaluations: what was measured of a tenant's retrieval, question by question, and under which settings."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE kosmos.evaluations (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    label text NOT NULL,
    set_name text NOT NULL,
    set_sha256 text NOT NULL,
    collection text COLLATE "C",
    principals text[] NOT NULL,
    depth integer NOT NULL CHECK (depth > 0),
    questions integer NOT NULL CHECK (questions > 0),
    answered boolean NOT NULL,
    measures json NOT NULL,
    settings jsonb NOT NULL,
    settings_version text NOT NULL,
    code_version text NOT NULL,
    index_state jsonb NOT NULL,
    seconds double precision NOT NULL,
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE kosmos.evaluation_results (
    tenant_id uuid NOT NULL,
    evaluation_id uuid NOT NULL,
    question_id text COLLATE "C" NOT NULL,
    question text NOT NULL,
    judged jsonb NOT NULL,
    ranking text[] NOT NULL,
    measures json NOT NULL,
    timings_ms json NOT NULL,
    refused boolean,
    confidence double precision,
    PRIMARY KEY (tenant_id, evaluation_id, question_id),
    FOREIGN KEY (tenant_id, evaluation_id) REFERENCES kosmos.evaluations ON DELETE CASCADE
);
"""

OWN = "tenant_id = kosmos.tenant()"


def upgrade() -> None:
    """Create the tables. Questions are of any reader's documents, so none but a worker reads the results."""
    op.execute(TABLES)
    for table in ("evaluations", "evaluation_results"):
        op.execute(f"ALTER TABLE kosmos.{table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE kosmos.{table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY app_read ON kosmos.{table} FOR SELECT TO kosmos_app USING ({OWN})")
        op.execute(
            f"CREATE POLICY worker_all ON kosmos.{table} FOR ALL TO kosmos_worker USING ({OWN}) WITH CHECK ({OWN})"
        )
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.{table} TO kosmos_worker")


def downgrade() -> None:
    """Drop them with what was measured."""
    op.execute("DROP TABLE kosmos.evaluation_results")
    op.execute("DROP TABLE kosmos.evaluations")
