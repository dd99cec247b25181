"""Lexical statistics by who may read what they count: a reader's scores follow from what that reader may read alone.

Collections whose chunks all have the same readers keep their rows as they are; those of others are counted again.
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# The owner is bound by row-level security too (FORCE), and holds no policy: without this it would see no row.
READ = ("chunks", "documents", "corpus_statistics", "lexemes")

# What stands for a list of readers in keys, made as the library makes it: the list may be too long for a key.
ID_OF_READERS = r"""
CREATE FUNCTION kosmos.id_of_readers(acl text[]) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT encode(substring(sha256(convert_to('{' || string_agg(
               '"' || replace(replace(u.name, '\', '\\'), '"', '\"') || '"', ',' ORDER BY u.number) || '}', 'UTF8'))
               FROM 1 FOR 16), 'hex')::uuid
      FROM unnest(acl) WITH ORDINALITY AS u (name, number)
$$
"""

TABLE = """
CREATE TABLE kosmos.reader_statistics (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    collection text COLLATE "C" NOT NULL,
    readers uuid NOT NULL,
    acl text[] NOT NULL,
    chunks bigint NOT NULL,
    length bigint NOT NULL,
    languages text[] NOT NULL,
    epoch bigint NOT NULL,
    PRIMARY KEY (tenant_id, collection, readers)
);
INSERT INTO kosmos.reader_statistics (tenant_id, collection, readers, acl, chunks, length, languages, epoch)
SELECT c.tenant_id, c.collection, kosmos.id_of_readers(c.acl), c.acl, count(*), sum(c.length),
       array_agg(DISTINCT d.language ORDER BY d.language), s.epoch
  FROM kosmos.chunks c
  JOIN kosmos.documents d ON d.tenant_id = c.tenant_id AND d.id = c.document_id
  JOIN kosmos.corpus_statistics s ON s.tenant_id = c.tenant_id AND s.collection = c.collection
 GROUP BY c.tenant_id, c.collection, c.acl, s.epoch;
"""

BY_READERS = """
ALTER TABLE kosmos.lexemes DROP CONSTRAINT lexemes_pkey, ADD COLUMN readers uuid, ADD COLUMN acl text[];
UPDATE kosmos.lexemes l
   SET acl = r.acl
  FROM (SELECT tenant_id, collection, min(acl) AS acl
          FROM kosmos.reader_statistics
         GROUP BY tenant_id, collection
        HAVING count(*) = 1) r
 WHERE r.tenant_id = l.tenant_id AND r.collection = l.collection;
INSERT INTO kosmos.lexemes (tenant_id, collection, lexeme, acl, id, chunks)
SELECT c.tenant_id, c.collection, l.lexeme, c.acl, l.id, count(*)
  FROM kosmos.chunks c
 CROSS JOIN LATERAL unnest(c.tsv) u
  JOIN kosmos.lexemes l ON l.tenant_id = c.tenant_id AND l.collection = c.collection AND l.lexeme = u.lexeme
 WHERE l.acl IS NULL
 GROUP BY c.tenant_id, c.collection, l.lexeme, c.acl, l.id;
DELETE FROM kosmos.lexemes WHERE acl IS NULL;
UPDATE kosmos.lexemes SET readers = kosmos.id_of_readers(acl);
ALTER TABLE kosmos.lexemes
    ALTER COLUMN acl SET NOT NULL, ADD PRIMARY KEY (tenant_id, collection, lexeme, readers);
ALTER TABLE kosmos.corpus_statistics DROP COLUMN languages;
"""

POLICIES = """
ALTER TABLE kosmos.reader_statistics ENABLE ROW LEVEL SECURITY;
ALTER TABLE kosmos.reader_statistics FORCE ROW LEVEL SECURITY;
CREATE POLICY app_read ON kosmos.reader_statistics FOR SELECT TO kosmos_app
    USING (tenant_id = kosmos.tenant() AND acl && kosmos.principals());
CREATE POLICY worker_all ON kosmos.reader_statistics FOR ALL TO kosmos_worker
    USING (tenant_id = kosmos.tenant()) WITH CHECK (tenant_id = kosmos.tenant());
GRANT SELECT ON kosmos.reader_statistics TO kosmos_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.reader_statistics TO kosmos_worker;
DROP POLICY app_read ON kosmos.lexemes;
CREATE POLICY app_read ON kosmos.lexemes FOR SELECT TO kosmos_app
    USING (tenant_id = kosmos.tenant() AND acl && kosmos.principals());
"""

BACK = """
DROP POLICY app_read ON kosmos.lexemes;
CREATE POLICY app_read ON kosmos.lexemes FOR SELECT TO kosmos_app USING (tenant_id = kosmos.tenant());
UPDATE kosmos.lexemes l
   SET chunks = n.chunks
  FROM (SELECT tenant_id, collection, lexeme, min(acl) AS acl, sum(chunks) AS chunks
          FROM kosmos.lexemes
         GROUP BY tenant_id, collection, lexeme
        HAVING count(*) > 1) n
 WHERE n.tenant_id = l.tenant_id AND n.collection = l.collection AND n.lexeme = l.lexeme AND n.acl = l.acl;
DELETE FROM kosmos.lexemes l
 USING kosmos.lexemes n
 WHERE n.tenant_id = l.tenant_id AND n.collection = l.collection AND n.lexeme = l.lexeme AND n.acl < l.acl;
ALTER TABLE kosmos.lexemes DROP CONSTRAINT lexemes_pkey, DROP COLUMN acl, DROP COLUMN readers;
ALTER TABLE kosmos.lexemes ADD PRIMARY KEY (tenant_id, collection, lexeme);
ALTER TABLE kosmos.corpus_statistics ADD COLUMN languages text[] NOT NULL DEFAULT '{}';
ALTER TABLE kosmos.corpus_statistics ALTER COLUMN languages DROP DEFAULT;
UPDATE kosmos.corpus_statistics s
   SET languages = n.languages
  FROM (SELECT r.tenant_id, r.collection, array_agg(DISTINCT g.language ORDER BY g.language) AS languages
          FROM kosmos.reader_statistics r, unnest(r.languages) AS g (language)
         GROUP BY r.tenant_id, r.collection) n
 WHERE n.tenant_id = s.tenant_id AND n.collection = s.collection;
DROP TABLE kosmos.reader_statistics;
"""


def upgrade() -> None:
    """Count by readers what is counted by collection."""
    _bind_owner(READ, force=False)
    op.execute(ID_OF_READERS)
    op.execute(TABLE)
    op.execute(BY_READERS)
    op.execute(POLICIES)
    op.execute("DROP FUNCTION kosmos.id_of_readers")
    _bind_owner(READ, force=True)


def downgrade() -> None:
    """Add the counts up again."""
    _bind_owner(("lexemes", "corpus_statistics", "reader_statistics"), force=False)
    op.execute(BACK)
    _bind_owner(("lexemes", "corpus_statistics"), force=True)


def _bind_owner(tables: tuple[str, ...], *, force: bool) -> None:
    for table in tables:
        op.execute(f"ALTER TABLE kosmos.{table} {'' if force else 'NO '}FORCE ROW LEVEL SECURITY")
