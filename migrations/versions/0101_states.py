"""Give each change of documents a random identity, in place of a counter.

A counter repeats after a restore, after a recovery to a point in time and after a failover to a standby that lags. A
process that keeps results by it then serves what a lost transaction had opened. Older code reads the counter.
"""

import time
import uuid

import sqlalchemy as sa
from alembic import op

revision = "0101"
down_revision = "0100"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the identity and drop the counter. All present rows get one identity, of this migration."""
    op.execute(f"ALTER TABLE kosmos.acl_statistics ADD COLUMN state uuid NOT NULL DEFAULT '{uuid.uuid4()}'")
    op.execute("ALTER TABLE kosmos.acl_statistics ALTER COLUMN state DROP DEFAULT")
    op.execute("ALTER TABLE kosmos.acl_statistics DROP COLUMN epoch")


def downgrade() -> None:
    """Put the counter back. It goes on from the present time, which no counter has reached: no data is lost."""
    op.execute("ALTER TABLE kosmos.collection_statistics NO FORCE ROW LEVEL SECURITY")
    later = sa.text("UPDATE kosmos.collection_statistics SET epoch = :epoch").bindparams(epoch=time.time_ns() // 1000)
    op.execute(later)
    op.execute("ALTER TABLE kosmos.collection_statistics FORCE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE kosmos.acl_statistics ADD COLUMN epoch bigint NOT NULL DEFAULT 0")
    op.execute("ALTER TABLE kosmos.acl_statistics ALTER COLUMN epoch DROP DEFAULT")
    op.execute("ALTER TABLE kosmos.acl_statistics DROP COLUMN state")
