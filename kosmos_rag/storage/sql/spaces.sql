-- name: spaces_of_tenant
SELECT s.id, s.model, s.dimensions, s.normalized, s.probe::text AS probe, s.query_prefix, s.passage_prefix,
       s.state, coalesce(s.id = t.live_space_id, false) AS live, s.live_until, s.truncated_tokens, s.created_at
  FROM kosmos.tenants t
  JOIN kosmos.embedding_spaces s ON s.tenant_id = t.tenant_id
 WHERE t.tenant_id = %(tenant_id)s AND s.tenant_id = %(tenant_id)s
 ORDER BY live DESC, s.live_until DESC NULLS LAST, s.created_at, s.id

-- name: lock_collections
-- Publications and removals of every collection wait from here to the commit. First lock, as in their transactions.
SELECT s.collection
  FROM kosmos.collection_statistics s
 WHERE s.tenant_id = %(tenant_id)s
 ORDER BY s.collection
   FOR UPDATE

-- name: lock_spaces_exclusively
-- After the collections. A publication holds this lock shared until it commits, even into a new collection: no
-- publication is in progress from here on, and later ones see the new live space.
SELECT s.id
  FROM kosmos.embedding_spaces s
 WHERE s.tenant_id = %(tenant_id)s
 ORDER BY s.id
   FOR UPDATE

-- name: chunks_without_vectors
-- The next chunks without a vector in the space, in the order of the ids, with the parts of their indexed text.
SELECT c.id, c.text, c.section, c.table_context, d.title, d.source
  FROM kosmos.chunks c
 CROSS JOIN LATERAL (
       SELECT n.title, n.source
         FROM kosmos.documents n
        WHERE n.tenant_id = %(tenant_id)s AND n.id = c.document_id
       OFFSET 0) d
 WHERE c.tenant_id = %(tenant_id)s AND c.id > %(after)s AND c.id <= %(until)s
   AND NOT EXISTS (
       SELECT
         FROM kosmos.embeddings e
        WHERE e.tenant_id = %(tenant_id)s AND e.chunk_id = c.id AND e.space_id = %(space_id)s
       OFFSET 0)
 ORDER BY c.id
 LIMIT %(limit)s

-- name: count_without_vectors
SELECT count(*)
  FROM kosmos.chunks c
 WHERE c.tenant_id = %(tenant_id)s
   AND NOT EXISTS (
       SELECT
         FROM kosmos.embeddings e
        WHERE e.tenant_id = %(tenant_id)s AND e.chunk_id = c.id AND e.space_id = %(space_id)s)

-- name: count_chunks
SELECT count(*) FROM kosmos.chunks c WHERE c.tenant_id = %(tenant_id)s

-- name: backfill_embeddings
-- The acl and the collection are the current ones of the chunk; a chunk deleted since the read is left out.
INSERT INTO kosmos.embeddings (tenant_id, chunk_id, space_id, acl, embedding, collection, text_hash)
SELECT %(tenant_id)s, c.id, %(space_id)s, c.acl, u.embedding, c.collection, u.text_hash
  FROM unnest(%(ids)b::uuid[], %(vectors)b::halfvec[], %(hashes)b::uuid[]) AS u (id, embedding, text_hash)
 CROSS JOIN LATERAL (
       SELECT n.id, n.acl, n.collection
         FROM kosmos.chunks n
        WHERE n.tenant_id = %(tenant_id)s AND n.id = u.id
       OFFSET 0) c
ON CONFLICT (tenant_id, chunk_id, space_id) DO NOTHING
RETURNING chunk_id

-- name: add_truncated
UPDATE kosmos.embedding_spaces SET truncated_tokens = truncated_tokens + %(tokens)s
 WHERE tenant_id = %(tenant_id)s AND id = %(space_id)s

-- name: retire_live_space
UPDATE kosmos.embedding_spaces SET live_until = %(now)s
 WHERE tenant_id = %(tenant_id)s AND id = %(live_id)s

-- name: complete_space
UPDATE kosmos.embedding_spaces SET state = 'ready', live_until = NULL
 WHERE tenant_id = %(tenant_id)s AND id = %(space_id)s

-- name: set_live_space
-- One row decides which space answers searches.
UPDATE kosmos.tenants SET live_space_id = %(space_id)s WHERE tenant_id = %(tenant_id)s

-- name: mark_space_dropping
UPDATE kosmos.embedding_spaces SET state = 'dropping'
 WHERE tenant_id = %(tenant_id)s AND id = %(space_id)s

-- name: delete_vectors
-- The next vectors of a space in the order of the chunks: no scan passes deleted rows again.
DELETE FROM kosmos.embeddings e
 WHERE e.tenant_id = %(tenant_id)s AND e.space_id = %(space_id)s
   AND e.chunk_id = ANY (ARRAY(
       SELECT n.chunk_id
         FROM kosmos.embeddings n
        WHERE n.tenant_id = %(tenant_id)s AND n.space_id = %(space_id)s AND n.chunk_id > %(after)s
        ORDER BY n.chunk_id
        LIMIT %(limit)s))
RETURNING e.chunk_id

-- name: delete_space
DELETE FROM kosmos.embedding_spaces s WHERE s.tenant_id = %(tenant_id)s AND s.id = %(space_id)s

-- name: sources_of_chunks
SELECT u.number, d.source
  FROM unnest(%(chunk_ids)b::uuid[]) WITH ORDINALITY AS u (id, number)
 CROSS JOIN LATERAL (
       SELECT n.document_id
         FROM kosmos.chunks n
        WHERE n.tenant_id = %(tenant_id)s AND n.id = u.id
       OFFSET 0) c
 CROSS JOIN LATERAL (
       SELECT n.source
         FROM kosmos.documents n
        WHERE n.tenant_id = %(tenant_id)s AND n.id = c.document_id
       OFFSET 0) d
 ORDER BY u.number
