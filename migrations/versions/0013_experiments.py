"""Experiments: a second configuration beside the first; and clicks among what readers think."""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE kosmos.experiments (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    collection text COLLATE "C",
    mode text NOT NULL CHECK (mode IN ('shadow', 'serve')),
    share double precision NOT NULL CHECK (share > 0 AND share <= 1),
    content text NOT NULL,
    started_at timestamptz NOT NULL,
    stopped_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
);
CREATE UNIQUE INDEX experiments_running ON kosmos.experiments (tenant_id, collection)
       NULLS NOT DISTINCT WHERE stopped_at IS NULL;

CREATE TABLE kosmos.experiment_results (
    tenant_id uuid NOT NULL,
    experiment_id uuid NOT NULL,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    retrieval_id uuid,
    arm text NOT NULL CHECK (arm IN ('first', 'second')),
    requested integer NOT NULL,
    first_ms double precision,
    second_ms double precision,
    first_hits integer,
    second_hits integer,
    overlap double precision,
    rbo double precision,
    degraded boolean NOT NULL,
    fault text,
    PRIMARY KEY (tenant_id, experiment_id, id),
    FOREIGN KEY (tenant_id, experiment_id) REFERENCES kosmos.experiments ON DELETE CASCADE
);
CREATE INDEX experiment_results_at ON kosmos.experiment_results (tenant_id, experiment_id, at);
"""

OWN = "tenant_id = kosmos.tenant()"


def upgrade() -> None:
    """Create the tables. Who answers reads which experiment runs; results are for who runs it."""
    op.execute(TABLES)
    for table in ("experiments", "experiment_results"):
        op.execute(f"ALTER TABLE kosmos.{table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE kosmos.{table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY app_read ON kosmos.{table} FOR SELECT TO kosmos_app USING ({OWN})")
        op.execute(
            f"CREATE POLICY worker_all ON kosmos.{table} FOR ALL TO kosmos_worker USING ({OWN}) WITH CHECK ({OWN})"
        )
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.{table} TO kosmos_worker")
    op.execute("GRANT SELECT ON kosmos.experiments TO kosmos_app")
    _ratings("'up', 'down', 'click'")


def downgrade() -> None:
    """Drop them with what was found, and the clicks: the owner, bound by row-level security too, would see none."""
    op.execute("DROP TABLE kosmos.experiment_results")
    op.execute("DROP TABLE kosmos.experiments")
    op.execute("ALTER TABLE kosmos.feedback NO FORCE ROW LEVEL SECURITY")
    op.execute("DELETE FROM kosmos.feedback WHERE rating = 'click'")
    op.execute("ALTER TABLE kosmos.feedback FORCE ROW LEVEL SECURITY")
    _ratings("'up', 'down'")


def _ratings(known: str) -> None:
    op.execute("ALTER TABLE kosmos.feedback DROP CONSTRAINT feedback_rating_check")
    op.execute(f"ALTER TABLE kosmos.feedback ADD CONSTRAINT feedback_rating_check CHECK (rating IN ({known}))")
