-- name: set_tenant_context
-- First in every transaction, after BEGIN: sets tenant and principals for row-level security until the transaction ends.
SELECT kosmos.set_tenant_context(%(tenant_id)s, %(principals)s::text[])

-- name: vector_types
-- The types of pgvector, as psycopg registers them: the arguments of TypeInfo.
SELECT t.typname::text, t.oid, t.typarray, t.oid::regtype::text, t.typdelim::text
  FROM pg_catalog.pg_type t
 WHERE t.oid IN (to_regtype('halfvec'), to_regtype('sparsevec'))

-- name: begin_read
-- First in a transaction in a pipeline, read-only: a document published between the two rounds of a search changes
-- nothing in it. It travels with the statements after it.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY

-- name: commit
-- Last in a transaction in a pipeline: it travels with the statements before it.
COMMIT

-- name: create_tenant
INSERT INTO kosmos.tenants (tenant_id, name, created_at)
VALUES (%(tenant_id)s, %(name)s, %(now)s)
ON CONFLICT (tenant_id) DO NOTHING

-- name: create_collection_statistics
INSERT INTO kosmos.collection_statistics (tenant_id, collection, chunks, length, next_lexeme_id, next_sequence, epoch,
                                          state)
VALUES (%(tenant_id)s, %(collection)s, 0, 0, 1, 1, 0, %(state)s)
ON CONFLICT (tenant_id, collection) DO NOTHING

-- name: live_space
SELECT s.id, s.model, s.dimensions, s.normalized, s.probe::text AS probe, s.query_prefix, s.passage_prefix
  FROM kosmos.tenants t
  JOIN kosmos.embedding_spaces s ON s.tenant_id = t.tenant_id AND s.id = t.live_space_id
 WHERE t.tenant_id = %(tenant_id)s AND s.tenant_id = %(tenant_id)s

-- name: create_space
INSERT INTO kosmos.embedding_spaces (tenant_id, id, model, dimensions, normalized, probe, created_at, state,
                                     truncated_tokens, query_prefix, passage_prefix)
VALUES (%(tenant_id)s, %(space_id)s, %(model)s, %(dimensions)s, %(normalized)s, %(probe)s, %(now)s, %(state)s, 0,
        %(query_prefix)s, %(passage_prefix)s)
ON CONFLICT (tenant_id, id) DO NOTHING

-- name: make_space_live
-- Only if no space is live: a cutover replaces a live space, never a concurrent first ingestion.
UPDATE kosmos.tenants SET live_space_id = %(space_id)s
 WHERE tenant_id = %(tenant_id)s AND live_space_id IS NULL
