-- name: lock_collection
-- First lock of every transaction that writes chunks. It serialises the publications of a collection up to their
-- commit: statistics are correct, sequence numbers rise in the order of the commits, and no deadlock is possible.
SELECT s.chunks, s.length, s.next_lexeme_id, s.next_sequence, s.epoch, s.state
  FROM kosmos.collection_statistics s
 WHERE s.tenant_id = %(tenant_id)s AND s.collection = %(collection)s
   FOR UPDATE

-- name: lock_spaces
-- The removal of a space waits for transactions that write its vectors; later ones no longer see the space.
SELECT s.id
  FROM kosmos.embedding_spaces s
 WHERE s.tenant_id = %(tenant_id)s AND s.state <> 'dropping'
 ORDER BY s.id
   FOR KEY SHARE

-- name: live_space_id
-- A separate statement after the lock: a cutover holds the lock exclusively until it commits.
SELECT t.live_space_id FROM kosmos.tenants t WHERE t.tenant_id = %(tenant_id)s

-- name: discard_plans
-- The server keeps the plans of the checks of foreign keys for the life of a connection. One that was made while a table
-- was almost empty reads all rows of the tenant for each check, and PostgreSQL makes a new one only after an ANALYZE.
DISCARD PLANS

-- name: analyse
-- Returns each text as a tsvector of its language; the caller counts the lexemes. Words without their accents and parts
-- of compounds are added, unless the text has the lexeme: some stemmers remove accents.
SELECT CASE WHEN t.added = '' THEN a.terms
            ELSE a.terms || ts_delete(to_tsvector(t.language::regconfig, t.added), tsvector_to_array(a.terms)) END
  FROM unnest(%(texts)b::text[], %(languages)b::text[], %(added)b::text[]) WITH ORDINALITY
       AS t (text, language, added, number)
 CROSS JOIN LATERAL (SELECT to_tsvector(t.language::regconfig, t.text) AS terms OFFSET 0) a
 ORDER BY t.number

-- name: lexeme_ids
-- Returns ids of lexemes that exist for other access control lists: a lexeme has one id in a collection.
SELECT DISTINCT l.lexeme, l.id
  FROM kosmos.lexemes l
 WHERE l.tenant_id = %(tenant_id)s AND l.collection = %(collection)s AND l.lexeme = ANY (%(lexemes)b::text[])

-- name: insert_lexemes
-- Here and below: the row of the tenant is for Citus, which runs the whole INSERT on the tenant's node because of it.
-- From `unnest` alone the coordinator would make the rows, and send them there.
INSERT INTO kosmos.lexemes (tenant_id, collection, lexeme, acl_hash, acl, id, chunks)
SELECT t.tenant_id, %(collection)s, u.lexeme, u.acl_hash, u.acl::text[], u.id, u.chunks
  FROM kosmos.tenants t
 CROSS JOIN unnest(%(lexemes)b::text[], %(acl_hashes)b::uuid[], %(acls)b::text[], %(ids)b::integer[],
                   %(counts)b::integer[]) AS u (lexeme, acl_hash, acl, id, chunks)
 WHERE t.tenant_id = %(tenant_id)s

-- name: delete_lexemes
-- Deletes lexemes that no chunk contains any more: a deleted document leaves no word behind.
-- Returns their ids by their position in the array.
DELETE FROM kosmos.lexemes l
 USING unnest(%(lexemes)b::text[], %(acl_hashes)b::uuid[], %(counts)b::integer[]) WITH ORDINALITY
       AS u (lexeme, acl_hash, chunks, number)
 WHERE l.tenant_id = %(tenant_id)s AND l.collection = %(collection)s AND l.lexeme = u.lexeme
   AND l.lexeme = ANY (%(lexemes)b::text[]) AND l.acl_hash = u.acl_hash AND l.chunks + u.chunks <= 0
RETURNING u.number, l.id

-- name: update_lexemes
-- Returns the ids of existing lexemes by their position in the array; the others are new. The condition with ANY stays:
-- for the join alone the planner reads every lexeme of the collection.
UPDATE kosmos.lexemes l
   SET chunks = l.chunks + u.chunks
  FROM unnest(%(lexemes)b::text[], %(acl_hashes)b::uuid[], %(counts)b::integer[]) WITH ORDINALITY
       AS u (lexeme, acl_hash, chunks, number)
 WHERE l.tenant_id = %(tenant_id)s AND l.collection = %(collection)s AND l.lexeme = u.lexeme
   AND l.lexeme = ANY (%(lexemes)b::text[]) AND l.acl_hash = u.acl_hash
RETURNING u.number, l.id

-- name: update_collection_statistics
UPDATE kosmos.collection_statistics
   SET chunks = chunks + %(chunks)s,
       length = length + %(length)s,
       next_lexeme_id = %(next_lexeme_id)s,
       next_sequence = %(next_sequence)s,
       epoch = %(epoch)s,
       state = %(state)s
 WHERE tenant_id = %(tenant_id)s AND collection = %(collection)s

-- name: insert_collection_change
-- The chunks of a version have neighbouring sequence numbers. A change of too many versions has no ranges: nobody
-- follows it.
INSERT INTO kosmos.collection_changes (tenant_id, collection, epoch, state, previous, sequences)
SELECT t.tenant_id, %(collection)s, %(epoch)s, %(state)s, %(previous)s, c.sequences
  FROM kosmos.tenants t
 CROSS JOIN (SELECT CASE WHEN count(*) <= %(most)s THEN range_agg(r.sequences) END AS sequences
               FROM (SELECT int4range(min(n.sequence), max(n.sequence) + 1) AS sequences
                       FROM kosmos.chunks n
                      WHERE n.tenant_id = %(tenant_id)s AND n.version_id = ANY (%(version_ids)s::uuid[])
                      GROUP BY n.version_id
                      UNION ALL
                     SELECT int4range(%(first)s::integer, %(first)s::integer + %(added)s::integer)) r) c
 WHERE t.tenant_id = %(tenant_id)s

-- name: delete_collection_changes
DELETE FROM kosmos.collection_changes c
 WHERE c.tenant_id = %(tenant_id)s AND c.collection = %(collection)s AND c.epoch <= %(until)s

-- name: update_acl_statistics
-- Updates the counts of each access control list. Caches are keyed by the states. A state is random: a counter would
-- repeat after a restore, and a process would serve what a lost transaction had opened.
INSERT INTO kosmos.acl_statistics AS s (tenant_id, collection, acl_hash, acl, chunks, length, languages, state)
SELECT t.tenant_id, %(collection)s, u.acl_hash, u.acl::text[], u.chunks, u.length, '{}', %(state)s
  FROM kosmos.tenants t
 CROSS JOIN unnest(%(acl_hashes)s::uuid[], %(acls)s::text[], %(chunks)s::bigint[], %(lengths)s::bigint[])
       AS u (acl_hash, acl, chunks, length)
 WHERE t.tenant_id = %(tenant_id)s
ON CONFLICT (tenant_id, collection, acl_hash) DO UPDATE
   SET chunks = s.chunks + excluded.chunks, length = s.length + excluded.length, state = excluded.state

-- name: delete_empty_acl_statistics
DELETE FROM kosmos.acl_statistics s
 WHERE s.tenant_id = %(tenant_id)s AND s.collection = %(collection)s AND s.acl_hash = ANY (%(acl_hashes)s::uuid[])
   AND s.chunks = 0

-- name: update_acl_languages
-- Adds the languages of new documents: a query is analysed in each language. If all chunks of the list are new, their
-- languages replace the old ones. The cast is in a subquery: Citus refuses one of a column in the UPDATE itself.
UPDATE kosmos.acl_statistics s
   SET languages = CASE WHEN s.chunks = u.added THEN u.languages
                        ELSE s.languages || ARRAY(
                            SELECT unnest(u.languages) EXCEPT SELECT unnest(s.languages) ORDER BY 1)
                   END
  FROM (SELECT n.acl_hash, n.added, n.languages::text[] AS languages
          FROM unnest(%(acl_hashes)s::uuid[], %(added)s::bigint[], %(languages)s::text[])
               AS n (acl_hash, added, languages)
        OFFSET 0) u
 WHERE s.tenant_id = %(tenant_id)s AND s.collection = %(collection)s AND s.acl_hash = u.acl_hash
   AND (NOT s.languages @> u.languages OR s.chunks = u.added AND s.languages <> u.languages)

-- name: upsert_documents
INSERT INTO kosmos.documents (tenant_id, id, source, title, media_type, language, metadata, acl, version,
                              created_at, updated_at, collection, source_etag, notes, file_id)
SELECT t.tenant_id, u.id, u.source, u.title, u.media_type, u.language, u.metadata, u.acl::text[], u.number,
       %(now)s, %(now)s, %(collection)s, u.source_etag, u.notes, u.file_id
  FROM kosmos.tenants t
 CROSS JOIN unnest(%(id)b::uuid[], %(source)b::text[], %(title)b::text[], %(media_type)b::text[], %(language)b::text[],
                   %(metadata)b::jsonb[], %(acl)b::text[], %(number)b::integer[], %(source_etag)b::text[],
                   %(notes)b::jsonb[], %(file_id)b::uuid[])
       AS u (id, source, title, media_type, language, metadata, acl, number, source_etag, notes, file_id)
 WHERE t.tenant_id = %(tenant_id)s
ON CONFLICT (tenant_id, id) DO UPDATE
   SET title = excluded.title, media_type = excluded.media_type, language = excluded.language,
       metadata = excluded.metadata, acl = excluded.acl, version = excluded.version,
       updated_at = excluded.updated_at, source_etag = excluded.source_etag, notes = excluded.notes

-- name: delete_filter_terms
DELETE FROM kosmos.filter_terms t WHERE t.tenant_id = %(tenant_id)s AND t.document_id = ANY (%(document_ids)s::uuid[])

-- name: insert_filter_terms
-- A document of more terms than are worth indexing has the term 0, which every search for terms includes.
INSERT INTO kosmos.filter_terms (tenant_id, term, document_id, acl)
SELECT d.tenant_id, t.term, d.id, d.acl
  FROM (SELECT n.tenant_id, n.id, n.acl,
               kosmos.hash_fields(jsonb_build_object('metadata', n.metadata, 'acl', to_jsonb(n.acl))) AS terms
          FROM kosmos.documents n
         WHERE n.tenant_id = %(tenant_id)s AND n.id = ANY (%(document_ids)s::uuid[])
        OFFSET 0) d
 CROSS JOIN LATERAL unnest(CASE WHEN cardinality(d.terms) > 256 THEN '{0}' ELSE d.terms END) AS t (term)

-- name: delete_versions
DELETE FROM kosmos.document_versions v WHERE v.tenant_id = %(tenant_id)s AND v.id = ANY (%(version_ids)s)

-- name: delete_unsegmented_terms
DELETE FROM kosmos.unsegmented_terms t
 WHERE t.tenant_id = %(tenant_id)s AND t.collection = %(collection)s
   AND t.sequence = ANY (ARRAY(
       SELECT c.sequence
         FROM kosmos.chunks c
        WHERE c.tenant_id = %(tenant_id)s AND c.version_id = ANY (%(version_ids)s)))

-- name: insert_versions
INSERT INTO kosmos.document_versions (tenant_id, id, document_id, number, content_hash, fingerprint, bytes, text,
                                      pages, boxes, original, chunks, acl, created_at)
SELECT t.tenant_id, u.version_id, u.id, u.number, u.content_hash, u.fingerprint, u.bytes, u.text,
       u.pages::integer[], u.boxes, u.original, u.chunks, u.acl::text[], %(now)s
  FROM kosmos.tenants t
 CROSS JOIN unnest(%(version_id)b::uuid[], %(id)b::uuid[], %(number)b::integer[], %(content_hash)b::text[],
                   %(fingerprint)b::text[], %(bytes)b::bigint[], %(text)b::text[], %(pages)b::text[],
                   %(boxes)b::bytea[], %(original)b::bytea[], %(chunks)b::integer[], %(acl)b::text[])
       AS u (version_id, id, number, content_hash, fingerprint, bytes, text, pages, boxes, original, chunks, acl)
 WHERE t.tenant_id = %(tenant_id)s

-- name: insert_chunks
INSERT INTO kosmos.chunks (tenant_id, id, document_id, version_id, chunk_index, start_offset, end_offset, line_start,
                           line_end, page_start, page_end, section, text, tokens, chunker, fallback_reason, acl,
                           tsv, length, collection, sequence, parent_start, parent_end, table_context,
                           place_spans)
SELECT t.tenant_id, u.id, u.document_id, u.version_id, u.chunk_index, u.start_offset, u.end_offset, u.line_start,
       u.line_end, nullif(u.page_start, 0), nullif(u.page_end, 0), string_to_array(u.section, chr(31)), u.text,
       u.tokens, u.chunker, nullif(u.fallback_reason, ''), u.acl::text[], u.tsv, u.length, %(collection)s, u.sequence,
       CASE WHEN u.parent_end > 0 THEN u.parent_start END, nullif(u.parent_end, 0),
       string_to_array(u.table_context, chr(31)), u.place_spans::jsonb
  FROM kosmos.tenants t
 CROSS JOIN unnest(%(id)b::uuid[], %(document_id)b::uuid[], %(version_id)b::uuid[], %(chunk_index)b::integer[],
                   %(start_offset)b::integer[], %(end_offset)b::integer[], %(line_start)b::integer[],
                   %(line_end)b::integer[], %(page_start)b::integer[], %(page_end)b::integer[], %(section)b::text[],
                   %(text)b::text[], %(tokens)b::integer[], %(chunker)b::text[], %(fallback_reason)b::text[],
                   %(acl)b::text[], %(tsv)b::tsvector[], %(length)b::integer[], %(sequence)b::integer[],
                   %(parent_start)b::integer[], %(parent_end)b::integer[], %(table_context)b::text[],
                   %(place_spans)b::text[])
       AS u (id, document_id, version_id, chunk_index, start_offset, end_offset, line_start, line_end, page_start,
             page_end, section, text, tokens, chunker, fallback_reason, acl, tsv, length, sequence, parent_start,
             parent_end, table_context, place_spans)
 WHERE t.tenant_id = %(tenant_id)s

-- name: insert_unsegmented_terms
INSERT INTO kosmos.unsegmented_terms (tenant_id, collection, sequence, chunk_id, document_id, acl, length, pivot, terms)
SELECT t.tenant_id, %(collection)s, u.sequence, u.chunk_id, u.document_id, u.acl::text[], u.length, %(pivot)s, u.terms
  FROM kosmos.tenants t
 CROSS JOIN unnest(%(sequence)b::integer[], %(id)b::uuid[], %(document_id)b::uuid[], %(acl)b::text[],
                   %(length)b::integer[], %(terms)b::sparsevec[])
       AS u (sequence, chunk_id, document_id, acl, length, terms)
 WHERE t.tenant_id = %(tenant_id)s

-- name: insert_embeddings
INSERT INTO kosmos.embeddings (tenant_id, chunk_id, space_id, acl, embedding, collection, text_hash)
SELECT t.tenant_id, u.chunk_id, %(space_id)s, u.acl::text[], u.embedding, %(collection)s, u.text_hash
  FROM kosmos.tenants t
 CROSS JOIN unnest(%(id)b::uuid[], %(acl)b::text[], %(embedding)b::halfvec[], %(text_hash)b::uuid[])
       AS u (chunk_id, acl, embedding, text_hash)
 WHERE t.tenant_id = %(tenant_id)s

-- name: vectors_of_texts
-- Returns one row for each text, even if several chunks have it.
SELECT u.text_hash, halfvec_send(e.embedding)
  FROM unnest(%(hashes)b::uuid[]) AS u (text_hash)
 CROSS JOIN LATERAL (
       SELECT n.embedding
         FROM kosmos.embeddings n
        WHERE n.tenant_id = %(tenant_id)s AND n.space_id = %(space_id)s AND n.text_hash = u.text_hash
        LIMIT 1) e
