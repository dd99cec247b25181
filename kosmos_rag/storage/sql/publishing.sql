-- name: lock_corpus
-- First in every transaction that writes chunks. Publications of one tenant take turns from here to their commit, so
-- the statistics are right and no two of them can wait for each other.
SELECT s.chunks, s.length, s.next_lexeme_id
  FROM kosmos.corpus_statistics s
 WHERE s.tenant_id = %(tenant_id)s
   FOR UPDATE

-- name: analyse
-- Each text as a tsvector; the caller counts its lexemes.
SELECT to_tsvector(%(language)s::regconfig, t.text)::text
  FROM unnest(%(texts)b::text[]) WITH ORDINALITY AS t (text, ordinal)
 ORDER BY t.ordinal

-- name: insert_lexemes
INSERT INTO kosmos.lexemes (tenant_id, lexeme, id, chunks)
SELECT %(tenant_id)s, u.lexeme, u.id, u.chunks
  FROM unnest(%(lexemes)b::text[], %(ids)b::integer[], %(counts)b::integer[]) AS u (lexeme, id, chunks)
RETURNING id

-- name: delete_lexemes
-- Those that no chunk holds any more: a deleted document leaves no word behind.
DELETE FROM kosmos.lexemes l
 USING unnest(%(lexemes)b::text[], %(counts)b::integer[]) AS u (lexeme, chunks)
 WHERE l.tenant_id = %(tenant_id)s AND l.lexeme = u.lexeme AND l.chunks + u.chunks <= 0

-- name: change_lexemes
-- Returns the ids of the lexemes that are there; the others are new.
UPDATE kosmos.lexemes l
   SET chunks = l.chunks + u.chunks
  FROM unnest(%(lexemes)b::text[], %(counts)b::integer[]) AS u (lexeme, chunks)
 WHERE l.tenant_id = %(tenant_id)s AND l.lexeme = u.lexeme
RETURNING l.lexeme, l.id

-- name: change_corpus
UPDATE kosmos.corpus_statistics
   SET chunks = chunks + %(chunks)s,
       length = length + %(length)s,
       lowest_pivot = least(lowest_pivot, %(pivot)s),
       next_lexeme_id = %(next_lexeme_id)s
 WHERE tenant_id = %(tenant_id)s

-- name: upsert_document
INSERT INTO kosmos.documents (tenant_id, id, source, title, media_type, language, metadata, acl, version,
                              created_at, updated_at)
VALUES (%(tenant_id)s, %(id)s, %(source)s, %(title)s, %(media_type)s, %(language)s, %(metadata)s, %(acl)s,
        %(number)s, %(now)s, %(now)s)
ON CONFLICT (tenant_id, id) DO UPDATE
   SET title = excluded.title, media_type = excluded.media_type, language = excluded.language,
       metadata = excluded.metadata, acl = excluded.acl, version = excluded.version,
       updated_at = excluded.updated_at

-- name: delete_versions
DELETE FROM kosmos.document_versions v WHERE v.tenant_id = %(tenant_id)s AND v.id = ANY (%(version_ids)s)

-- name: insert_version
INSERT INTO kosmos.document_versions (tenant_id, id, document_id, number, content_hash, fingerprint, bytes, text,
                                      pages, chunks, acl, created_at)
VALUES (%(tenant_id)s, %(version_id)s, %(id)s, %(number)s, %(content_hash)s, %(fingerprint)s, %(bytes)s, %(text)s,
        %(pages)s, %(chunks)s, %(acl)s, %(now)s)

-- name: insert_chunks
-- RETURNING is there for Citus, which turns a plain INSERT … SELECT into a COPY, and row-level security refuses COPY.
INSERT INTO kosmos.chunks (tenant_id, id, document_id, version_id, ordinal, start_offset, end_offset, line_start,
                           line_end, page_start, page_end, section, text, tokens, splitter, fallback_reason, acl,
                           tsv, length, pivot, terms)
SELECT %(tenant_id)s, u.id, u.document_id, u.version_id, u.ordinal, u.start_offset, u.end_offset, u.line_start,
       u.line_end, u.page_start, u.page_end, string_to_array(u.section, chr(31)), u.text, u.tokens, u.splitter,
       u.fallback_reason, u.acl::text[], u.tsv::tsvector, u.length, %(pivot)s, u.terms
  FROM unnest(%(id)b::uuid[], %(document_id)b::uuid[], %(version_id)b::uuid[], %(ordinal)b::integer[],
              %(start_offset)b::integer[], %(end_offset)b::integer[], %(line_start)b::integer[],
              %(line_end)b::integer[], %(page_start)b::integer[], %(page_end)b::integer[], %(section)b::text[],
              %(text)b::text[], %(tokens)b::integer[], %(splitter)b::text[], %(fallback_reason)b::text[],
              %(acl)b::text[], %(tsv)b::text[], %(length)b::integer[], %(terms)b::sparsevec[])
       AS u (id, document_id, version_id, ordinal, start_offset, end_offset, line_start, line_end, page_start,
             page_end, section, text, tokens, splitter, fallback_reason, acl, tsv, length, terms)
RETURNING id

-- name: insert_embeddings
INSERT INTO kosmos.embeddings (tenant_id, chunk_id, space_id, acl, embedding)
SELECT %(tenant_id)s, u.chunk_id, %(space_id)s, u.acl::text[], u.embedding
  FROM unnest(%(id)b::uuid[], %(acl)b::text[], %(embedding)b::halfvec[]) AS u (chunk_id, acl, embedding)
RETURNING chunk_id
