"""Allow API keys with the scope operate. Older code ignores it: such a key may do nothing there."""

from alembic import op

revision = "0109"
down_revision = "0108"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Extend the scopes that a key may have."""
    _set_scopes("'read', 'ingest', 'operate', 'admin'")


def downgrade() -> None:
    """Take the scope from all keys. A key without another one is deleted."""
    op.execute("ALTER TABLE kosmos.api_keys NO FORCE ROW LEVEL SECURITY")
    op.execute("DELETE FROM kosmos.api_keys WHERE scopes <@ ARRAY['operate']")
    op.execute("UPDATE kosmos.api_keys SET scopes = array_remove(scopes, 'operate') WHERE 'operate' = ANY (scopes)")
    op.execute("ALTER TABLE kosmos.api_keys FORCE ROW LEVEL SECURITY")
    _set_scopes("'read', 'ingest', 'admin'")


def _set_scopes(names: str) -> None:
    op.execute("ALTER TABLE kosmos.api_keys DROP CONSTRAINT api_keys_scopes_check")
    op.execute(
        "ALTER TABLE kosmos.api_keys ADD CONSTRAINT api_keys_scopes_check "
        f"CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY[{names}])"
    )
