"""The guard of recall: samples of live questions, what was measured with them, and what became of the indexes."""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

# Samples refer to no space: one may be dropped while they wait to be written. Runs and the log outlive their indexes.
TABLES = """
CREATE TABLE kosmos.guard_samples (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    space_id uuid NOT NULL,
    collection text COLLATE "C",
    principals text[] NOT NULL,
    vector halfvec NOT NULL,
    question text,
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE kosmos.guard_runs (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    kind text NOT NULL CHECK (kind IN ('recall', 'questions', 'permission')),
    state text NOT NULL CHECK (state IN ('ok', 'alarm', 'unknown')),
    why text NOT NULL,
    index_id uuid,
    figures jsonb NOT NULL,
    scores real[] NOT NULL,
    milliseconds double precision NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX guard_runs_newest ON kosmos.guard_runs (tenant_id, kind, at);

CREATE TABLE kosmos.index_log (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    index_id uuid NOT NULL,
    action text NOT NULL CHECK (action IN ('built', 'tuned', 'raised', 'dropped', 'left')),
    why text NOT NULL,
    before jsonb NOT NULL,
    after jsonb NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX index_log_newest ON kosmos.index_log (tenant_id, at);
"""

OWN = "tenant_id = kosmos.tenant()"


def upgrade() -> None:
    """Create the tables. Who answers may add samples and read none: they are questions of other readers."""
    op.execute(TABLES)
    for table in ("guard_samples", "guard_runs", "index_log"):
        op.execute(f"ALTER TABLE kosmos.{table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE kosmos.{table} FORCE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY worker_all ON kosmos.{table} FOR ALL TO kosmos_worker USING ({OWN}) WITH CHECK ({OWN})"
        )
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.{table} TO kosmos_worker")
    op.execute(f"CREATE POLICY app_append ON kosmos.guard_samples FOR INSERT TO kosmos_app WITH CHECK ({OWN})")
    op.execute("GRANT INSERT ON kosmos.guard_samples TO kosmos_app")
    for table in ("guard_runs", "index_log"):
        op.execute(f"CREATE POLICY app_read ON kosmos.{table} FOR SELECT TO kosmos_app USING ({OWN})")


def downgrade() -> None:
    """Drop them, with what was measured and what was logged."""
    for table in ("index_log", "guard_runs", "guard_samples"):
        op.execute(f"DROP TABLE kosmos.{table}")
