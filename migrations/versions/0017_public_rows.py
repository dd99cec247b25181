"""Let row-level security test `everyone` before it parses the principals of the reader.

The principals are a text that PostgreSQL parses for each row. A row for everyone needs no parsing where the reader
holds `everyone`, which a setting of the transaction says. The same rows are visible as before.
"""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

CONTEXT_FUNCTION = """
CREATE OR REPLACE FUNCTION kosmos.set_tenant_context(tenant uuid, principals text[]) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
    BEGIN
        EXECUTE format('SET LOCAL kosmos.tenant = %L', tenant);
        EXECUTE format('SET LOCAL kosmos.principals = %L', principals);
        EXECUTE format('SET LOCAL kosmos.everyone = %L',
                       CASE WHEN 'everyone' = ANY (principals) THEN 'on' ELSE 'off' END);
    END
    $$;
"""

PREVIOUS_CONTEXT_FUNCTION = """
CREATE OR REPLACE FUNCTION kosmos.set_tenant_context(tenant uuid, principals text[]) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
    BEGIN
        EXECUTE format('SET LOCAL kosmos.tenant = %L', tenant);
        EXECUTE format('SET LOCAL kosmos.principals = %L', principals);
    END
    $$;
"""

TENANT = "tenant_id = kosmos.current_tenant()"
PREVIOUS_READABLE = f"{TENANT} AND acl && kosmos.current_principals()"
# The acl is tested first: a row for others then costs no read of the setting.
READABLE = (
    f"{TENANT} AND ('everyone' = ANY (acl) AND current_setting('kosmos.everyone', true) = 'on'"
    " OR acl && kosmos.current_principals())"
)
WITH_ACL = (
    "documents",
    "document_versions",
    "chunks",
    "embeddings",
    "lexemes",
    "acl_statistics",
    "unsegmented_terms",
    "document_permissions",
    "files",
)
"""Tables whose rows carry the principals that may read them."""


def upgrade() -> None:
    """Replace the function and the policies. No row is read or written."""
    op.execute(CONTEXT_FUNCTION)
    _alter_policies(READABLE)


def downgrade() -> None:
    """Parse the principals for each row again. No data is lost."""
    _alter_policies(PREVIOUS_READABLE)
    op.execute(PREVIOUS_CONTEXT_FUNCTION)


def _alter_policies(condition: str) -> None:
    for table in WITH_ACL:
        op.execute(f"ALTER POLICY app_read ON kosmos.{table} USING ({condition})")
