"""Create the records of erasures: what was erased when, without what it was.

Like the seals of the audit log, a record outlives its tenant: the table has no reference to it. kosmos_worker appends
and reads; no serving role may change or delete a record.

A downgrade loses the records.
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TABLE = """
CREATE TABLE kosmos.erasures (
    tenant_id uuid NOT NULL,
    number integer NOT NULL CHECK (number > 0),
    at timestamptz NOT NULL,
    kind text NOT NULL CHECK (kind IN ('tenant', 'subject', 'source', 'metadata')),
    selector_sha256 text NOT NULL,
    erased jsonb NOT NULL,
    retained jsonb NOT NULL,
    sha256 text NOT NULL,
    PRIMARY KEY (tenant_id, number)
);
ALTER TABLE kosmos.erasures ENABLE ROW LEVEL SECURITY;
ALTER TABLE kosmos.erasures FORCE ROW LEVEL SECURITY;
CREATE POLICY worker_append ON kosmos.erasures FOR INSERT TO kosmos_worker
    WITH CHECK (tenant_id = kosmos.current_tenant());
CREATE POLICY worker_read ON kosmos.erasures FOR SELECT TO kosmos_worker USING (tenant_id = kosmos.current_tenant());
GRANT SELECT, INSERT ON kosmos.erasures TO kosmos_worker;
"""


def upgrade() -> None:
    """Create the table, append-only for kosmos_worker."""
    op.execute(TABLE)


def downgrade() -> None:
    """Drop the table with all records of erasures."""
    op.execute("DROP TABLE kosmos.erasures")
