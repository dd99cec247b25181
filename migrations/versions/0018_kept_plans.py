"""Read the state of a search, and its passages, by functions: their plans are kept in the session.

The statements were parsed and planned for each question. A pooler in transaction mode keeps no prepared statements,
but the plans of a function. The role `kosmos_app` plans for values, because of the vector indexes of single tenants;
these functions reach rows by key, and PostgreSQL may plan them once. Older code does not call them.
"""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

# Three statements and not one expression: a distributed server routes each to the node of the tenant.
SEARCH_STATE = """
CREATE FUNCTION kosmos.search_state(tenant uuid, of_collection text, texts text[], text_weights double precision[])
    RETURNS json LANGUAGE plpgsql STABLE SET plan_cache_mode = 'auto'
    AS $$
    DECLARE
        collections json;
        terms json;
        indexes json;
    BEGIN
        -- Each collection that may answer with its statistics, those of chunks that this reader may read apart, and the
        -- space that answers. NULL where the reader may read none. At last, of the collections that are asked, those
        -- without documents too: whether any makes departments decide. The next three are those of the statement
        -- query_routing. The last is what the preset of a collection sets for its hits, where the question names no
        -- collection. A tenant without documents is one row, without a collection.
        SELECT json_agg(json_build_array(
                   s.collection, s.chunks, s.next_sequence, t.live_space_id, p.name,
                   r.chunks, r.length, r.epoch, r.acls,
                   EXISTS (SELECT
                             FROM kosmos.collection_presets e
                            WHERE e.tenant_id = tenant AND (of_collection IS NULL OR e.collection = of_collection)
                              AND e.content::jsonb -> 'rag' -> 'access' ->> 'department_from' IS NOT NULL),
                   (SELECT json_build_array(e.name, e.content)
                      FROM kosmos.collection_presets e
                     WHERE e.tenant_id = tenant AND e.collection = of_collection),
                   ARRAY(SELECT e.content::jsonb -> 'rag' -> 'audit'
                           FROM kosmos.collection_presets e
                          WHERE e.tenant_id = tenant AND (of_collection IS NULL OR e.collection = of_collection)
                            AND e.content::jsonb -> 'rag' -> 'audit' IS NOT NULL
                          ORDER BY e.collection),
                   (SELECT json_build_object('id', x.id, 'name', x.name, 'mode', x.mode, 'share', x.share,
                                             'content', x.content)
                      FROM kosmos.experiments x
                     WHERE x.tenant_id = tenant AND x.stopped_at IS NULL
                       AND x.collection IS NOT DISTINCT FROM of_collection),
                   CASE WHEN of_collection IS NULL AND p.content IS NOT NULL
                        THEN json_build_object(
                                 'access', p.content::jsonb -> 'rag' -> 'access',
                                 'department_match', p.content::jsonb -> 'rag' -> 'signals' -> 'department_match',
                                 'require_approved', p.content::jsonb -> 'rag' -> 'retrieval' -> 'require_approved') END
                   ) ORDER BY s.collection)
          INTO collections
          FROM kosmos.tenants t
          LEFT JOIN kosmos.collection_statistics s
            ON s.tenant_id = tenant AND s.tenant_id = t.tenant_id
           AND (of_collection IS NULL OR s.collection = of_collection)
          LEFT JOIN kosmos.collection_presets p
            ON p.tenant_id = tenant AND p.tenant_id = s.tenant_id AND p.collection = s.collection
          LEFT JOIN (SELECT n.collection, sum(n.chunks)::bigint AS chunks, sum(n.length)::bigint AS length,
                            max(n.epoch) AS epoch, count(*) AS acls
                       FROM kosmos.acl_statistics n
                      WHERE n.tenant_id = tenant
                      GROUP BY n.collection) r ON r.collection = s.collection
         WHERE t.tenant_id = tenant;
        -- The terms of each text after analysis in the languages of each collection, and what they count for: how often
        -- the text says them, times its weight. No id where no chunk holds the term. No row at all means that the texts
        -- hold only stop words or signs. Languages and counts are of chunks that this reader may read.
        SELECT json_agg(json_build_array(a.collection, a.lexeme, l.id, l.chunks, a.weight) ORDER BY a.collection, l.id)
          INTO terms
          FROM (SELECT g.collection, u.lexeme COLLATE "C" AS lexeme, max(cardinality(u.positions) * w.weight) AS weight
                  FROM (SELECT DISTINCT s.collection, unnest(s.languages) AS language
                          FROM kosmos.acl_statistics s
                         WHERE s.tenant_id = tenant AND (of_collection IS NULL OR s.collection = of_collection)) g,
                       unnest(texts, text_weights) AS w (words, weight),
                       unnest(to_tsvector(g.language::regconfig, w.words)) AS u (lexeme, positions, weights)
                 GROUP BY g.collection, u.lexeme COLLATE "C") a
          LEFT JOIN LATERAL (
               SELECT n.id, sum(n.chunks)::bigint AS chunks
                 FROM kosmos.lexemes n
                WHERE n.tenant_id = tenant AND n.collection = a.collection AND n.lexeme = a.lexeme
                GROUP BY n.id
               OFFSET 0) l ON true;
        SELECT json_agg(json_build_array(i.id, i.kind, i.collection, i.space_id, i.last_sequence, i.settings, i.rows,
                                         CASE WHEN i.kind <> 'segment' THEN i.health END)
                        ORDER BY i.last_sequence, i.id)
          INTO indexes
          FROM kosmos.indexes i
         WHERE i.tenant_id = tenant AND i.state = 'ready'
           AND (of_collection IS NULL OR i.collection IS NULL OR i.collection = of_collection);
        RETURN json_build_object('collections', coalesce(collections, '[]'), 'terms', coalesce(terms, '[]'),
                                 'indexes', coalesce(indexes, '[]'));
    END
    $$;
"""

# Columns are named like the fields of Passage; `principals` are those of the readers that this reader holds.
PASSAGES = """
CREATE FUNCTION kosmos.passages(tenant uuid, ids uuid[])
    RETURNS TABLE (chunk_id uuid, document_id uuid, version_id uuid, version integer, source text, title text,
                   media_type text, metadata jsonb, chunk_index integer, section text[], start integer, "end" integer,
                   line_start integer, line_end integer, page_start integer, page_end integer, "text" text,
                   chunker text, collection text, parent_start integer, parent_end integer, notes jsonb,
                   principals text[], table_context text[])
    LANGUAGE plpgsql STABLE SET plan_cache_mode = 'auto'
    AS $$
    #variable_conflict use_column
    BEGIN
        RETURN QUERY
        SELECT c.id, c.document_id, c.version_id, d.version, d.source, d.title, d.media_type, d.metadata,
               c.chunk_index, c.section, c.start_offset, c.end_offset, c.line_start, c.line_end, c.page_start,
               c.page_end, c.text, c.chunker, d.collection, c.parent_start, c.parent_end, d.notes,
               d.principals, c.table_context
          FROM unnest(ids) AS u (id)
         CROSS JOIN LATERAL (
               SELECT n.id, n.document_id, n.version_id, n.chunk_index, n.section, n.start_offset, n.end_offset,
                      n.line_start, n.line_end, n.page_start, n.page_end, n.text, n.chunker, n.parent_start,
                      n.parent_end, n.table_context
                 FROM kosmos.chunks n
                WHERE n.tenant_id = tenant AND n.id = u.id
               OFFSET 0) c
         CROSS JOIN LATERAL (
               SELECT n.version, n.source, n.title, n.media_type, n.metadata, n.collection, n.notes,
                      ARRAY(SELECT p.name FROM unnest(n.acl) AS p (name)
                             WHERE p.name = ANY (kosmos.current_principals()) ORDER BY p.name) AS principals
                 FROM kosmos.documents n
                WHERE n.tenant_id = tenant AND n.id = c.document_id
               OFFSET 0) d;
    END
    $$;
"""


def upgrade() -> None:
    """Create the functions."""
    op.execute(SEARCH_STATE)
    op.execute(PASSAGES)


def downgrade() -> None:
    """Drop the functions. No data is lost."""
    op.execute("DROP FUNCTION kosmos.passages(uuid, uuid[])")
    op.execute("DROP FUNCTION kosmos.search_state(uuid, text, text[], double precision[])")
