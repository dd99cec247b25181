-- Claims queued jobs for a worker. Planning takes longer than claiming, so the function keeps its plan, whatever the
-- values are. For a table of one page any plan is good, and a backlog may come at any moment: one call in a hundred
-- makes the plan anew. The index of running jobs is full of finished ones until it is vacuumed: a plain scan marks them
-- once and skips them, a bitmap scan visits all their rows each time. If the server crashes before a claim is on disk,
-- the server does not know the token, and the lease check refuses it: no caller has to wait for the disk.
--
-- Round robin by construction: tenants with the fewest running jobs come first, and equals come in random order, so no
-- backlog of one tenant, however long, delays another by more than a round. Each tenant gets its share of the batch. A
-- job whose worker was lost is claimed alone: if it takes the next worker down too, no other job is blamed.
CREATE OR REPLACE FUNCTION kosmos.claim_jobs(max_jobs integer, kinds text[], worker_name text, lease_s double precision)
    RETURNS TABLE(tenant_id uuid, id uuid, tenant text, collection text, kind text, key text, payload jsonb, token uuid,
                  attempt integer, lost integer, sync_run_ids uuid[], waited_s double precision)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
AS $function$
#variable_conflict use_column
BEGIN
    IF random() < 0.01 THEN
        DISCARD PLANS;
    END IF;
    SET LOCAL synchronous_commit TO OFF;
    RETURN QUERY
    WITH RECURSIVE queued_tenants AS (
        (SELECT j.tenant_id FROM kosmos.jobs j WHERE j.state = 'queued' ORDER BY j.tenant_id LIMIT 1)
        UNION ALL
        SELECT (SELECT j.tenant_id FROM kosmos.jobs j
                 WHERE j.state = 'queued' AND j.tenant_id > q.tenant_id
                 ORDER BY j.tenant_id LIMIT 1)
          FROM queued_tenants q
         WHERE q.tenant_id IS NOT NULL
    ), running AS (
        SELECT r.tenant_id, count(*) AS jobs FROM kosmos.jobs r WHERE r.state = 'running' GROUP BY r.tenant_id
    ), shares AS (
        SELECT q.tenant_id, k.kind, greatest(1, max_jobs / count(*) OVER ()) AS share
          FROM queued_tenants q
         CROSS JOIN unnest(kinds) AS k (kind)
          LEFT JOIN running r ON r.tenant_id = q.tenant_id
         WHERE q.tenant_id IS NOT NULL
           AND EXISTS (SELECT FROM kosmos.jobs j
                        WHERE j.tenant_id = q.tenant_id AND j.kind = k.kind AND j.state = 'queued' OFFSET 0)
         ORDER BY coalesce(r.jobs, 0), random()
    ), candidates AS MATERIALIZED (
        SELECT c.tenant_id, c.id, c.lost
          FROM shares s
         CROSS JOIN LATERAL (
               SELECT j.tenant_id, j.id, j.lost
                 FROM kosmos.jobs j
                WHERE j.tenant_id = s.tenant_id AND j.kind = s.kind AND j.state = 'queued'
                ORDER BY j.priority DESC, j.id
                LIMIT s.share
                  FOR UPDATE SKIP LOCKED) c
         LIMIT max_jobs
    ), claimed AS (
        SELECT n.tenant_id, n.id
          FROM (SELECT c.tenant_id, c.id, row_number() OVER (ROWS UNBOUNDED PRECEDING) AS number,
                       bool_or(c.lost > 0) OVER (ROWS UNBOUNDED PRECEDING) AS suspect
                  FROM candidates c) n
         WHERE n.number = 1 OR NOT n.suspect
    )
    UPDATE kosmos.jobs j
       SET state = 'running', token = gen_random_uuid(),
           lease_until = now() + make_interval(secs => claim_jobs.lease_s), attempt = j.attempt + 1,
           worker = worker_name, started_at = now(), finished_at = NULL
      FROM claimed c
     WHERE j.tenant_id = c.tenant_id AND j.id = c.id
    RETURNING j.tenant_id, j.id, j.tenant, j.collection, j.kind, j.key, j.payload, j.token, j.attempt, j.lost,
              j.sync_run_ids, extract(epoch FROM now() - j.run_at)::double precision;
END
$function$
