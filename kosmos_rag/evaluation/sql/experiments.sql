-- name: start_experiment
-- Returns no row if the name exists, or an experiment for the same searches is running.
INSERT INTO kosmos.experiments (tenant_id, id, name, collection, mode, share, content, started_at)
VALUES (%(tenant_id)s, %(id)s, %(name)s, %(collection)s, %(mode)s, %(share)s, %(content)s, %(now)s)
ON CONFLICT DO NOTHING
RETURNING id

-- name: stop_experiment
UPDATE kosmos.experiments SET stopped_at = %(now)s
 WHERE tenant_id = %(tenant_id)s AND name = %(name)s AND stopped_at IS NULL

-- name: list_experiments
-- Running experiments first, then the newest.
SELECT x.id, x.name, x.collection, x.mode, x.share, x.content, x.started_at, x.stopped_at
  FROM kosmos.experiments x
 WHERE x.tenant_id = %(tenant_id)s
 ORDER BY x.stopped_at IS NULL DESC, x.started_at DESC, x.id

-- name: insert_experiment_result
-- Inserts nothing if the experiment was stopped meanwhile.
INSERT INTO kosmos.experiment_results (tenant_id, experiment_id, id, at, retrieval_id, arm, requested, control_ms,
                                       treatment_ms, control_hits, treatment_hits, overlap, rbo, degraded, error)
SELECT x.tenant_id, x.id, %(id)s::uuid, %(at)s::timestamptz, %(retrieval_id)s::uuid, %(arm)s::text,
       %(requested)s::integer, %(control_ms)s::float8, %(treatment_ms)s::float8, %(control_hits)s::integer,
       %(treatment_hits)s::integer, %(overlap)s::float8, %(rbo)s::float8, %(degraded)s::boolean, %(error)s::text
  FROM kosmos.experiments x
 WHERE x.tenant_id = %(tenant_id)s AND x.id = %(experiment_id)s AND x.stopped_at IS NULL

-- name: results_of_experiment
-- Newest results with their feedback; feedback needs the audit log. The columns are the fields of Rated.
SELECT r.at, r.arm, r.requested, r.control_ms, r.treatment_ms, r.control_hits, r.treatment_hits, r.overlap, r.rbo,
       r.degraded, r.error,
       coalesce(o.up, 0) AS up, coalesce(o.down, 0) AS down, coalesce(o.clicks, 0) AS clicks
  FROM kosmos.experiment_results r
  LEFT JOIN (SELECT f.retrieval_id,
                    count(*) FILTER (WHERE f.rating = 'up') AS up,
                    count(*) FILTER (WHERE f.rating = 'down') AS down,
                    count(*) FILTER (WHERE f.rating = 'click') AS clicks
               FROM kosmos.feedback f
              WHERE f.tenant_id = %(tenant_id)s AND f.retrieval_id IS NOT NULL
              GROUP BY f.retrieval_id) o ON o.retrieval_id = r.retrieval_id
 WHERE r.tenant_id = %(tenant_id)s AND r.experiment_id = %(experiment_id)s
 ORDER BY r.at DESC, r.id
 LIMIT %(limit)s

-- name: prune_experiment_results
DELETE FROM kosmos.experiment_results r
 WHERE r.tenant_id = %(tenant_id)s AND r.at < %(before)s

-- name: prune_experiments
-- Foreign keys delete the results too.
DELETE FROM kosmos.experiments x
 WHERE x.tenant_id = %(tenant_id)s AND x.stopped_at < %(before)s
