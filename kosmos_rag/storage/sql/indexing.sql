-- name: try_maintenance_lock
-- One maintenance of a tenant at a time. The session holds the lock: a killed process releases it.
SELECT pg_try_advisory_lock(hashtextextended('kosmos:indexes:' || %(tenant_id)s::uuid::text, 0))

-- name: begin_maintenance
-- A transaction that holds the lock and waits for the work of others. It has no snapshot between its statements, so it
-- holds up neither VACUUM nor CREATE INDEX CONCURRENTLY.
BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY

-- name: no_idle_timeout
SET LOCAL idle_in_transaction_session_timeout = 0

-- name: no_transaction_timeout
-- For PostgreSQL 17 and later.
SET LOCAL transaction_timeout = 0

-- name: try_maintenance_lock_of_transaction
-- The same lock until the transaction ends, also behind a pooler that gives each transaction another session.
SELECT pg_try_advisory_xact_lock(hashtextextended('kosmos:indexes:' || %(tenant_id)s::uuid::text, 0))

-- name: release_maintenance_lock
SELECT pg_advisory_unlock(hashtextextended('kosmos:indexes:' || %(tenant_id)s::uuid::text, 0))

-- name: list_indexes
SELECT i.id, i.kind, i.state, i.collection, i.space_id, i.first_sequence, i.last_sequence, i.rows, i.settings, i.health,
       i.created_at, i.checked_at
  FROM kosmos.indexes i
 WHERE i.tenant_id = %(tenant_id)s
 ORDER BY i.kind, i.collection, i.first_sequence, i.created_at

-- name: no_statement_timeout
SET LOCAL statement_timeout = 0

-- name: collections_of_tenant
SELECT s.collection, s.next_sequence
  FROM kosmos.collection_statistics s
 WHERE s.tenant_id = %(tenant_id)s
 ORDER BY s.collection

-- name: count_unsegmented_chunks
SELECT count(*)
  FROM kosmos.unsegmented_terms t
 WHERE t.tenant_id = %(tenant_id)s AND t.collection = %(collection)s

-- name: insert_index
INSERT INTO kosmos.indexes (tenant_id, id, kind, state, collection, space_id, first_sequence, last_sequence, rows,
                            settings, health, created_at, checked_at)
VALUES (%(tenant_id)s, %(id)s, %(kind)s, %(state)s, %(collection)s, %(space_id)s, %(first_sequence)s, %(last_sequence)s,
        %(rows)s, %(settings)s, %(health)s, %(now)s, %(checked_at)s)

-- name: update_index
UPDATE kosmos.indexes
   SET state = %(state)s, settings = %(settings)s, health = %(health)s, checked_at = %(now)s
 WHERE tenant_id = %(tenant_id)s AND id = %(id)s

-- name: retire_indexes
UPDATE kosmos.indexes SET state = 'retired' WHERE tenant_id = %(tenant_id)s AND id = ANY (%(ids)s::uuid[])

-- name: delete_indexes
-- Foreign keys delete the postings of segments too.
DELETE FROM kosmos.indexes i WHERE i.tenant_id = %(tenant_id)s AND i.id = ANY (%(ids)s::uuid[])

-- name: unsegmented_batch
SELECT t.sequence, t.length, t.pivot, sparsevec_send(t.terms)
  FROM kosmos.unsegmented_terms t
 WHERE t.tenant_id = %(tenant_id)s AND t.collection = %(collection)s
 ORDER BY t.sequence
 LIMIT %(limit)s

-- name: delete_segmented_terms
DELETE FROM kosmos.unsegmented_terms t
 WHERE t.tenant_id = %(tenant_id)s AND t.collection = %(collection)s AND t.sequence < %(last_sequence)s

-- name: insert_segment
INSERT INTO kosmos.segments (tenant_id, index_id, sequences, lengths)
VALUES (%(tenant_id)s, %(id)s, %(sequences)b, %(lengths)b)

-- name: insert_postings
INSERT INTO kosmos.postings (tenant_id, index_id, lexeme_id, offsets, frequencies)
SELECT t.tenant_id, %(id)s, u.lexeme_id, u.offsets, u.frequencies
  FROM kosmos.tenants t
 CROSS JOIN unnest(%(lexeme_ids)b::integer[], %(offsets)b::bytea[], %(frequencies)b::bytea[])
       AS u (lexeme_id, offsets, frequencies)
 WHERE t.tenant_id = %(tenant_id)s

-- name: chunks_of_segments
SELECT i.id, s.sequences, s.lengths
  FROM kosmos.indexes i
  JOIN kosmos.segments s ON s.tenant_id = i.tenant_id AND s.index_id = i.id
 WHERE i.tenant_id = %(tenant_id)s AND s.tenant_id = %(tenant_id)s AND i.id = ANY (%(ids)s::uuid[])
 ORDER BY i.first_sequence

-- name: live_sequences
-- Packed sequence numbers of existing chunks: four bytes each, big-endian.
SELECT coalesce(string_agg(int4send(c.sequence), ''), ''::bytea)
  FROM kosmos.chunks c
 WHERE c.tenant_id = %(tenant_id)s AND c.collection = %(collection)s
   AND c.sequence >= %(first_sequence)s AND c.sequence < %(last_sequence)s

-- name: postings_of_segments
SELECT p.lexeme_id, p.index_id, p.offsets, p.frequencies
  FROM kosmos.indexes i
  JOIN kosmos.postings p ON p.tenant_id = i.tenant_id AND p.index_id = i.id
 WHERE i.tenant_id = %(tenant_id)s AND p.tenant_id = %(tenant_id)s AND i.id = ANY (%(ids)s::uuid[])
 ORDER BY p.lexeme_id, i.first_sequence

-- name: live_chunks
SELECT count(*)
  FROM kosmos.chunks c
 WHERE c.tenant_id = %(tenant_id)s AND c.collection = %(collection)s
   AND c.sequence >= %(first_sequence)s AND c.sequence < %(last_sequence)s

-- name: segment_bytes
SELECT coalesce(sum(octet_length(p.offsets) + octet_length(p.frequencies)), 0)::bigint
  FROM kosmos.postings p
 WHERE p.tenant_id = %(tenant_id)s AND p.index_id = %(id)s

-- name: space_of_tenant
SELECT s.id, s.dimensions
  FROM kosmos.tenants t
  JOIN kosmos.embedding_spaces s ON s.tenant_id = t.tenant_id AND s.id = t.live_space_id
 WHERE t.tenant_id = %(tenant_id)s AND s.tenant_id = %(tenant_id)s

-- name: vectors_of_space
SELECT count(*) FROM kosmos.embeddings e WHERE e.tenant_id = %(tenant_id)s AND e.space_id = %(space_id)s

-- name: vectors_by_acl
-- Vectors by access control list: they estimate how far a search must scan an index for a reader with few chunks.
SELECT array_to_string(e.acl, chr(31)), count(*)
  FROM kosmos.embeddings e
 WHERE e.tenant_id = %(tenant_id)s AND e.space_id = %(space_id)s
 GROUP BY 1
 ORDER BY 2 DESC
 LIMIT 200

-- name: chunk_after
SELECT c.text
  FROM kosmos.chunks c
 WHERE c.tenant_id = %(tenant_id)s AND c.id >= %(id)s
 ORDER BY c.id
 LIMIT 1

-- name: chunk_of_collection_after
SELECT c.id, c.text, (SELECT d.language FROM kosmos.documents d WHERE d.tenant_id = %(tenant_id)s AND d.id = c.document_id)
  FROM kosmos.chunks c
 WHERE c.tenant_id = %(tenant_id)s AND c.collection = %(collection)s AND c.id >= %(id)s
   AND 'everyone' = ANY (c.acl)
 ORDER BY c.id
 LIMIT 1

-- name: known_items_of_tenant
-- Collections whose preset keeps the weights as they are set are not measured. Only chunks that everyone may read count:
-- weights apply to all readers, and must not change with what some of them cannot see.
SELECT s.collection,
       (SELECT coalesce(sum(a.chunks), 0)::bigint
          FROM kosmos.acl_statistics a
         WHERE a.tenant_id = %(tenant_id)s AND a.collection = s.collection AND 'everyone' = ANY (a.acl)) AS chunks,
       s.known_items
  FROM kosmos.collection_statistics s
 WHERE s.tenant_id = %(tenant_id)s
   AND NOT EXISTS (SELECT
                     FROM kosmos.collection_presets p
                    WHERE p.tenant_id = %(tenant_id)s AND p.collection = s.collection
                      AND p.content::jsonb -> 'rag' -> 'retrieval' ->> 'weighting' <> 'collection')
 ORDER BY s.collection

-- name: store_known_items
UPDATE kosmos.collection_statistics s
   SET known_items = %(content)s
 WHERE s.tenant_id = %(tenant_id)s AND s.collection = %(collection)s

-- name: physical_indexes
-- Vector indexes of the tenant in the server's catalogue, whether or not `indexes` lists them. On a distributed server
-- the table is the tenant's shard, and the names of its indexes end like its own.
SELECT left(c.relname, length(c.relname) - length(%(suffix)s::text)) AS relation, x.indisvalid AS valid,
       pg_relation_size(c.oid) AS bytes
  FROM pg_catalog.pg_index x
  JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid
  JOIN pg_catalog.pg_class r ON r.oid = x.indrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
 WHERE n.nspname = 'kosmos' AND r.relname = 'embeddings' || %(suffix)s::text AND starts_with(c.relname, 'vec_')
   AND strpos(pg_get_expr(x.indpred, x.indrelid), %(tenant_id)s::uuid::text) > 0

-- name: disable_parallel_query
-- Background work leaves the other cores to searches.
SET LOCAL max_parallel_workers_per_gather = 0

-- name: insert_index_event
INSERT INTO kosmos.index_events (tenant_id, id, at, index_id, action, reason, before, after)
VALUES (%(tenant_id)s, %(id)s, %(at)s, %(index_id)s, %(action)s, %(reason)s, %(before)s, %(after)s)

-- name: list_index_events
SELECT l.at, l.index_id, l.action, l.reason, l.before, l.after
  FROM kosmos.index_events l
 WHERE l.tenant_id = %(tenant_id)s
 ORDER BY l.at DESC, l.id DESC
 LIMIT %(limit)s

-- name: prune_index_events
DELETE FROM kosmos.index_events l WHERE l.tenant_id = %(tenant_id)s AND l.at < %(before)s
