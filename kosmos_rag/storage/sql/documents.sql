-- name: other_content_of_document
-- Returns a row if the stored document has other bytes.
SELECT n.id
  FROM kosmos.documents d
  JOIN kosmos.document_versions n ON n.tenant_id = %(tenant_id)s AND n.document_id = d.id AND n.number = d.version
 WHERE d.tenant_id = %(tenant_id)s AND d.id = %(document_id)s AND n.content_hash <> %(sha256)s

-- name: list_documents
SELECT d.id, d.source, d.collection, d.title, d.media_type, d.language, d.version, v.content_hash, v.bytes, v.chunks,
       v.has_original, d.metadata - 'kosmos:source_updated' AS metadata, d.notes, d.updated_at
  FROM kosmos.documents d
 CROSS JOIN LATERAL (
       SELECT n.content_hash, n.bytes, n.chunks, n.original IS NOT NULL AS has_original
         FROM kosmos.document_versions n
        WHERE n.tenant_id = %(tenant_id)s AND n.document_id = d.id AND n.number = d.version
       OFFSET 0) v
 WHERE d.tenant_id = %(tenant_id)s
   AND (%(collection)s::text IS NULL OR d.collection = %(collection)s)
   AND (%(ids)s::uuid[] IS NULL OR d.id = ANY (%(ids)s))
   AND (%(after_source)s::text IS NULL
        OR (d.source, d.collection) > (%(after_source)s::text, %(after_collection)s::text))
   AND (NOT %(filtered)s::boolean
        OR kosmos.matches_filter(ROW(d.*)::kosmos.documents, %(condition)s, %(condition_values)s::jsonb,
                                 %(sources)s::text[], %(folders)s::text[]))
 ORDER BY d.source, d.collection
 LIMIT %(limit)s

-- name: list_sorted_documents
-- Sorts by a number of each document, largest first: it reads all documents of the reader for each page.
SELECT d.id, d.source, d.collection, d.title, d.media_type, d.language, d.version, v.content_hash, v.bytes, v.chunks,
       v.has_original, d.metadata - 'kosmos:source_updated' AS metadata, d.notes, d.updated_at
  FROM kosmos.documents d
 CROSS JOIN LATERAL (
       SELECT n.content_hash, n.bytes, n.chunks, n.original IS NOT NULL AS has_original
         FROM kosmos.document_versions n
        WHERE n.tenant_id = %(tenant_id)s AND n.document_id = d.id AND n.number = d.version
       OFFSET 0) v
 CROSS JOIN LATERAL (
       SELECT CASE %(sort)s::text
                   WHEN 'updated_at' THEN (extract(epoch FROM d.updated_at) * 1000000)::bigint
                   WHEN 'chunks' THEN v.chunks::bigint
                   WHEN 'bytes' THEN v.bytes::bigint
              END AS value
       OFFSET 0) k
 WHERE d.tenant_id = %(tenant_id)s
   AND (%(collection)s::text IS NULL OR d.collection = %(collection)s)
   AND (%(ids)s::uuid[] IS NULL OR d.id = ANY (%(ids)s))
   AND (%(after_source)s::text IS NULL
        OR k.value < %(after_value)s::bigint
        OR (k.value = %(after_value)s::bigint
            AND (d.source, d.collection) > (%(after_source)s::text, %(after_collection)s::text)))
   AND (NOT %(filtered)s::boolean
        OR kosmos.matches_filter(ROW(d.*)::kosmos.documents, %(condition)s, %(condition_values)s::jsonb,
                                 %(sources)s::text[], %(folders)s::text[]))
 ORDER BY k.value DESC, d.source, d.collection
 LIMIT %(limit)s

-- name: last_changes
-- Returns the state of each collection for this reader, as search_state has it: each change of documents that he may read
-- gives another one.
SELECT s.collection,
       encode(sha256(string_agg(uuid_send(s.acl_hash) || uuid_send(s.state), '' ORDER BY s.acl_hash)), 'hex')
  FROM kosmos.acl_statistics s
 WHERE s.tenant_id = %(tenant_id)s AND (%(collection)s::text IS NULL OR s.collection = %(collection)s)
 GROUP BY s.collection

-- name: count_documents
SELECT count(*) FROM kosmos.documents d WHERE d.tenant_id = %(tenant_id)s

-- name: count_filtered_documents
SELECT count(*)
  FROM kosmos.documents d
 WHERE d.tenant_id = %(tenant_id)s
   AND (%(collection)s::text IS NULL OR d.collection = %(collection)s)
   AND (NOT %(filtered)s::boolean
        OR kosmos.matches_filter(ROW(d.*)::kosmos.documents, %(condition)s, %(condition_values)s::jsonb,
                                 %(sources)s::text[], %(folders)s::text[]))

-- name: chunks_by_folder
-- Groups by what tells a department: collection, metadata, folder of the source, and the reader's own principals.
SELECT d.collection, d.metadata -> %(key)s::text, coalesce(substring(d.source FROM '^(.*/)[^/]*$'), ''), o.held,
       sum(v.chunks)::bigint
  FROM kosmos.documents d
  JOIN kosmos.document_versions v
    ON v.tenant_id = d.tenant_id AND v.document_id = d.id AND v.number = d.version
 CROSS JOIN LATERAL (
       SELECT array_agg(DISTINCT u.name ORDER BY u.name) AS held
         FROM unnest(d.acl) AS u (name)
        WHERE u.name = ANY (kosmos.current_principals())
       OFFSET 0) o
 WHERE d.tenant_id = %(tenant_id)s AND v.tenant_id = %(tenant_id)s
 GROUP BY d.collection, d.metadata -> %(key)s::text, coalesce(substring(d.source FROM '^(.*/)[^/]*$'), ''), o.held

-- name: document_texts
SELECT d.source, v.text
  FROM kosmos.documents d
 CROSS JOIN LATERAL (
       SELECT n.text
         FROM kosmos.document_versions n
        WHERE n.tenant_id = %(tenant_id)s AND n.document_id = d.id AND n.number = d.version
       OFFSET 0) v
 WHERE d.tenant_id = %(tenant_id)s
   AND (%(collection)s::text IS NULL OR d.collection = %(collection)s)
 ORDER BY d.source, d.collection

-- name: newest_texts
-- The beginning of each text; characters and documents are limited.
SELECT d.collection, d.source, left(v.text, %(characters)s::integer)
  FROM kosmos.documents d
 CROSS JOIN LATERAL (
       SELECT n.text
         FROM kosmos.document_versions n
        WHERE n.tenant_id = %(tenant_id)s AND n.document_id = d.id AND n.number = d.version
       OFFSET 0) v
 WHERE d.tenant_id = %(tenant_id)s
 ORDER BY d.updated_at DESC, d.collection, d.source
 LIMIT %(limit)s

-- name: texts_of_documents
SELECT d.id, v.text
  FROM kosmos.documents d
 CROSS JOIN LATERAL (
       SELECT n.text
         FROM kosmos.document_versions n
        WHERE n.tenant_id = %(tenant_id)s AND n.document_id = d.id AND n.number = d.version
       OFFSET 0) v
 WHERE d.tenant_id = %(tenant_id)s AND d.id = ANY(%(document_ids)s)

-- name: lines_of_document
-- Returns lines, their pages, and the chunks that overlap them. The whole text stays on the server.
SELECT v.id, s.text, s.start, cardinality(l.lines),
       CASE WHEN cardinality(v.pages) > 0 THEN greatest(1, width_bucket(s.start, v.pages)) END,
       CASE WHEN cardinality(v.pages) > 0
            THEN greatest(1, width_bucket(s.start + greatest(length(s.text), 1) - 1, v.pages)) END,
       cardinality(v.pages),
       ARRAY(SELECT c.id
               FROM kosmos.chunks c
              WHERE c.tenant_id = %(tenant_id)s AND c.version_id = v.id
                AND c.line_start <= %(last)s AND c.line_end >= %(first)s
              ORDER BY c.chunk_index)
  FROM kosmos.documents d
 CROSS JOIN LATERAL (
       SELECT n.id, n.text, n.pages
         FROM kosmos.document_versions n
        WHERE n.tenant_id = %(tenant_id)s AND n.document_id = d.id AND n.number = d.version
       OFFSET 0) v
 CROSS JOIN LATERAL (SELECT string_to_array(v.text, E'\n') AS lines OFFSET 0) l
 CROSS JOIN LATERAL (
       SELECT array_to_string(l.lines[%(first)s : %(last)s], E'\n') AS text,
              CASE WHEN %(first)s > 1 THEN length(array_to_string(l.lines[: %(before)s], E'\n')) + 1 ELSE 0 END AS start
       OFFSET 0) s
 WHERE d.tenant_id = %(tenant_id)s AND d.id = %(document_id)s

-- name: boxes_of_document
-- Offsets are valid in one version only.
SELECT v.boxes
  FROM kosmos.documents d
 CROSS JOIN LATERAL (
       SELECT n.boxes
         FROM kosmos.document_versions n
        WHERE n.tenant_id = %(tenant_id)s AND n.document_id = d.id AND n.number = d.version
       OFFSET 0) v
 WHERE d.tenant_id = %(tenant_id)s AND d.id = %(document_id)s AND d.version = coalesce(%(version)s, d.version)
   AND (%(collection)s::text IS NULL OR d.collection = %(collection)s)

-- name: original_of_document
SELECT d.source, v.original
  FROM kosmos.documents d
 CROSS JOIN LATERAL (
       SELECT n.original
         FROM kosmos.document_versions n
        WHERE n.tenant_id = %(tenant_id)s AND n.document_id = d.id AND n.number = d.version
       OFFSET 0) v
 WHERE d.tenant_id = %(tenant_id)s AND d.id = %(document_id)s AND v.original IS NOT NULL
   AND (%(collection)s::text IS NULL OR d.collection = %(collection)s)

-- name: sections_of_document
-- Runs of consecutive chunks under the same headings, in the order of the document.
SELECT r.section, min(r.line_start), max(r.line_end)
  FROM (SELECT c.section, c.line_start, c.line_end, c.chunk_index,
               c.chunk_index - row_number() OVER (PARTITION BY c.section ORDER BY c.chunk_index) AS run
          FROM kosmos.documents d
          JOIN kosmos.document_versions v
            ON v.tenant_id = %(tenant_id)s AND v.document_id = d.id AND v.number = d.version
          JOIN kosmos.chunks c ON c.tenant_id = %(tenant_id)s AND c.version_id = v.id
         WHERE d.tenant_id = %(tenant_id)s AND d.id = %(document_id)s
           AND (%(collection)s::text IS NULL OR d.collection = %(collection)s)) r
 GROUP BY r.section, r.run
 ORDER BY min(r.chunk_index)

-- name: outline_of_document
-- The chunks are those of the current version.
SELECT d.acl,
       ARRAY(SELECT n.number
               FROM kosmos.document_versions n
              WHERE n.tenant_id = %(tenant_id)s AND n.document_id = d.id
              ORDER BY n.number),
       ARRAY(SELECT jsonb_build_object('start', c.start_offset, 'end', c.end_offset, 'line_start', c.line_start,
                                       'line_end', c.line_end, 'page', c.page_start, 'section', c.section,
                                       'chunker', c.chunker)
               FROM kosmos.document_versions v
               JOIN kosmos.chunks c ON c.tenant_id = %(tenant_id)s AND c.version_id = v.id
              WHERE v.tenant_id = %(tenant_id)s AND v.document_id = d.id AND v.number = d.version
              ORDER BY c.chunk_index)
  FROM kosmos.documents d
 WHERE d.tenant_id = %(tenant_id)s AND d.id = %(document_id)s
   AND (%(collection)s::text IS NULL OR d.collection = %(collection)s)

-- name: fingerprints
-- Fingerprints identify unchanged documents without a second parse.
SELECT v.document_id, v.fingerprint
  FROM kosmos.document_versions v
 WHERE v.tenant_id = %(tenant_id)s AND v.document_id = ANY (%(document_ids)s)

-- name: acl_of_documents
SELECT d.id, d.source, d.metadata, d.acl
  FROM kosmos.documents d
 WHERE d.tenant_id = %(tenant_id)s AND d.id = ANY (%(document_ids)s)

-- name: sources
SELECT d.source, d.id, d.file_id IS NOT NULL
  FROM kosmos.documents d
 WHERE d.tenant_id = %(tenant_id)s AND d.collection = %(collection)s
   AND (%(prefix)s::text IS NULL OR starts_with(d.source, %(prefix)s))
 ORDER BY d.source

-- name: parts_of_files
-- Stored parts of large files.
SELECT d.id, d.source, d.source_etag
  FROM kosmos.documents d
 WHERE d.tenant_id = %(tenant_id)s AND d.collection = %(collection)s AND d.file_id = ANY (%(file_ids)s::uuid[])

-- name: file_ids_of_documents
-- The id of its file for a part of one, null for other documents.
SELECT d.id, d.file_id
  FROM kosmos.documents d
 WHERE d.tenant_id = %(tenant_id)s AND d.id = ANY (%(document_ids)s)

-- name: source_etags
SELECT d.source, d.source_etag
  FROM kosmos.documents d
 WHERE d.tenant_id = %(tenant_id)s AND d.id = ANY (%(document_ids)s)

-- name: update_source_etags
UPDATE kosmos.documents d
   SET source_etag = u.source_etag
  FROM unnest(%(document_ids)s::uuid[], %(source_etags)s::text[]) AS u (id, source_etag)
 WHERE d.tenant_id = %(tenant_id)s AND d.collection = %(collection)s AND d.id = u.id
   AND d.source_etag IS DISTINCT FROM u.source_etag

-- name: update_metadata
-- Changes and removes keys; what has them already is left alone. The time that the source gave stays beside another one:
-- a permission feed compares it.
UPDATE kosmos.documents d
   SET metadata = (CASE WHEN %(has_time)s THEN jsonb_strip_nulls(
                                                 jsonb_build_object('kosmos:source_updated', d.metadata -> 'updated'))
                        ELSE '{}' END
                   || d.metadata || %(changes)s) - %(removed)s::text[]
 WHERE d.tenant_id = %(tenant_id)s AND d.collection = %(collection)s AND d.id = ANY (%(document_ids)s::uuid[])
   AND d.metadata <> (d.metadata || %(changes)s) - %(removed)s::text[]
RETURNING d.id, d.acl

-- name: lexemes_of_documents
-- Counts the lexemes of versions: they leave the statistics before their chunks are deleted.
SELECT n.acl, array_agg(n.lexeme), array_agg(n.chunks)
  FROM (SELECT c.acl, u.lexeme, count(*)::integer AS chunks
          FROM kosmos.chunks c, LATERAL unnest(c.tsv) u
         WHERE c.tenant_id = %(tenant_id)s AND c.version_id = ANY (%(version_ids)s)
         GROUP BY c.acl, u.lexeme) n
 GROUP BY n.acl

-- name: size_of_documents
SELECT c.acl, count(*), sum(c.length)::bigint
  FROM kosmos.chunks c
 WHERE c.tenant_id = %(tenant_id)s AND c.version_id = ANY (%(version_ids)s)
 GROUP BY c.acl

-- name: versions_of_documents
SELECT v.id, v.document_id, v.number, d.file_id
  FROM kosmos.document_versions v
  JOIN kosmos.documents d ON d.tenant_id = %(tenant_id)s AND d.tenant_id = v.tenant_id AND d.id = v.document_id
 WHERE v.tenant_id = %(tenant_id)s AND v.document_id = ANY (%(document_ids)s)

-- name: delete_documents
-- Foreign keys delete versions, chunks and vectors too.
DELETE FROM kosmos.documents d WHERE d.tenant_id = %(tenant_id)s AND d.id = ANY (%(document_ids)s)
RETURNING d.id

-- name: sample_chunks
-- Of each document at most one, and of the documents any: their ids are hashes.
SELECT DISTINCT ON (c.document_id) c.document_id, c.collection, c.acl, c.text
  FROM kosmos.chunks c
 WHERE c.tenant_id = %(tenant_id)s
 ORDER BY c.document_id, c.chunk_index
 LIMIT %(count)s
