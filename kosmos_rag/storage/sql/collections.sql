-- name: create_preset
INSERT INTO kosmos.presets (tenant_id, collection, name, content, created_at)
VALUES (%(tenant_id)s, %(collection)s, %(name)s, %(content)s, %(now)s)
ON CONFLICT (tenant_id, collection) DO NOTHING

-- name: preset_of_collection
SELECT p.name, p.content
  FROM kosmos.presets p
 WHERE p.tenant_id = %(tenant_id)s AND p.collection = %(collection)s

-- name: delete_preset
DELETE FROM kosmos.presets WHERE tenant_id = %(tenant_id)s AND collection = %(collection)s

-- name: list_collections
-- Those with a preset, with documents, or both. A collection whose documents are gone leaves nothing to list.
SELECT names.collection, p.name, coalesce(s.chunks, 0), p.created_at
  FROM (SELECT c.collection FROM kosmos.corpus_statistics c WHERE c.tenant_id = %(tenant_id)s AND c.chunks > 0
        UNION
        SELECT q.collection FROM kosmos.presets q WHERE q.tenant_id = %(tenant_id)s) names
  LEFT JOIN kosmos.presets p ON p.tenant_id = %(tenant_id)s AND p.collection = names.collection
  LEFT JOIN kosmos.corpus_statistics s ON s.tenant_id = %(tenant_id)s AND s.collection = names.collection
 ORDER BY names.collection
