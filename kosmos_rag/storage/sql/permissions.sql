-- name: start_permission_feed
-- The generation fences off an earlier pass of the feed that is still running: it may have read an older state.
INSERT INTO kosmos.permission_feeds AS f (tenant_id, collection, name, generation, started_at)
VALUES (%(tenant_id)s, %(collection)s, %(feed)s, 1, %(now)s)
ON CONFLICT (tenant_id, collection, name) DO UPDATE
   SET generation = f.generation + 1, started_at = excluded.started_at, finished_at = NULL
RETURNING f.generation

-- name: permission_feed_generation
-- Locked until the transaction ends: a later pass starts before it, or sees what it writes. A pass that had read the
-- permissions before this one is committed would find nothing to change, and leave what this one writes.
SELECT f.generation
  FROM kosmos.permission_feeds f
 WHERE f.tenant_id = %(tenant_id)s AND f.collection = %(collection)s AND f.name = %(feed)s
   FOR SHARE

-- name: finish_permission_feed
UPDATE kosmos.permission_feeds
   SET finished_at = %(now)s
 WHERE tenant_id = %(tenant_id)s AND collection = %(collection)s AND name = %(feed)s AND generation = %(generation)s

-- name: delete_permission_feeds
-- The rows of the documents go with their feed.
DELETE FROM kosmos.permission_feeds WHERE tenant_id = %(tenant_id)s AND collection = %(collection)s

-- name: acls_of_collection
SELECT d.id, d.acl, v.chunks, d.file_id
  FROM kosmos.documents d
  JOIN kosmos.document_versions v
    ON v.tenant_id = %(tenant_id)s AND v.tenant_id = d.tenant_id AND v.document_id = d.id AND v.number = d.version
 WHERE d.tenant_id = %(tenant_id)s AND d.collection = %(collection)s

-- name: acls_of_parts
SELECT d.id, d.acl, v.chunks, d.file_id
  FROM kosmos.documents d
  JOIN kosmos.document_versions v
    ON v.tenant_id = %(tenant_id)s AND v.tenant_id = d.tenant_id AND v.document_id = d.id AND v.number = d.version
 WHERE d.tenant_id = %(tenant_id)s AND d.collection = %(collection)s AND d.file_id IS NOT NULL

-- name: permissions_of_collection
SELECT p.document_id, p.feed, p.acl
  FROM kosmos.document_permissions p
 WHERE p.tenant_id = %(tenant_id)s AND p.collection = %(collection)s

-- name: unreadable_documents
-- Documents without readers, by collection. The statistics by acl tell at once where there are none.
SELECT s.collection, d.documents, e.sources
  FROM kosmos.acl_statistics s
 CROSS JOIN LATERAL (
       SELECT count(*) AS documents
         FROM kosmos.documents n
        WHERE n.tenant_id = %(tenant_id)s AND n.collection = s.collection AND n.acl = s.acl
       OFFSET 0) d
 CROSS JOIN LATERAL (
       SELECT array_agg(m.source ORDER BY m.source) AS sources
         FROM (SELECT n.source
                 FROM kosmos.documents n
                WHERE n.tenant_id = %(tenant_id)s AND n.collection = s.collection AND n.acl = s.acl
                ORDER BY n.source
                LIMIT %(examples)s) m
       OFFSET 0) e
 WHERE s.tenant_id = %(tenant_id)s AND s.acl = '{}' AND s.chunks > 0 AND d.documents > 0
   AND (%(collection)s::text IS NULL OR s.collection = %(collection)s)
 ORDER BY s.collection

-- name: permissions_of_documents
SELECT p.document_id, p.acl
  FROM kosmos.document_permissions p
 WHERE p.tenant_id = %(tenant_id)s AND p.document_id = ANY (%(document_ids)s)

-- name: upsert_permissions
INSERT INTO kosmos.document_permissions AS p (tenant_id, document_id, collection, feed, acl)
SELECT t.tenant_id, u.document_id, %(collection)s, %(feed)s, u.acl::text[]
  FROM kosmos.tenants t
 CROSS JOIN unnest(%(document_ids)b::uuid[], %(acls)b::text[]) AS u (document_id, acl)
 WHERE t.tenant_id = %(tenant_id)s
ON CONFLICT (tenant_id, document_id) DO UPDATE
   SET feed = excluded.feed, acl = excluded.acl

-- name: delete_unnamed_permissions
-- Rows of documents that neither the feed nor the collection has any more.
DELETE FROM kosmos.document_permissions p
 WHERE p.tenant_id = %(tenant_id)s AND p.document_id = ANY (%(document_ids)s)
   AND NOT EXISTS (
       SELECT
         FROM kosmos.documents d
        WHERE d.tenant_id = %(tenant_id)s AND d.id = p.document_id
       OFFSET 0)

-- name: documents_with_other_acl
-- Documents of a batch whose acl is not the new one: row number of the batch, version, acl, times of the publication and
-- of the last change at the source.
SELECT u.number, v.id, d.acl, v.created_at, d.updated
  FROM unnest(%(document_ids)b::uuid[], %(acls)b::text[]) WITH ORDINALITY AS u (id, acl, number)
 CROSS JOIN LATERAL (
       SELECT n.id, n.acl, n.version, coalesce(n.metadata ->> 'kosmos:source_updated', n.metadata ->> 'updated') AS updated
         FROM kosmos.documents n
        WHERE n.tenant_id = %(tenant_id)s AND n.id = u.id
       OFFSET 0) d
 CROSS JOIN LATERAL (
       SELECT n.id, n.created_at
         FROM kosmos.document_versions n
        WHERE n.tenant_id = %(tenant_id)s AND n.document_id = d.id AND n.number = d.version
       OFFSET 0) v
 WHERE d.acl <> u.acl::text[]
 ORDER BY u.number

-- name: update_document_acls
-- Here and below: the condition with ANY stays, as in update_lexemes, and the cast in a subquery, as in
-- update_acl_languages.
UPDATE kosmos.documents d
   SET acl = u.acls
  FROM (SELECT n.id, n.acl::text[] AS acls
          FROM unnest(%(document_ids)b::uuid[], %(acls)b::text[]) AS n (id, acl)
        OFFSET 0) u
 WHERE d.tenant_id = %(tenant_id)s AND d.id = u.id AND d.id = ANY (%(document_ids)b::uuid[])

-- name: forget_versions
-- The next ingestion publishes these versions again: their acl is another one than that which was ingested.
UPDATE kosmos.document_versions v
   SET fingerprint = ''
 WHERE v.tenant_id = %(tenant_id)s AND v.id = ANY (%(version_ids)b::uuid[])

-- name: forget_source_etags
UPDATE kosmos.documents d
   SET source_etag = NULL
 WHERE d.tenant_id = %(tenant_id)s AND d.id = ANY (%(document_ids)b::uuid[])

-- name: update_version_acls
UPDATE kosmos.document_versions v
   SET acl = u.acls
  FROM (SELECT n.id, n.acl::text[] AS acls
          FROM unnest(%(version_ids)b::uuid[], %(acls)b::text[]) AS n (id, acl)
        OFFSET 0) u
 WHERE v.tenant_id = %(tenant_id)s AND v.id = u.id AND v.id = ANY (%(version_ids)b::uuid[])

-- name: update_chunk_acls
UPDATE kosmos.chunks c
   SET acl = u.acls
  FROM (SELECT n.version_id, n.acl, n.acl::text[] AS acls
          FROM unnest(%(version_ids)b::uuid[], %(acls)b::text[]) AS n (version_id, acl)
        OFFSET 0) u
 WHERE c.tenant_id = %(tenant_id)s AND c.version_id = u.version_id AND c.version_id = ANY (%(version_ids)b::uuid[])
RETURNING c.id, c.sequence, u.acl

-- name: update_unsegmented_acls
UPDATE kosmos.unsegmented_terms t
   SET acl = u.acls
  FROM (SELECT n.sequence, n.acl::text[] AS acls
          FROM unnest(%(sequences)b::integer[], %(acls)b::text[]) AS n (sequence, acl)
        OFFSET 0) u
 WHERE t.tenant_id = %(tenant_id)s AND t.collection = %(collection)s AND t.sequence = u.sequence
   AND t.sequence = ANY (%(sequences)b::integer[])

-- name: update_embedding_acls
-- Of all spaces.
UPDATE kosmos.embeddings e
   SET acl = u.acls
  FROM (SELECT n.id, n.acl::text[] AS acls
          FROM unnest(%(chunk_ids)b::uuid[], %(acls)b::text[]) AS n (id, acl)
        OFFSET 0) u
 WHERE e.tenant_id = %(tenant_id)s AND e.chunk_id = u.id AND e.chunk_id = ANY (%(chunk_ids)b::uuid[])

-- name: lexemes_of_moves
-- Counts the lexemes of versions by move: from one acl to another.
SELECT n.number, array_agg(n.lexeme), array_agg(n.chunks)
  FROM (SELECT m.number, u.lexeme, count(*)::integer AS chunks
          FROM unnest(%(version_ids)b::uuid[], %(numbers)b::integer[]) AS m (version_id, number)
         CROSS JOIN LATERAL (
               SELECT c.tsv
                 FROM kosmos.chunks c
                WHERE c.tenant_id = %(tenant_id)s AND c.version_id = m.version_id
               OFFSET 0) c
         CROSS JOIN LATERAL unnest(c.tsv) u
         GROUP BY m.number, u.lexeme) n
 GROUP BY n.number

-- name: size_of_moves
SELECT m.number, count(*), sum(c.length)::bigint
  FROM unnest(%(version_ids)b::uuid[], %(numbers)b::integer[]) AS m (version_id, number)
 CROSS JOIN LATERAL (
       SELECT n.length
         FROM kosmos.chunks n
        WHERE n.tenant_id = %(tenant_id)s AND n.version_id = m.version_id
       OFFSET 0) c
 GROUP BY m.number

-- name: upsert_lexemes
INSERT INTO kosmos.lexemes AS l (tenant_id, collection, lexeme, acl_hash, acl, id, chunks)
SELECT t.tenant_id, %(collection)s, u.lexeme, u.acl_hash, u.acl::text[], u.id, u.chunks
  FROM kosmos.tenants t
 CROSS JOIN unnest(%(lexemes)b::text[], %(acl_hashes)b::uuid[], %(acls)b::text[], %(ids)b::integer[],
                   %(counts)b::integer[]) AS u (lexeme, acl_hash, acl, id, chunks)
 WHERE t.tenant_id = %(tenant_id)s
ON CONFLICT (tenant_id, collection, lexeme, acl_hash) DO UPDATE SET chunks = l.chunks + excluded.chunks

-- name: acl_sizes
-- Chunks and languages of access control lists.
SELECT s.acl, s.chunks, s.languages
  FROM kosmos.acl_statistics s
 WHERE s.tenant_id = %(tenant_id)s AND s.collection = %(collection)s AND s.acl_hash = ANY (%(acl_hashes)s::uuid[])

-- name: rename_lexemes_acl
-- All rows of one access control list; the new list has none.
UPDATE kosmos.lexemes l
   SET acl_hash = %(after_hash)s, acl = %(after)s::text[]
 WHERE l.tenant_id = %(tenant_id)s AND l.collection = %(collection)s AND l.lexeme = ANY (%(lexemes)b::text[])
   AND l.acl_hash = %(before_hash)s
