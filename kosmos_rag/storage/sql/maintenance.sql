-- name: orphans
-- Rows without an owner, and wrong counts. Foreign keys guarantee the rest.
SELECT 'documents without their version' AS what, count(*)
  FROM kosmos.documents d
 WHERE d.tenant_id = %(tenant_id)s
   AND NOT EXISTS (SELECT FROM kosmos.document_versions v
                    WHERE v.tenant_id = %(tenant_id)s AND v.document_id = d.id AND v.number = d.version)
UNION ALL
SELECT 'versions that are not live', count(*)
  FROM kosmos.document_versions v
 WHERE v.tenant_id = %(tenant_id)s
   AND NOT EXISTS (SELECT FROM kosmos.documents d
                    WHERE d.tenant_id = %(tenant_id)s AND d.id = v.document_id AND d.version = v.number)
UNION ALL
SELECT 'keywords of no chunk', count(*)
  FROM kosmos.unsegmented_terms t
 WHERE t.tenant_id = %(tenant_id)s
   AND NOT EXISTS (SELECT FROM kosmos.chunks c WHERE c.tenant_id = %(tenant_id)s AND c.id = t.chunk_id)
UNION ALL
SELECT 'chunks without a vector', count(*)
  FROM kosmos.chunks c
  JOIN kosmos.tenants o ON o.tenant_id = %(tenant_id)s
 WHERE c.tenant_id = %(tenant_id)s AND o.tenant_id = %(tenant_id)s
   AND NOT EXISTS (SELECT FROM kosmos.embeddings e
                    WHERE e.tenant_id = %(tenant_id)s AND e.chunk_id = c.id AND e.space_id = o.live_space_id)
UNION ALL
SELECT 'collections counted wrongly', count(*)
  FROM kosmos.collection_statistics s
  LEFT JOIN (SELECT c.collection, count(*) AS chunks, sum(c.length) AS length
               FROM kosmos.chunks c WHERE c.tenant_id = %(tenant_id)s GROUP BY c.collection) n
    ON n.collection = s.collection
 WHERE s.tenant_id = %(tenant_id)s
   AND (s.chunks, s.length) IS DISTINCT FROM (coalesce(n.chunks, 0), coalesce(n.length, 0))
UNION ALL
SELECT 'readers counted wrongly', count(*)
  FROM (SELECT s.collection, s.acl, s.chunks, s.length
          FROM kosmos.acl_statistics s WHERE s.tenant_id = %(tenant_id)s) s
  FULL JOIN (SELECT c.collection, c.acl, count(*) AS chunks, sum(c.length) AS length
               FROM kosmos.chunks c WHERE c.tenant_id = %(tenant_id)s GROUP BY c.collection, c.acl) n
    ON n.collection = s.collection AND n.acl = s.acl
 WHERE (coalesce(s.chunks, 0), coalesce(s.length, 0)) IS DISTINCT FROM (coalesce(n.chunks, 0), coalesce(n.length, 0))
