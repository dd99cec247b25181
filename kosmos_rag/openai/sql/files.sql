-- name: insert_file
INSERT INTO kosmos.files (tenant_id, id, filename, bytes, purpose, readers, acl, created_at)
VALUES (%(tenant_id)s, %(file_id)s, %(filename)s, %(bytes)s, %(purpose)s, %(readers)s, %(acl)s, %(now)s)

-- name: list_files
SELECT f.id, f.filename, f.bytes, f.purpose, f.readers, f.created_at
  FROM kosmos.files f
 WHERE f.tenant_id = %(tenant_id)s
   AND (%(ids)s::uuid[] IS NULL OR f.id = ANY (%(ids)s))
   AND (%(purpose)s::text IS NULL OR f.purpose = %(purpose)s)
   AND (%(position)s::timestamptz IS NULL
        OR CASE WHEN %(descending)s THEN (f.created_at, f.id) < (%(position)s::timestamptz, %(position_id)s::uuid)
                ELSE (f.created_at, f.id) > (%(position)s::timestamptz, %(position_id)s::uuid) END)
 ORDER BY CASE WHEN %(descending)s THEN f.created_at END DESC, CASE WHEN %(descending)s THEN f.id END DESC,
          f.created_at, f.id
 LIMIT %(limit)s

-- name: lock_file
-- Held by a transaction that attaches the file: it is deleted before it or after it.
SELECT f.id FROM kosmos.files f WHERE f.tenant_id = %(tenant_id)s AND f.id = ANY (%(file_ids)s) FOR SHARE

-- name: delete_files
DELETE FROM kosmos.files f WHERE f.tenant_id = %(tenant_id)s AND f.id = ANY (%(file_ids)s)

-- name: insert_vector_store
INSERT INTO kosmos.vector_stores (tenant_id, collection, name, description, metadata, created_at)
VALUES (%(tenant_id)s, %(collection)s, %(name)s, %(description)s, %(metadata)s, %(now)s)
ON CONFLICT (tenant_id, collection) DO UPDATE
   SET name = excluded.name, description = excluded.description, metadata = excluded.metadata

-- name: list_vector_stores
-- Collections with a row, a preset, or documents that this reader may read.
WITH readable AS (
    SELECT d.collection, count(*) AS documents, sum(n.bytes)::bigint AS bytes, min(d.created_at) AS created_at
      FROM kosmos.documents d
      JOIN kosmos.document_versions n
        ON n.tenant_id = %(tenant_id)s AND n.document_id = d.id AND n.number = d.version
     WHERE d.tenant_id = %(tenant_id)s AND (%(ids)s::text[] IS NULL OR d.collection = ANY (%(ids)s))
     GROUP BY d.collection
), stored AS (
    SELECT s.collection, s.name, s.description, s.metadata, s.created_at
      FROM kosmos.vector_stores s
     WHERE s.tenant_id = %(tenant_id)s AND (%(ids)s::text[] IS NULL OR s.collection = ANY (%(ids)s))
), presets AS (
    SELECT p.collection, p.created_at
      FROM kosmos.collection_presets p
     WHERE p.tenant_id = %(tenant_id)s AND (%(ids)s::text[] IS NULL OR p.collection = ANY (%(ids)s))
), stores AS (
    SELECT c.collection, coalesce(s.name, c.collection) AS name, s.description, coalesce(s.metadata, '{}') AS metadata,
           coalesce(s.created_at, p.created_at, r.created_at) AS created_at, coalesce(r.bytes, 0) AS bytes,
           coalesce(r.documents, 0) AS documents
      FROM (SELECT collection FROM readable UNION SELECT collection FROM stored
            UNION SELECT collection FROM presets) c
      LEFT JOIN stored s ON s.collection = c.collection
      LEFT JOIN presets p ON p.collection = c.collection
      LEFT JOIN readable r ON r.collection = c.collection
)
SELECT t.collection, t.name, t.description, t.metadata, t.created_at, t.bytes, t.documents
  FROM stores t
 WHERE (%(position)s::timestamptz IS NULL
        OR CASE WHEN %(descending)s THEN (t.created_at, t.collection) < (%(position)s::timestamptz, %(position_id)s::text)
                ELSE (t.created_at, t.collection) > (%(position)s::timestamptz, %(position_id)s::text) END)
 ORDER BY CASE WHEN %(descending)s THEN t.created_at END DESC, CASE WHEN %(descending)s THEN t.collection END DESC,
          t.created_at, t.collection
 LIMIT %(limit)s

-- name: attach_file
-- Attached again, a file keeps its place in the list and gets the new job.
INSERT INTO kosmos.vector_store_files (tenant_id, collection, file_id, document_id, job_id, created_at)
VALUES (%(tenant_id)s, %(collection)s, %(file_id)s, %(document_id)s, %(job_id)s, %(now)s)
ON CONFLICT (tenant_id, collection, file_id) DO UPDATE SET job_id = excluded.job_id

-- name: attachments
-- Of a file in all collections, or of files of one collection.
SELECT a.collection, a.job_id
  FROM kosmos.vector_store_files a
 WHERE a.tenant_id = %(tenant_id)s AND a.file_id = ANY (%(file_ids)s)
   AND (%(collection)s::text IS NULL OR a.collection = %(collection)s)

-- name: detach_files
DELETE FROM kosmos.vector_store_files a
 WHERE a.tenant_id = %(tenant_id)s AND a.collection = %(collection)s AND a.file_id = ANY (%(file_ids)s)

-- name: unfinished_file_jobs
-- Of some jobs, or all. Clients ask for one file twice a second while many wait.
SELECT j.id
  FROM kosmos.jobs j
 WHERE j.tenant_id = %(tenant_id)s AND j.collection = ANY (%(collections)s) AND j.payload ? 'file'
   AND j.state IN ('scheduled', 'queued', 'running') AND (%(job_ids)s::uuid[] IS NULL OR j.id = ANY (%(job_ids)s))

-- name: pending_attachments
-- Attached files that this reader sees, without a document that it may read, or with an unfinished job.
SELECT a.collection, a.document_id, a.job_id, d.id IS NOT NULL AS replaces
  FROM kosmos.vector_store_files a
  JOIN kosmos.files f ON f.tenant_id = %(tenant_id)s AND f.id = a.file_id
  LEFT JOIN kosmos.documents d ON d.tenant_id = %(tenant_id)s AND d.id = a.document_id
 WHERE a.tenant_id = %(tenant_id)s AND a.collection = ANY (%(collections)s)
   AND (%(ids)s::uuid[] IS NULL OR a.file_id = ANY (%(ids)s))
   AND (d.id IS NULL OR a.job_id = ANY (%(unfinished)s::uuid[]))

-- name: file_job_states
SELECT j.id, j.state FROM kosmos.jobs j WHERE j.tenant_id = %(tenant_id)s AND j.id = ANY (%(job_ids)s::uuid[])

-- name: list_file_ids
-- A page of what `list_vector_store_files` may list: readable documents, and attached files that this reader sees.
SELECT e.created_at, e.id
  FROM (SELECT coalesce(a.created_at, d.created_at) AS created_at, coalesce(a.file_id, d.id) AS id
          FROM kosmos.documents d
          LEFT JOIN kosmos.vector_store_files a
            ON a.tenant_id = %(tenant_id)s AND a.document_id = d.id AND a.collection = d.collection
         WHERE d.tenant_id = %(tenant_id)s AND d.collection = %(collection)s
         UNION ALL
        SELECT a.created_at, a.file_id
          FROM kosmos.vector_store_files a
          JOIN kosmos.files f ON f.tenant_id = %(tenant_id)s AND f.id = a.file_id
         WHERE a.tenant_id = %(tenant_id)s AND a.collection = %(collection)s
           AND NOT EXISTS (SELECT FROM kosmos.documents d WHERE d.tenant_id = %(tenant_id)s AND d.id = a.document_id)) e
 WHERE (%(position)s::timestamptz IS NULL
        OR CASE WHEN %(descending)s THEN (e.created_at, e.id) < (%(position)s::timestamptz, %(position_id)s::uuid)
                ELSE (e.created_at, e.id) > (%(position)s::timestamptz, %(position_id)s::uuid) END)
 ORDER BY CASE WHEN %(descending)s THEN e.created_at END DESC, CASE WHEN %(descending)s THEN e.id END DESC,
          e.created_at, e.id
 LIMIT %(limit)s

-- name: existing_documents
-- Readable or not.
SELECT d.id FROM kosmos.documents d WHERE d.tenant_id = %(tenant_id)s AND d.id = ANY (%(document_ids)s)

-- name: list_vector_store_files
-- Documents of a collection that this reader may read, and attached files that it sees without one. `pending` has the
-- states of jobs, which a statement cannot join.
WITH pending AS (
    SELECT u.document_id, u.source, u.state, u.code, u.message, u.attributes
      FROM unnest(%(pending_ids)s::uuid[], %(sources)s::text[], %(states)s::text[], %(codes)s::text[],
                  %(messages)s::text[], %(attributes)s::jsonb[])
        AS u (document_id, source, state, code, message, attributes)
), entries AS (
    SELECT coalesce(a.file_id, d.id) AS id, d.id AS document_id, d.source, d.version,
           coalesce(p.attributes, d.metadata - 'kosmos:source_updated') AS attributes, NULL::bigint AS bytes,
           coalesce(p.state, 'completed') AS status, p.code, p.message,
           coalesce(a.created_at, d.created_at) AS created_at
      FROM kosmos.documents d
      LEFT JOIN kosmos.vector_store_files a
        ON a.tenant_id = %(tenant_id)s AND a.document_id = d.id AND a.collection = d.collection
      LEFT JOIN pending p ON p.document_id = d.id
     WHERE d.tenant_id = %(tenant_id)s AND d.collection = %(collection)s
       -- Ids are of files, or of documents without one.
       AND (%(ids)s::uuid[] IS NULL
            OR d.id = ANY (%(ids)s || ARRAY(SELECT b.document_id
                                              FROM kosmos.vector_store_files b
                                             WHERE b.tenant_id = %(tenant_id)s AND b.file_id = ANY (%(ids)s))))
     UNION ALL
    SELECT a.file_id, a.document_id, p.source, NULL, p.attributes, f.bytes, p.state, p.code, p.message, a.created_at
      FROM kosmos.vector_store_files a
      JOIN pending p ON p.document_id = a.document_id
      JOIN kosmos.files f ON f.tenant_id = %(tenant_id)s AND f.id = a.file_id
     WHERE a.tenant_id = %(tenant_id)s AND a.collection = %(collection)s
       AND (%(ids)s::uuid[] IS NULL OR a.file_id = ANY (%(ids)s))
       AND NOT EXISTS (SELECT FROM kosmos.documents d WHERE d.tenant_id = %(tenant_id)s AND d.id = a.document_id)
), page AS (
    SELECT e.id, e.document_id, e.source, e.version, e.attributes, e.bytes, e.status, e.code, e.message, e.created_at
      FROM entries e
     WHERE (%(ids)s::uuid[] IS NULL OR e.id = ANY (%(ids)s))
       AND (%(status)s::text IS NULL OR e.status = %(status)s)
       AND (%(position)s::timestamptz IS NULL
            OR CASE WHEN %(descending)s THEN (e.created_at, e.id) < (%(position)s::timestamptz, %(position_id)s::uuid)
                    ELSE (e.created_at, e.id) > (%(position)s::timestamptz, %(position_id)s::uuid) END)
     ORDER BY CASE WHEN %(descending)s THEN e.created_at END DESC, CASE WHEN %(descending)s THEN e.id END DESC,
              e.created_at, e.id
     LIMIT %(limit)s
)
SELECT e.id, e.document_id, e.source, e.attributes, coalesce(e.bytes, n.bytes) AS bytes, e.status, e.code, e.message,
       e.created_at
  FROM page e
  LEFT JOIN kosmos.document_versions n
    ON n.tenant_id = %(tenant_id)s AND n.document_id = e.document_id AND n.number = e.version
 ORDER BY CASE WHEN %(descending)s THEN e.created_at END DESC, CASE WHEN %(descending)s THEN e.id END DESC,
          e.created_at, e.id

-- name: insert_file_batch
INSERT INTO kosmos.file_batches (tenant_id, id, collection, file_ids, created_at)
VALUES (%(tenant_id)s, %(batch_id)s, %(collection)s, %(file_ids)s, %(now)s)

-- name: file_batch
SELECT b.file_ids, b.created_at
  FROM kosmos.file_batches b
 WHERE b.tenant_id = %(tenant_id)s AND b.id = %(batch_id)s AND b.collection = %(collection)s

-- name: vector_store_exists
-- As `list_vector_stores` finds it, without counting documents.
SELECT EXISTS (SELECT FROM kosmos.vector_stores s WHERE s.tenant_id = %(tenant_id)s AND s.collection = %(collection)s)
       OR EXISTS (SELECT FROM kosmos.collection_presets p
                   WHERE p.tenant_id = %(tenant_id)s AND p.collection = %(collection)s)
       OR EXISTS (SELECT FROM kosmos.documents d WHERE d.tenant_id = %(tenant_id)s AND d.collection = %(collection)s)
