-- Reads what a search needs to know before it starts: collections, terms, indexes. Three statements and not one
-- expression: a distributed server routes each to the node of the tenant. The role kosmos_app plans for values because
-- of the vector indexes of single tenants; this function reaches rows by key, and PostgreSQL may plan it once.
CREATE OR REPLACE FUNCTION kosmos.search_state(tenant uuid, of_collection text, texts text[],
                                               text_weights double precision[])
    RETURNS json
    LANGUAGE plpgsql
    STABLE
    SET plan_cache_mode TO 'auto'
AS $function$
DECLARE
    collections json;
    terms json;
    indexes json;
BEGIN
    -- Each collection that may answer with its statistics, those of chunks that this reader may read apart, and the
    -- space that answers. NULL where the reader may read none. At last, of the collections that are asked, those
    -- without documents too: whether any makes departments decide. The next three are those of the statement
    -- query_routing. The last is what the preset of a collection sets for its hits, where the question names no
    -- collection, and which access control lists this reader may read, and how well the retrievers find known
    -- items of the collection. A tenant without documents is one row, without a collection.
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
                             'require_approved', p.content::jsonb -> 'rag' -> 'retrieval' -> 'require_approved') END,
               r.visible, s.known_items
               ) ORDER BY s.collection)
      INTO collections
      FROM kosmos.tenants t
      LEFT JOIN kosmos.collection_statistics s
        ON s.tenant_id = tenant AND s.tenant_id = t.tenant_id
       AND (of_collection IS NULL OR s.collection = of_collection)
      LEFT JOIN kosmos.collection_presets p
        ON p.tenant_id = tenant AND p.tenant_id = s.tenant_id AND p.collection = s.collection
      LEFT JOIN (SELECT n.collection, sum(n.chunks)::bigint AS chunks, sum(n.length)::bigint AS length,
                        max(n.epoch) AS epoch, count(*) AS acls,
                        md5(string_agg(n.acl_hash::text, ',' ORDER BY n.acl_hash)) AS visible
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
$function$
