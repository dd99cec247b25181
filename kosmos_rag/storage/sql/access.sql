-- name: create_api_key
INSERT INTO kosmos.api_keys (tenant_id, id, name, scopes, principals, secret_sha256, created_at, expires_at,
                             default_collection)
VALUES (%(tenant_id)s, %(id)s, %(name)s, %(scopes)s, %(principals)s, %(secret_sha256)s, %(now)s, %(expires_at)s,
        %(default_collection)s)

-- name: list_api_keys
SELECT k.id, k.name, k.scopes, k.principals, k.created_at, k.expires_at, k.revoked_at, k.default_collection
  FROM kosmos.api_keys k
 WHERE k.tenant_id = %(tenant_id)s
 ORDER BY k.created_at, k.id

-- name: valid_api_key
SELECT k.name, k.scopes, k.principals, k.secret_sha256, k.default_collection
  FROM kosmos.api_keys k
 WHERE k.tenant_id = %(tenant_id)s AND k.id = %(id)s
   AND (k.revoked_at IS NULL OR k.revoked_at > %(now)s) AND (k.expires_at IS NULL OR k.expires_at > %(now)s)

-- name: revoke_api_key
-- Revokes a key now or later. A key that ends earlier is unchanged.
UPDATE kosmos.api_keys k
   SET revoked_at = %(ends_at)s
 WHERE k.tenant_id = %(tenant_id)s AND k.id = %(id)s
   AND (k.revoked_at IS NULL OR k.revoked_at > %(ends_at)s) AND (k.expires_at IS NULL OR k.expires_at > %(now)s)
RETURNING k.name, k.scopes, k.principals, k.created_at, k.expires_at, k.default_collection

-- name: delete_expired_idempotency_keys
DELETE FROM kosmos.idempotency_keys u WHERE u.tenant_id = %(tenant_id)s AND u.created_at < %(before)s

-- name: claim_idempotency_key
-- Of two concurrent requests the second waits here for the first, and then finds its job.
INSERT INTO kosmos.idempotency_keys (tenant_id, key, request_sha256, created_at)
VALUES (%(tenant_id)s, %(key)s, %(request_sha256)s, %(now)s)
ON CONFLICT (tenant_id, key) DO NOTHING
RETURNING key

-- name: idempotency_key
SELECT u.request_sha256, u.job_id
  FROM kosmos.idempotency_keys u
 WHERE u.tenant_id = %(tenant_id)s AND u.key = %(key)s

-- name: set_idempotency_key_job
UPDATE kosmos.idempotency_keys u SET job_id = %(job_id)s WHERE u.tenant_id = %(tenant_id)s AND u.key = %(key)s

-- name: readable_documents
-- Row-level security chooses the documents; of their principals, those that the reader holds.
SELECT d.id, d.source, d.collection, kosmos.visible_principals(d.acl) AS principals
  FROM kosmos.documents d
 WHERE d.tenant_id = %(tenant_id)s
   AND (%(ids)s::uuid[] IS NULL OR d.id = ANY (%(ids)s))
   AND (%(after_source)s::text IS NULL
        OR (d.source, d.collection) > (%(after_source)s::text, %(after_collection)s::text))
 ORDER BY d.source, d.collection
 LIMIT %(limit)s

-- name: access_of_documents
SELECT d.id, d.source, d.collection, d.title, d.acl, d.metadata, p.feed
  FROM kosmos.documents d
  LEFT JOIN kosmos.document_permissions p
    ON p.tenant_id = %(tenant_id)s AND p.tenant_id = d.tenant_id AND p.document_id = d.id
 WHERE d.tenant_id = %(tenant_id)s AND d.id = ANY (%(ids)s)

-- name: matching_documents
SELECT d.id
  FROM kosmos.documents d
 WHERE d.tenant_id = %(tenant_id)s AND d.id = ANY (%(ids)s)
   AND kosmos.matches_filter(ROW(d.*)::kosmos.documents, %(condition)s, %(condition_values)s::jsonb,
                             %(sources)s::text[], %(folders)s::text[])
