"""Collections, and indexes of both legs: serials and a lexical tail, packed segments, the catalogue of indexes.

What a chunk's terms were moves from `chunks` to `lexical_tail`, a narrow table that the scan plan reads; maintenance
packs it into segments from there. Documents of before are in the collection `default`.
"""

from alembic import op
from alembic.util import CommandError
from sqlalchemy import text

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Frozen here on purpose: a released revision must not change when the code does.
FUNCTIONS = """
-- How far the vector indexes are searched until the transaction ends. Literal SET LOCAL, as in kosmos.enter(). The scan
-- goes on beyond that where row-level security or a filter leaves too few rows.
CREATE FUNCTION kosmos.search_vectors(probes integer, ef_search integer) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
    BEGIN
        EXECUTE format('SET LOCAL ivfflat.probes = %s', probes);
        EXECUTE format('SET LOCAL hnsw.ef_search = %s', ef_search);
        SET LOCAL ivfflat.iterative_scan = 'relaxed_order';
        SET LOCAL hnsw.iterative_scan = 'relaxed_order';
    END
    $$;

-- Whether a document passes a filter: a jsonpath predicate with its values, and sources or folders of sources. Times
-- are text of one width: their order is the order of time. They are made only where the condition names them; that is
-- known when the statement is planned, and writing times takes a third of the whole.
CREATE FUNCTION kosmos.matches(document kosmos.documents, condition text, condition_values jsonb,
                               sources text[], folders text[])
    RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT
        (cardinality(sources) = 0 OR document.source = ANY (sources) OR document.source LIKE ANY (folders))
        AND (condition IS NULL OR coalesce(jsonb_path_match(
            jsonb_build_object(
                'source', document.source, 'title', document.title, 'media_type', document.media_type,
                'language', document.language, 'collection', document.collection, 'readers', to_jsonb(document.acl),
                'created_at', CASE WHEN strpos(condition, '"created_at"') > 0 THEN
                    to_char(document.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') END,
                'updated_at', CASE WHEN strpos(condition, '"updated_at"') > 0 THEN
                    to_char(document.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') END,
                'metadata', document.metadata),
            condition::jsonpath, condition_values), false)) $$;
"""

# The owner is bound by row-level security too (FORCE), and holds no policy: without this it would change no row.
REWRITTEN = ("documents", "chunks", "embeddings", "corpus_statistics", "lexemes")

COLLECTIONS = """
ALTER TABLE kosmos.documents ADD COLUMN collection text NOT NULL DEFAULT 'default';
ALTER TABLE kosmos.documents ALTER COLUMN collection DROP DEFAULT;

ALTER TABLE kosmos.embeddings ADD COLUMN collection text NOT NULL DEFAULT 'default';
ALTER TABLE kosmos.embeddings ALTER COLUMN collection DROP DEFAULT;

ALTER TABLE kosmos.chunks ADD COLUMN collection text NOT NULL DEFAULT 'default', ADD COLUMN serial integer;
ALTER TABLE kosmos.chunks ALTER COLUMN collection DROP DEFAULT;
UPDATE kosmos.chunks c
   SET serial = n.serial
  FROM (SELECT tenant_id, id, row_number() OVER (PARTITION BY tenant_id ORDER BY id) AS serial FROM kosmos.chunks) n
 WHERE n.tenant_id = c.tenant_id AND n.id = c.id;
ALTER TABLE kosmos.chunks ALTER COLUMN serial SET NOT NULL;
ALTER TABLE kosmos.chunks ADD UNIQUE (tenant_id, collection, serial);

ALTER TABLE kosmos.corpus_statistics
    ADD COLUMN collection text COLLATE "C" NOT NULL DEFAULT 'default',
    ADD COLUMN next_serial integer NOT NULL DEFAULT 1,
    ADD COLUMN languages text[] NOT NULL DEFAULT '{}',
    DROP CONSTRAINT corpus_statistics_pkey,
    DROP COLUMN lowest_pivot;
ALTER TABLE kosmos.corpus_statistics
    ALTER COLUMN collection DROP DEFAULT,
    ALTER COLUMN next_serial DROP DEFAULT,
    ALTER COLUMN languages DROP DEFAULT,
    ADD PRIMARY KEY (tenant_id, collection);
UPDATE kosmos.corpus_statistics s
   SET next_serial = 1 + coalesce((SELECT max(c.serial) FROM kosmos.chunks c WHERE c.tenant_id = s.tenant_id), 0),
       languages = coalesce((SELECT array_agg(DISTINCT d.language ORDER BY d.language)
                               FROM kosmos.documents d WHERE d.tenant_id = s.tenant_id), '{}');

ALTER TABLE kosmos.lexemes
    ADD COLUMN collection text COLLATE "C" NOT NULL DEFAULT 'default',
    DROP CONSTRAINT lexemes_pkey;
ALTER TABLE kosmos.lexemes
    ALTER COLUMN collection DROP DEFAULT,
    ADD PRIMARY KEY (tenant_id, collection, lexeme);
"""

TABLES = """
CREATE TABLE kosmos.lexical_tail (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    collection text COLLATE "C" NOT NULL,
    serial integer NOT NULL,
    chunk_id uuid NOT NULL,
    document_id uuid NOT NULL,
    acl text[] NOT NULL,
    length integer NOT NULL,
    pivot real NOT NULL,
    terms sparsevec NOT NULL,
    PRIMARY KEY (tenant_id, collection, serial)
);
INSERT INTO kosmos.lexical_tail (tenant_id, collection, serial, chunk_id, document_id, acl, length, pivot, terms)
SELECT tenant_id, collection, serial, id, document_id, acl, length, pivot, terms
  FROM kosmos.chunks
 ORDER BY tenant_id, serial;
ALTER TABLE kosmos.chunks DROP COLUMN pivot, DROP COLUMN terms;

CREATE TABLE kosmos.indexes (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('segment', 'ivfflat', 'hnsw')),
    state text NOT NULL CHECK (state IN ('building', 'ready', 'retired')),
    collection text COLLATE "C",
    space_id uuid,
    first_serial integer,
    last_serial integer,
    rows bigint NOT NULL,
    settings jsonb NOT NULL,
    health jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    checked_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, space_id) REFERENCES kosmos.embedding_spaces (tenant_id, id) ON DELETE RESTRICT,
    CHECK ((kind = 'segment') = (collection IS NOT NULL AND first_serial IS NOT NULL AND last_serial IS NOT NULL)),
    CHECK ((kind = 'segment') = (space_id IS NULL))
);

CREATE TABLE kosmos.segments (
    tenant_id uuid NOT NULL,
    index_id uuid NOT NULL,
    serials bytea NOT NULL,
    lengths bytea NOT NULL,
    PRIMARY KEY (tenant_id, index_id),
    FOREIGN KEY (tenant_id, index_id) REFERENCES kosmos.indexes (tenant_id, id) ON DELETE CASCADE
);

CREATE TABLE kosmos.postings (
    tenant_id uuid NOT NULL,
    index_id uuid NOT NULL,
    lexeme_id integer NOT NULL,
    offsets bytea NOT NULL,
    frequencies bytea NOT NULL,
    PRIMARY KEY (tenant_id, index_id, lexeme_id),
    FOREIGN KEY (tenant_id, index_id) REFERENCES kosmos.segments (tenant_id, index_id) ON DELETE CASCADE
);
-- Packed numbers hardly compress, and a query reads them whole: no time is spent on trying.
ALTER TABLE kosmos.segments ALTER COLUMN serials SET STORAGE EXTERNAL, ALTER COLUMN lengths SET STORAGE EXTERNAL;
ALTER TABLE kosmos.postings ALTER COLUMN offsets SET STORAGE EXTERNAL, ALTER COLUMN frequencies SET STORAGE EXTERNAL;
"""

# Without statistics of it a tenant is taken for a two-hundredth of a table. With them, one that came after the last
# ANALYZE is taken for one row, and what joins its rows runs over all of them for each.
UNCOUNTED = """
ALTER TABLE kosmos.documents ALTER COLUMN tenant_id SET STATISTICS 0;
ALTER TABLE kosmos.document_versions ALTER COLUMN tenant_id SET STATISTICS 0;
ALTER TABLE kosmos.chunks ALTER COLUMN tenant_id SET STATISTICS 0;
ALTER TABLE kosmos.embeddings ALTER COLUMN tenant_id SET STATISTICS 0, ALTER COLUMN space_id SET STATISTICS 0;
ALTER TABLE kosmos.lexemes ALTER COLUMN tenant_id SET STATISTICS 0;
ALTER TABLE kosmos.lexical_tail ALTER COLUMN tenant_id SET STATISTICS 0;
ALTER TABLE kosmos.postings ALTER COLUMN tenant_id SET STATISTICS 0, ALTER COLUMN index_id SET STATISTICS 0;
"""

WITH_ACL = ("lexical_tail",)
WITHOUT_ACL = ("indexes", "segments", "postings")


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
    for table in REWRITTEN:
        op.execute(f"ALTER TABLE kosmos.{table} NO FORCE ROW LEVEL SECURITY")
    op.execute(COLLECTIONS)
    op.execute(TABLES)
    op.execute(UNCOUNTED)
    op.execute(FUNCTIONS)
    for table in REWRITTEN:
        op.execute(f"ALTER TABLE kosmos.{table} FORCE ROW LEVEL SECURITY")
    for table in WITH_ACL:
        secure(table, acl=True)
    for table in WITHOUT_ACL:
        secure(table, acl=False)


COLLECTIONS_IN_USE = """
SELECT string_agg(c.name, ', ' ORDER BY c.name)
  FROM (SELECT DISTINCT t.name || '/' || d.collection AS name
          FROM kosmos.documents d
          JOIN kosmos.tenants t ON t.tenant_id = d.tenant_id
         WHERE d.collection <> 'default'
         LIMIT 10) c
"""

# Packed chunks have no `terms` any more: they are made again, from the analysed text and with today's average length.
BACK = """
DROP FUNCTION kosmos.matches(kosmos.documents, text, jsonb, text[], text[]);
DROP FUNCTION kosmos.search_vectors(integer, integer);

DO $$
DECLARE
    vectors text;
BEGIN
    FOR vectors IN SELECT relname FROM pg_class
                    WHERE relnamespace = 'kosmos'::regnamespace AND relkind = 'i' AND starts_with(relname, 'vec_')
    LOOP
        EXECUTE format('DROP INDEX kosmos.%I', vectors);
    END LOOP;
END
$$;

-- Of collections whose documents have been deleted.
DELETE FROM kosmos.lexemes WHERE collection <> 'default';
DELETE FROM kosmos.corpus_statistics WHERE collection <> 'default';

ALTER TABLE kosmos.corpus_statistics ADD COLUMN lowest_pivot real NOT NULL DEFAULT 'infinity';
UPDATE kosmos.corpus_statistics SET lowest_pivot = greatest(length, 1)::real / chunks WHERE chunks > 0;
ALTER TABLE kosmos.chunks ADD COLUMN pivot real, ADD COLUMN terms sparsevec;
UPDATE kosmos.chunks c
   SET pivot = s.lowest_pivot,
       terms = (SELECT format('{%s}/1000000000', string_agg(
                           l.id || ':' || f.tf * 2.5 / (f.tf + 1.5 * (0.25 + 0.75 * c.length / s.lowest_pivot)),
                           ',' ORDER BY l.id))::sparsevec
                  FROM unnest(c.tsv) u
                  JOIN kosmos.lexemes l ON l.tenant_id = c.tenant_id AND l.lexeme = u.lexeme,
                       LATERAL (SELECT cardinality(u.positions)::double precision AS tf) f)
  FROM kosmos.corpus_statistics s
 WHERE s.tenant_id = c.tenant_id;
ALTER TABLE kosmos.chunks ALTER COLUMN pivot SET NOT NULL, ALTER COLUMN terms SET NOT NULL;

DROP TABLE kosmos.postings, kosmos.segments, kosmos.indexes, kosmos.lexical_tail;
ALTER TABLE kosmos.documents ALTER COLUMN tenant_id SET STATISTICS -1;
ALTER TABLE kosmos.document_versions ALTER COLUMN tenant_id SET STATISTICS -1;
ALTER TABLE kosmos.chunks ALTER COLUMN tenant_id SET STATISTICS -1;
ALTER TABLE kosmos.embeddings ALTER COLUMN tenant_id SET STATISTICS -1, ALTER COLUMN space_id SET STATISTICS -1;
ALTER TABLE kosmos.lexemes ALTER COLUMN tenant_id SET STATISTICS -1;

ALTER TABLE kosmos.lexemes DROP CONSTRAINT lexemes_pkey, DROP COLUMN collection;
ALTER TABLE kosmos.lexemes ADD PRIMARY KEY (tenant_id, lexeme);
ALTER TABLE kosmos.corpus_statistics
    ALTER COLUMN lowest_pivot DROP DEFAULT,
    DROP CONSTRAINT corpus_statistics_pkey,
    DROP COLUMN collection,
    DROP COLUMN next_serial,
    DROP COLUMN languages;
ALTER TABLE kosmos.corpus_statistics ADD PRIMARY KEY (tenant_id);
ALTER TABLE kosmos.chunks DROP COLUMN collection, DROP COLUMN serial;
ALTER TABLE kosmos.embeddings DROP COLUMN collection;
ALTER TABLE kosmos.documents DROP COLUMN collection;
"""


def downgrade() -> None:
    for table in (*REWRITTEN, "lexical_tail", "tenants"):
        op.execute(f"ALTER TABLE kosmos.{table} NO FORCE ROW LEVEL SECURITY")
    if names := op.get_bind().scalar(text(COLLECTIONS_IN_USE)):
        raise CommandError(f"revision 0001 has no collections; delete the documents of these first: {names}")
    op.execute(BACK)
    for table in (*REWRITTEN, "tenants"):
        op.execute(f"ALTER TABLE kosmos.{table} FORCE ROW LEVEL SECURITY")
