-- name: create_preset
INSERT INTO kosmos.collection_presets (tenant_id, collection, name, content, created_at)
VALUES (%(tenant_id)s, %(collection)s, %(name)s, %(content)s, %(now)s)
ON CONFLICT (tenant_id, collection) DO NOTHING

-- name: preset_of_collection
SELECT p.name, p.content
  FROM kosmos.collection_presets p
 WHERE p.tenant_id = %(tenant_id)s AND p.collection = %(collection)s

-- name: share_preset
-- Held by a transaction that enqueues jobs: the preset is changed or deleted before it or after it.
SELECT p.name, p.content
  FROM kosmos.collection_presets p
 WHERE p.tenant_id = %(tenant_id)s AND p.collection = %(collection)s
   FOR SHARE

-- name: lock_preset
SELECT p.name, p.content
  FROM kosmos.collection_presets p
 WHERE p.tenant_id = %(tenant_id)s AND p.collection = %(collection)s
   FOR UPDATE

-- name: set_preset
INSERT INTO kosmos.collection_presets AS p (tenant_id, collection, name, content, created_at)
VALUES (%(tenant_id)s, %(collection)s, %(name)s, %(content)s, %(now)s)
ON CONFLICT (tenant_id, collection) DO UPDATE SET name = excluded.name, content = excluded.content

-- name: delete_preset
DELETE FROM kosmos.collection_presets WHERE tenant_id = %(tenant_id)s AND collection = %(collection)s

-- name: list_collections
-- Collections with a preset, created as a vector store, or with documents that this reader may read.
SELECT n.collection AS name, p.name AS preset, coalesce(s.chunks, 0) AS chunks,
       coalesce(p.created_at, v.created_at) AS created_at
  FROM (SELECT q.collection FROM kosmos.collection_presets q WHERE q.tenant_id = %(tenant_id)s
         UNION
        SELECT w.collection FROM kosmos.vector_stores w WHERE w.tenant_id = %(tenant_id)s
         UNION
        SELECT b.collection FROM kosmos.acl_statistics b WHERE b.tenant_id = %(tenant_id)s AND b.chunks > 0) n
  LEFT JOIN kosmos.collection_presets p ON p.tenant_id = %(tenant_id)s AND p.collection = n.collection
  LEFT JOIN kosmos.vector_stores v ON v.tenant_id = %(tenant_id)s AND v.collection = n.collection
  LEFT JOIN (SELECT c.collection, sum(c.chunks)::bigint AS chunks
               FROM kosmos.acl_statistics c
              WHERE c.tenant_id = %(tenant_id)s AND c.chunks > 0
              GROUP BY c.collection) s ON s.collection = n.collection
 ORDER BY 1

-- name: delete_vector_store
DELETE FROM kosmos.vector_stores s WHERE s.tenant_id = %(tenant_id)s AND s.collection = %(collection)s

-- name: detach_files_of_collection
DELETE FROM kosmos.vector_store_files a WHERE a.tenant_id = %(tenant_id)s AND a.collection = %(collection)s

-- name: delete_file_batches
DELETE FROM kosmos.file_batches b WHERE b.tenant_id = %(tenant_id)s AND b.collection = %(collection)s
