-- name: lock_corpus
-- First lock of every transaction that writes chunks. Publications of one collection take turns from here to their
-- commit, so the statistics are right, serials rise in the order of the commits, and no two can wait for each other.
SELECT s.chunks, s.length, s.next_lexeme_id, s.next_serial
  FROM kosmos.corpus_statistics s
 WHERE s.tenant_id = %(tenant_id)s AND s.collection = %(collection)s
   FOR UPDATE

-- name: lock_spaces
-- Whoever removes a space waits for those that write vectors of it, and they then no longer find it.
SELECT s.id
  FROM kosmos.embedding_spaces s
 WHERE s.tenant_id = %(tenant_id)s AND s.state <> 'dropping'
 ORDER BY s.id
   FOR KEY SHARE

-- name: live_space_id
-- A statement of its own, after the lock: whoever switches spaces holds that alone until it commits.
SELECT t.live_space_id FROM kosmos.tenants t WHERE t.tenant_id = %(tenant_id)s

-- name: analyse
-- Each text as a tsvector of its language; the caller counts its lexemes.
SELECT to_tsvector(t.language::regconfig, t.text)
  FROM unnest(%(texts)b::text[], %(languages)b::text[]) WITH ORDINALITY AS t (text, language, ordinal)
 ORDER BY t.ordinal

-- name: lexeme_ids
-- Of lexemes that chunks with other readers hold: all that hold one know it by the same id.
SELECT DISTINCT l.lexeme, l.id
  FROM kosmos.lexemes l
 WHERE l.tenant_id = %(tenant_id)s AND l.collection = %(collection)s AND l.lexeme = ANY (%(lexemes)b::text[])

-- name: insert_lexemes
INSERT INTO kosmos.lexemes (tenant_id, collection, lexeme, readers, acl, id, chunks)
SELECT %(tenant_id)s, %(collection)s, u.lexeme, u.readers, u.acl::text[], u.id, u.chunks
  FROM unnest(%(lexemes)b::text[], %(readers)b::uuid[], %(acls)b::text[], %(ids)b::integer[], %(counts)b::integer[])
       AS u (lexeme, readers, acl, id, chunks)
RETURNING id

-- name: delete_lexemes
-- Those that no chunk holds any more: a deleted document leaves no word behind.
DELETE FROM kosmos.lexemes l
 USING unnest(%(lexemes)b::text[], %(readers)b::uuid[], %(counts)b::integer[]) AS u (lexeme, readers, chunks)
 WHERE l.tenant_id = %(tenant_id)s AND l.collection = %(collection)s AND l.lexeme = u.lexeme
   AND l.readers = u.readers AND l.chunks + u.chunks <= 0

-- name: change_lexemes
-- Returns the ids of the lexemes that are there, by their places in the array; the others are new.
-- By ANY too: the join alone is planned as one with every lexeme of the corpus.
UPDATE kosmos.lexemes l
   SET chunks = l.chunks + u.chunks
  FROM unnest(%(lexemes)b::text[], %(readers)b::uuid[], %(counts)b::integer[]) WITH ORDINALITY
       AS u (lexeme, readers, chunks, number)
 WHERE l.tenant_id = %(tenant_id)s AND l.collection = %(collection)s AND l.lexeme = u.lexeme
   AND l.lexeme = ANY (%(lexemes)b::text[]) AND l.readers = u.readers
RETURNING u.number, l.id

-- name: change_corpus
UPDATE kosmos.corpus_statistics
   SET chunks = chunks + %(chunks)s,
       length = length + %(length)s,
       next_lexeme_id = %(next_lexeme_id)s,
       next_serial = %(next_serial)s,
       epoch = epoch + 1
 WHERE tenant_id = %(tenant_id)s AND collection = %(collection)s
RETURNING epoch

-- name: change_reader_statistics
-- The same of the chunks that have the same readers, for each list of readers. A row stays when its chunks are gone:
-- the epoch of what a reader may read never falls back.
INSERT INTO kosmos.reader_statistics AS s (tenant_id, collection, readers, acl, chunks, length, languages, epoch)
SELECT %(tenant_id)s, %(collection)s, u.readers, u.acl::text[], u.chunks, u.length, '{}', %(epoch)s
  FROM unnest(%(readers)s::uuid[], %(acls)s::text[], %(chunks)s::bigint[], %(lengths)s::bigint[])
       AS u (readers, acl, chunks, length)
ON CONFLICT (tenant_id, collection, readers) DO UPDATE
   SET chunks = s.chunks + excluded.chunks, length = s.length + excluded.length, epoch = excluded.epoch

-- name: change_languages
-- Those of the documents: a question is analysed in each of them. Chunks of before keep theirs; where only those are
-- left that have just been added, theirs alone stay.
UPDATE kosmos.reader_statistics s
   SET languages = CASE WHEN s.chunks = u.added THEN u.languages::text[]
                        ELSE s.languages || ARRAY(
                            SELECT unnest(u.languages::text[]) EXCEPT SELECT unnest(s.languages) ORDER BY 1)
                   END
  FROM unnest(%(readers)s::uuid[], %(added)s::bigint[], %(languages)s::text[]) AS u (readers, added, languages)
 WHERE s.tenant_id = %(tenant_id)s AND s.collection = %(collection)s AND s.readers = u.readers
   AND (NOT s.languages @> u.languages::text[] OR s.chunks = u.added AND s.languages <> u.languages::text[])

-- name: upsert_documents
INSERT INTO kosmos.documents (tenant_id, id, source, title, media_type, language, metadata, acl, version,
                              created_at, updated_at, collection, mark)
SELECT %(tenant_id)s, u.id, u.source, u.title, u.media_type, u.language, u.metadata, u.acl::text[], u.number,
       %(now)s, %(now)s, %(collection)s, u.mark
  FROM unnest(%(id)b::uuid[], %(source)b::text[], %(title)b::text[], %(media_type)b::text[], %(language)b::text[],
              %(metadata)b::jsonb[], %(acl)b::text[], %(number)b::integer[], %(mark)b::text[])
       AS u (id, source, title, media_type, language, metadata, acl, number, mark)
ON CONFLICT (tenant_id, id) DO UPDATE
   SET title = excluded.title, media_type = excluded.media_type, language = excluded.language,
       metadata = excluded.metadata, acl = excluded.acl, version = excluded.version,
       updated_at = excluded.updated_at, mark = excluded.mark

-- name: delete_versions
DELETE FROM kosmos.document_versions v WHERE v.tenant_id = %(tenant_id)s AND v.id = ANY (%(version_ids)s)

-- name: delete_tail
DELETE FROM kosmos.lexical_tail t
 WHERE t.tenant_id = %(tenant_id)s AND t.collection = %(collection)s
   AND t.serial = ANY (ARRAY(
       SELECT c.serial
         FROM kosmos.chunks c
        WHERE c.tenant_id = %(tenant_id)s AND c.version_id = ANY (%(version_ids)s)))

-- name: insert_versions
-- RETURNING is there for Citus, which turns a plain INSERT … SELECT into a COPY, and row-level security refuses COPY.
INSERT INTO kosmos.document_versions (tenant_id, id, document_id, number, content_hash, fingerprint, bytes, text,
                                      pages, chunks, acl, created_at)
SELECT %(tenant_id)s, u.version_id, u.id, u.number, u.content_hash, u.fingerprint, u.bytes, u.text,
       u.pages::integer[], u.chunks, u.acl::text[], %(now)s
  FROM unnest(%(version_id)b::uuid[], %(id)b::uuid[], %(number)b::integer[], %(content_hash)b::text[],
              %(fingerprint)b::text[], %(bytes)b::bigint[], %(text)b::text[], %(pages)b::text[], %(chunks)b::integer[],
              %(acl)b::text[])
       AS u (version_id, id, number, content_hash, fingerprint, bytes, text, pages, chunks, acl)
RETURNING id

-- name: insert_chunks
INSERT INTO kosmos.chunks (tenant_id, id, document_id, version_id, ordinal, start_offset, end_offset, line_start,
                           line_end, page_start, page_end, section, text, tokens, splitter, fallback_reason, acl,
                           tsv, length, collection, serial, around_start, around_end)
SELECT %(tenant_id)s, u.id, u.document_id, u.version_id, u.ordinal, u.start_offset, u.end_offset, u.line_start,
       u.line_end, nullif(u.page_start, 0), nullif(u.page_end, 0), string_to_array(u.section, chr(31)), u.text,
       u.tokens, u.splitter, nullif(u.fallback_reason, ''), u.acl::text[], u.tsv, u.length, %(collection)s, u.serial,
       CASE WHEN u.around_end > 0 THEN u.around_start END, nullif(u.around_end, 0)
  FROM unnest(%(id)b::uuid[], %(document_id)b::uuid[], %(version_id)b::uuid[], %(ordinal)b::integer[],
              %(start_offset)b::integer[], %(end_offset)b::integer[], %(line_start)b::integer[],
              %(line_end)b::integer[], %(page_start)b::integer[], %(page_end)b::integer[], %(section)b::text[],
              %(text)b::text[], %(tokens)b::integer[], %(splitter)b::text[], %(fallback_reason)b::text[],
              %(acl)b::text[], %(tsv)b::tsvector[], %(length)b::integer[], %(serial)b::integer[],
              %(around_start)b::integer[], %(around_end)b::integer[])
       AS u (id, document_id, version_id, ordinal, start_offset, end_offset, line_start, line_end, page_start,
             page_end, section, text, tokens, splitter, fallback_reason, acl, tsv, length, serial, around_start,
             around_end)
RETURNING id

-- name: insert_tail
INSERT INTO kosmos.lexical_tail (tenant_id, collection, serial, chunk_id, document_id, acl, length, pivot, terms)
SELECT %(tenant_id)s, %(collection)s, u.serial, u.chunk_id, u.document_id, u.acl::text[], u.length, %(pivot)s, u.terms
  FROM unnest(%(serial)b::integer[], %(id)b::uuid[], %(document_id)b::uuid[], %(acl)b::text[], %(length)b::integer[],
              %(terms)b::sparsevec[]) AS u (serial, chunk_id, document_id, acl, length, terms)
RETURNING serial

-- name: insert_embeddings
INSERT INTO kosmos.embeddings (tenant_id, chunk_id, space_id, acl, embedding, collection, text_hash)
SELECT %(tenant_id)s, u.chunk_id, %(space_id)s, u.acl::text[], u.embedding, %(collection)s, u.text_hash
  FROM unnest(%(id)b::uuid[], %(acl)b::text[], %(embedding)b::halfvec[], %(text_hash)b::uuid[])
       AS u (chunk_id, acl, embedding, text_hash)
RETURNING chunk_id

-- name: vectors_of_texts
-- One row a text, however many chunks have it.
SELECT u.text_hash, halfvec_send(e.embedding)
  FROM unnest(%(hashes)b::uuid[]) AS u (text_hash)
 CROSS JOIN LATERAL (
       SELECT n.embedding
         FROM kosmos.embeddings n
        WHERE n.tenant_id = %(tenant_id)s AND n.space_id = %(space_id)s AND n.text_hash = u.text_hash
        LIMIT 1) e
