"""Create the schema: tenants, documents, chunks, vectors, lexical statistics, and their row-level security.

Roles and the extension are made before (kosmos_rag/storage/provision.py): they belong to the server, not to one
database's history. This revision runs as kosmos_owner.
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Frozen here on purpose: a released revision must not change when the code does.
FUNCTIONS = """
CREATE FUNCTION kosmos.tenant() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT NULLIF(current_setting('kosmos.tenant', true), '')::uuid $$;

CREATE FUNCTION kosmos.principals() RETURNS text[] LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT NULLIF(current_setting('kosmos.principals', true), '')::text[] $$;

-- Literal SET LOCAL and not set_config(): only the former travels to the workers of a distributed server.
CREATE FUNCTION kosmos.enter(tenant uuid, principals text[]) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
    BEGIN
        EXECUTE format('SET LOCAL kosmos.tenant = %L', tenant);
        EXECUTE format('SET LOCAL kosmos.principals = %L', principals);
    END
    $$;
"""

TABLES = """
CREATE TABLE kosmos.tenants (
    tenant_id uuid PRIMARY KEY,
    name text NOT NULL,
    live_space_id uuid,
    created_at timestamptz NOT NULL
);

CREATE TABLE kosmos.embedding_spaces (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    model text NOT NULL,
    dimensions integer NOT NULL CHECK (dimensions BETWEEN 1 AND 4000),
    normalized boolean NOT NULL,
    probe halfvec NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id)
);

ALTER TABLE kosmos.tenants ADD CONSTRAINT tenants_live_space_fkey
    FOREIGN KEY (tenant_id, live_space_id) REFERENCES kosmos.embedding_spaces (tenant_id, id);

CREATE TABLE kosmos.documents (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    source text NOT NULL,
    title text NOT NULL,
    media_type text NOT NULL,
    language text NOT NULL,
    metadata jsonb NOT NULL,
    acl text[] NOT NULL,
    version integer NOT NULL CHECK (version >= 1),
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE kosmos.document_versions (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    document_id uuid NOT NULL,
    number integer NOT NULL CHECK (number >= 1),
    content_hash text NOT NULL,
    fingerprint text NOT NULL,
    bytes bigint NOT NULL,
    text text NOT NULL,
    pages integer[] NOT NULL,
    chunks integer NOT NULL,
    acl text[] NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, document_id, number),
    FOREIGN KEY (tenant_id, document_id) REFERENCES kosmos.documents (tenant_id, id) ON DELETE CASCADE
);

CREATE TABLE kosmos.chunks (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    document_id uuid NOT NULL,
    version_id uuid NOT NULL,
    ordinal integer NOT NULL,
    start_offset integer NOT NULL,
    end_offset integer NOT NULL CHECK (end_offset > start_offset),
    line_start integer NOT NULL,
    line_end integer NOT NULL,
    page_start integer,
    page_end integer,
    section text[] NOT NULL,
    text text NOT NULL,
    tokens integer NOT NULL,
    splitter text NOT NULL,
    fallback_reason text,
    acl text[] NOT NULL,
    tsv tsvector NOT NULL,
    length integer NOT NULL,
    pivot real NOT NULL,
    terms sparsevec NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, version_id, ordinal),
    FOREIGN KEY (tenant_id, version_id) REFERENCES kosmos.document_versions (tenant_id, id) ON DELETE CASCADE
);

CREATE TABLE kosmos.embeddings (
    tenant_id uuid NOT NULL,
    chunk_id uuid NOT NULL,
    space_id uuid NOT NULL,
    acl text[] NOT NULL,
    embedding halfvec NOT NULL,
    PRIMARY KEY (tenant_id, chunk_id, space_id),
    FOREIGN KEY (tenant_id, chunk_id) REFERENCES kosmos.chunks (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, space_id) REFERENCES kosmos.embedding_spaces (tenant_id, id) ON DELETE RESTRICT
);
-- A scan of TOASTed vectors is seven times slower than one of vectors kept in the row.
ALTER TABLE kosmos.embeddings ALTER COLUMN embedding SET STORAGE PLAIN;

CREATE TABLE kosmos.corpus_statistics (
    tenant_id uuid PRIMARY KEY REFERENCES kosmos.tenants ON DELETE CASCADE,
    chunks bigint NOT NULL CHECK (chunks >= 0),
    length bigint NOT NULL CHECK (length >= 0),
    lowest_pivot real NOT NULL,
    next_lexeme_id integer NOT NULL
);

CREATE TABLE kosmos.lexemes (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    lexeme text COLLATE "C" NOT NULL,
    id integer NOT NULL,
    chunks integer NOT NULL CHECK (chunks > 0),
    PRIMARY KEY (tenant_id, lexeme)
) WITH (fillfactor = 70);
"""

# Tables whose rows carry the list of principals that may read them.
WITH_ACL = ("documents", "document_versions", "chunks", "embeddings")
WITHOUT_ACL = ("tenants", "embedding_spaces", "corpus_statistics", "lexemes")


def secure(table: str, *, acl: bool) -> None:
    """One permissive policy a command and role, without subqueries: a RESTRICTIVE one turns permissive on Citus."""
    readable = "tenant_id = kosmos.tenant()" + (" AND acl && kosmos.principals()" if acl else "")
    op.execute(f"ALTER TABLE kosmos.{table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE kosmos.{table} FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY app_read ON kosmos.{table} FOR SELECT TO kosmos_app USING ({readable})")
    op.execute(
        f"CREATE POLICY worker_all ON kosmos.{table} FOR ALL TO kosmos_worker "
        "USING (tenant_id = kosmos.tenant()) WITH CHECK (tenant_id = kosmos.tenant())"
    )
    op.execute(f"GRANT SELECT ON kosmos.{table} TO kosmos_app")
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.{table} TO kosmos_worker")


def upgrade() -> None:
    op.execute(FUNCTIONS)
    op.execute(TABLES)
    op.execute("GRANT USAGE ON SCHEMA kosmos TO kosmos_app, kosmos_worker")
    op.execute("GRANT SELECT ON kosmos.alembic_version TO kosmos_app, kosmos_worker")
    for table in WITH_ACL:
        secure(table, acl=True)
    for table in WITHOUT_ACL:
        secure(table, acl=False)


def downgrade() -> None:
    op.execute("ALTER TABLE kosmos.tenants DROP CONSTRAINT tenants_live_space_fkey")
    for table in (
        "lexemes",
        "corpus_statistics",
        "embeddings",
        "chunks",
        "document_versions",
        "documents",
        "embedding_spaces",
        "tenants",
    ):
        op.execute(f"DROP TABLE kosmos.{table}")
    op.execute("REVOKE SELECT ON kosmos.alembic_version FROM kosmos_app, kosmos_worker")
    op.execute("REVOKE USAGE ON SCHEMA kosmos FROM kosmos_app, kosmos_worker")
    op.execute("DROP FUNCTION kosmos.enter(uuid, text[])")
    op.execute("DROP FUNCTION kosmos.principals()")
    op.execute("DROP FUNCTION kosmos.tenant()")
