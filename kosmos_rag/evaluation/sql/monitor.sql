-- name: insert_monitor_sample
-- The id is one of a bounded number of slots: while a sample waits in a slot, others for it are dropped.
INSERT INTO kosmos.monitor_samples (tenant_id, id, at, space_id, collection, principals, vector, question)
VALUES (%(tenant_id)s, %(id)s, %(at)s, %(space_id)s, %(collection)s, %(principals)s, %(vector)s, %(question)s)
ON CONFLICT DO NOTHING

-- name: monitor_samples
-- Ids are hashes: the first ones are a random selection.
SELECT s.id, s.collection, s.principals, s.vector
  FROM kosmos.monitor_samples s
 WHERE s.tenant_id = %(tenant_id)s AND s.space_id = %(space_id)s
 ORDER BY s.id
 LIMIT %(limit)s

-- name: delete_monitor_samples
-- Measured samples, old samples, and samples of another space.
DELETE FROM kosmos.monitor_samples s
 WHERE s.tenant_id = %(tenant_id)s
   AND (s.id = ANY (%(ids)s::uuid[]) OR s.at < %(before)s OR s.space_id <> %(space_id)s)

-- name: insert_monitor_run
INSERT INTO kosmos.monitor_runs (tenant_id, id, at, kind, state, reason, index_id, figures, scores, milliseconds)
VALUES (%(tenant_id)s, %(id)s, %(at)s, %(kind)s, %(state)s, %(reason)s, %(index_id)s, %(figures)s, %(scores)s,
        %(milliseconds)s)

-- name: list_monitor_runs
SELECT r.id, r.at, r.kind, r.state, r.reason, r.index_id, r.figures, r.milliseconds
  FROM kosmos.monitor_runs r
 WHERE r.tenant_id = %(tenant_id)s AND (%(kind)s::text IS NULL OR r.kind = %(kind)s)
   AND (%(with_unknown)s OR r.state <> 'unknown')
 ORDER BY r.at DESC, r.id
 LIMIT %(limit)s

-- name: monitor_baseline
-- The scores of the first run with enough samples since an index was built or tuned.
SELECT r.scores
  FROM kosmos.monitor_runs r
 WHERE r.tenant_id = %(tenant_id)s AND r.kind = 'recall' AND r.index_id = %(index_id)s AND r.at >= %(at)s
   AND r.state <> 'unknown'
 ORDER BY r.at, r.id
 LIMIT 1

-- name: prune_monitor_runs
DELETE FROM kosmos.monitor_runs r WHERE r.tenant_id = %(tenant_id)s AND r.at < %(before)s

-- name: count_vector_indexes
-- Of all tenants: they share the monitor's part of the database load.
SELECT count(*)
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'kosmos' AND c.relkind = 'i' AND starts_with(c.relname, 'vec_')
