"""Create the terms of filters: an index from values of metadata, and from principals, to documents.

Row-level security keeps an index on jsonb or on an array from being used: their operators are not leakproof, so the
acl of every document of the tenant was tested before the filter. Hashes of values are compared by an operator that is.
Each row carries the principals of its document, as the rows of other tables do. A term is necessary and not sufficient:
the filter itself is tested on each document that a term leads to.

Older code writes no terms, so newer code would not find its documents. A downgrade drops the terms.
"""

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

TENANT = "tenant_id = kosmos.current_tenant()"
READABLE = (
    f"{TENANT} AND ('everyone' = ANY (acl) AND current_setting('kosmos.everyone', true) = 'on'"
    " OR acl && kosmos.current_principals())"
)

# Numbers are equal in a filter if their values are: 1 and 1.0. A list has the terms of its elements.
FUNCTION = """
CREATE FUNCTION kosmos.hash_fields(fields jsonb) RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    WITH RECURSIVE nodes (path, value) AS (
        SELECT '', fields
         UNION ALL
        SELECT n.path || child.step, child.value
          FROM nodes n
         CROSS JOIN LATERAL (
               SELECT chr(31) || member.key AS step, member.value
                 FROM jsonb_each(CASE jsonb_typeof(n.value) WHEN 'object' THEN n.value ELSE '{}' END) member
                UNION ALL
               SELECT '', element.value
                 FROM jsonb_array_elements(CASE jsonb_typeof(n.value) WHEN 'array' THEN n.value ELSE '[]' END) element
               ) child)
    SELECT coalesce(array_agg(DISTINCT hashtextextended(
               (n.path || chr(30) || CASE jsonb_typeof(n.value) WHEN 'number' THEN trim_scale(n.value::numeric)::text
                                          ELSE n.value::text END) COLLATE "C", 0)), '{}')
      FROM nodes n
     WHERE jsonb_typeof(n.value) NOT IN ('object', 'array')
    $$;
"""

TABLE = """
CREATE TABLE kosmos.filter_terms (
    tenant_id uuid NOT NULL,
    term bigint NOT NULL,
    document_id uuid NOT NULL,
    acl text[] NOT NULL,
    PRIMARY KEY (tenant_id, term, document_id),
    FOREIGN KEY (tenant_id, document_id) REFERENCES kosmos.documents (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX filter_terms_document ON kosmos.filter_terms (tenant_id, document_id);
"""

# A document of more terms than are worth indexing has the term 0, which every search for terms includes.
FILL = """
INSERT INTO kosmos.filter_terms (tenant_id, term, document_id, acl)
SELECT d.tenant_id, t.term, d.id, d.acl
  FROM (SELECT n.tenant_id, n.id, n.acl,
               kosmos.hash_fields(jsonb_build_object('metadata', n.metadata, 'acl', to_jsonb(n.acl))) AS terms
          FROM kosmos.documents n
        OFFSET 0) d
 CROSS JOIN unnest(CASE WHEN cardinality(d.terms) > 256 THEN '{0}' ELSE d.terms END) AS t (term)
"""


def upgrade() -> None:
    """Create the table with its policies, and fill it from the documents: about 0.1 ms for each."""
    op.execute(FUNCTION)
    op.execute(TABLE)
    op.execute("ALTER TABLE kosmos.documents NO FORCE ROW LEVEL SECURITY")
    op.execute(FILL)
    op.execute("ALTER TABLE kosmos.documents FORCE ROW LEVEL SECURITY")
    for name in ("tenant_id", "term", "document_id"):
        op.execute(f"ALTER TABLE kosmos.filter_terms ALTER COLUMN {name} SET STATISTICS 0")
    op.execute("ALTER TABLE kosmos.filter_terms ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE kosmos.filter_terms FORCE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY worker_all ON kosmos.filter_terms TO kosmos_worker USING ({TENANT}) WITH CHECK ({TENANT})"
    )
    op.execute(f"CREATE POLICY app_read ON kosmos.filter_terms FOR SELECT TO kosmos_app USING ({READABLE})")
    op.execute("GRANT SELECT ON kosmos.filter_terms TO kosmos_app")
    op.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.filter_terms TO kosmos_worker")


def downgrade() -> None:
    """Drop the table and the function. The documents keep their metadata."""
    op.execute("DROP TABLE kosmos.filter_terms")
    op.execute("DROP FUNCTION kosmos.hash_fields(jsonb)")
