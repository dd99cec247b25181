-- Reads the state of a search from the tables of a shard, as one statement of one snapshot. Without Citus the only shard is
-- the table tenants itself.
CREATE OR REPLACE FUNCTION kosmos.search_state_of_shard(shard oid, tenant uuid, of_collection text, texts text[],
                                                        text_weights double precision[])
    RETURNS json
    LANGUAGE plpgsql
    STABLE
    SET plan_cache_mode TO 'auto'
AS $function$
BEGIN
    IF shard <> 'kosmos.tenants'::regclass THEN
        RETURN kosmos.run_on_shard('search_state_of_shard', shard, shard::text, tenant::text, of_collection, texts::text,
                                   text_weights::text);
    END IF;
    RETURN (SELECT json_build_object('overview', (
    -- The live space, the settings that route the search (those of the statement query_routing), and the collections that
    -- may answer; deleted ones have no chunks, and keep their row. Chunks, length and state of a collection are those of
    -- chunks that this reader may read, and NULL where he may read none. The state is a hash of the access control lists
    -- that he may read, each with the identity of its last change: no other history of the database repeats it, and
    -- readers with equal states may read the same chunks. The overlay is what the preset of a collection sets for its
    -- hits, where the question names no collection. Known items are how well the retrievers find questions made of the
    -- texts of a collection, with the live model.
    SELECT json_build_object(
               'space_id', t.live_space_id,
               'enforced', EXISTS (SELECT
                                     FROM kosmos.collection_presets e
                                    WHERE e.tenant_id = tenant AND (of_collection IS NULL OR e.collection = of_collection)
                                      AND e.content::jsonb -> 'rag' -> 'access' ->> 'department_from' IS NOT NULL),
               'preset', (SELECT json_build_array(e.name, e.content)
                            FROM kosmos.collection_presets e
                           WHERE e.tenant_id = tenant AND e.collection = of_collection),
               'audit', ARRAY(SELECT e.content::jsonb -> 'rag' -> 'audit'
                                FROM kosmos.collection_presets e
                               WHERE e.tenant_id = tenant AND (of_collection IS NULL OR e.collection = of_collection)
                                 AND e.content::jsonb -> 'rag' -> 'audit' IS NOT NULL
                               ORDER BY e.collection),
               'experiment', (SELECT json_build_object('id', x.id, 'name', x.name, 'mode', x.mode, 'share', x.share,
                                                       'content', x.content)
                                FROM kosmos.experiments x
                               WHERE x.tenant_id = tenant AND x.stopped_at IS NULL
                                 AND x.collection IS NOT DISTINCT FROM of_collection),
               'collections', (
                   SELECT json_agg(json_build_object(
                              'collection', s.collection, 'chunks_unfiltered', s.chunks,
                              'next_sequence', s.next_sequence, 'preset', p.name,
                              'chunks', r.chunks, 'length', r.length, 'state', r.state,
                              'known_items', CASE WHEN s.known_items ->> 'space_id' = t.live_space_id::text
                                                  THEN s.known_items -> 'languages' END,
                              'overlay',
                              CASE WHEN of_collection IS NULL AND p.content IS NOT NULL
                                   THEN json_build_object(
                                            'access', p.content::jsonb -> 'rag' -> 'access',
                                            'department_match',
                                            p.content::jsonb -> 'rag' -> 'signals' -> 'department_match',
                                            'require_approved',
                                            p.content::jsonb -> 'rag' -> 'retrieval' -> 'require_approved') END)
                              ORDER BY s.collection)
                     FROM kosmos.collection_statistics s
                     LEFT JOIN kosmos.collection_presets p
                       ON p.tenant_id = tenant AND p.tenant_id = s.tenant_id AND p.collection = s.collection
                     LEFT JOIN (SELECT n.collection, sum(n.chunks)::bigint AS chunks, sum(n.length)::bigint AS length,
                                       encode(sha256(string_agg(uuid_send(n.acl_hash) || uuid_send(n.state), ''
                                                                ORDER BY n.acl_hash)), 'hex') AS state
                                  FROM kosmos.acl_statistics n
                                 WHERE n.tenant_id = tenant
                                 GROUP BY n.collection) r ON r.collection = s.collection
                    WHERE s.tenant_id = tenant AND s.chunks > 0
                      AND (of_collection IS NULL OR s.collection = of_collection)))
      FROM kosmos.tenants t
     WHERE t.tenant_id = tenant),
    'terms', coalesce((
    -- The terms of each text after analysis in the languages of each collection, and what they count for: how often
    -- the text says them, times its weight. No id where no chunk holds the term. No row at all means that the texts
    -- hold only stop words or signs. Languages and counts are of chunks that this reader may read.
    SELECT json_agg(json_build_array(a.collection, a.lexeme, l.id, l.chunks, a.weight) ORDER BY a.collection, l.id)
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
           OFFSET 0) l ON true), '[]'),
    'indexes', coalesce((
    SELECT json_agg(json_build_object('id', i.id, 'kind', i.kind, 'collection', i.collection, 'space_id', i.space_id,
                                      'last_sequence', i.last_sequence, 'settings', i.settings, 'rows', i.rows,
                                      'health', CASE WHEN i.kind <> 'segment' THEN i.health END)
                    ORDER BY i.last_sequence, i.id)
      FROM kosmos.indexes i
     WHERE i.tenant_id = tenant AND i.state = 'ready'
       AND (of_collection IS NULL OR i.collection IS NULL OR i.collection = of_collection)), '[]')));
END
$function$
