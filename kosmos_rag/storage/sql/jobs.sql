-- name: replace_dead_jobs
-- Newer work on a key replaces a dead job: a retry would overwrite the newer result with the older one. So does the
-- deletion of its document, or of its collection; what that has cancelled, for the reason that is kept, stays.
DELETE FROM kosmos.jobs j
 WHERE j.tenant_id = %(tenant_id)s AND (j.key = ANY (%(keys)s::text[]) OR j.collection = %(collection)s
                                        AND j.kind <> ALL (%(kept)s::text[]))
   AND j.state IN ('dead', 'cancelled') AND (j.state = 'dead' OR %(kept_reason)s::text IS NULL OR j.error <> %(kept_reason)s)

-- name: permanently_failed_jobs
-- Jobs that failed permanently on the same content, for a reason that a retry does not remove.
SELECT j.key, j.code, j.error
  FROM kosmos.jobs j
 WHERE j.tenant_id = %(tenant_id)s AND j.key = ANY (%(keys)s) AND j.state = 'dead'
   AND j.payload ->> 'source_etag' = (%(source_etags)s::jsonb) ->> j.key AND NOT j.code = ANY (%(retryable)s)

-- name: enqueue_periodic
-- One job of each kind for a tenant. A periodic job reschedules itself, so no conflict is resolved here.
INSERT INTO kosmos.jobs (tenant_id, id, tenant, collection, kind, key, payload, state, priority, run_at, every_s,
                         attempt, lost, requeue, sync_run_ids, created_at)
SELECT %(tenant_id)s, kosmos.new_job_id(), %(tenant)s, %(collection)s, u.kind, u.kind, '{}', 'scheduled', 0,
       now() + make_interval(secs => u.every_s), u.every_s, 0, 0, false, '{}', now()
  FROM unnest(%(kinds)s::text[], %(every_s)s::double precision[]) AS u (kind, every_s)
 ORDER BY u.kind
ON CONFLICT (tenant_id, key) WHERE state IN ('scheduled', 'queued', 'running') DO NOTHING

-- name: enqueue_jobs
-- All times are of the server: workers' clocks may differ. A key has one unfinished job: a waiting job takes the newer
-- payload, a running one is queued again afterwards. The order of the keys prevents deadlocks between two sessions.
INSERT INTO kosmos.jobs AS j (tenant_id, id, tenant, collection, kind, key, payload, state, priority, run_at, every_s,
                              attempt, lost, requeue, sync_run_ids, created_at)
SELECT %(tenant_id)s, kosmos.new_job_id(), %(tenant)s, %(collection)s, %(kind)s, u.key, u.payload,
       CASE WHEN %(delay_s)s > 0 THEN 'scheduled' ELSE 'queued' END, %(priority)s,
       now() + make_interval(secs => %(delay_s)s), %(every_s)s, 0, 0, false, %(sync_run_ids)s::uuid[], now()
  FROM unnest(%(keys)s::text[], %(payloads)s::jsonb[]) AS u (key, payload)
 ORDER BY u.key
ON CONFLICT (tenant_id, key) WHERE state IN ('scheduled', 'queued', 'running') DO UPDATE
   SET payload = excluded.payload,
       state = CASE WHEN j.state = 'scheduled' AND excluded.state = 'queued' THEN 'queued' ELSE j.state END,
       priority = greatest(j.priority, excluded.priority),
       run_at = CASE WHEN j.state = 'scheduled' THEN least(j.run_at, excluded.run_at) ELSE j.run_at END,
       every_s = coalesce(excluded.every_s, j.every_s),
       attempt = CASE WHEN j.state = 'running' THEN j.attempt ELSE 0 END,
       lost = CASE WHEN j.payload - 'traceparent' = excluded.payload - 'traceparent' THEN j.lost ELSE 0 END,
       requeue = j.requeue OR (j.state = 'running' AND excluded.state = 'queued'),
       sync_run_ids = j.sync_run_ids || excluded.sync_run_ids
RETURNING id

-- name: notify_workers
-- Wakes the workers that listen; the others poll.
SELECT pg_notify('kosmos_jobs', '')

-- name: listen_for_jobs
LISTEN kosmos_jobs

-- name: requeue_due_jobs
-- Queues due jobs, and jobs with expired leases. A job that lost its worker several times is probably the cause, and is
-- dead. Returns the number of dead jobs, and of expired leases.
WITH left_behind AS (
    SELECT j.tenant_id, j.id
      FROM kosmos.jobs j
     WHERE j.state = 'running' AND j.lease_until < now()
       FOR UPDATE SKIP LOCKED
), due AS (
    SELECT j.tenant_id, j.id
      FROM kosmos.jobs j
     WHERE j.state = 'scheduled' AND j.run_at <= now()
       FOR UPDATE SKIP LOCKED
), woken AS (
    UPDATE kosmos.jobs j
       SET state = 'queued'
      FROM due
     WHERE j.tenant_id = due.tenant_id AND j.id = due.id
), rescued AS (
    UPDATE kosmos.jobs j
       SET state = CASE WHEN j.lost + 1 < %(max_lost)s THEN 'queued'
                        WHEN j.every_s IS NOT NULL THEN 'scheduled' ELSE 'dead' END,
           finished_at = CASE WHEN j.lost + 1 < %(max_lost)s OR j.every_s IS NOT NULL THEN NULL ELSE now() END,
           run_at = CASE WHEN j.lost + 1 < %(max_lost)s OR j.every_s IS NULL THEN j.run_at
                         ELSE now() + make_interval(secs => j.every_s) END,
           lost = j.lost + 1, token = NULL, lease_until = NULL, requeue = false,
           code = 'lease_lost', error = 'its worker ' || j.worker || ' ended, or stopped, without a word'
      FROM left_behind
     WHERE j.tenant_id = left_behind.tenant_id AND j.id = left_behind.id
 RETURNING j.tenant_id, j.state, j.sync_run_ids, j.key, j.code, j.error
), accounted AS (
    UPDATE kosmos.sync_runs r
       SET failed = r.failed + c.jobs
      FROM (SELECT d.tenant_id, run, count(*) AS jobs
              FROM rescued d, unnest(d.sync_run_ids) AS run
             WHERE d.state = 'dead'
             GROUP BY d.tenant_id, run) c
     WHERE r.tenant_id = c.tenant_id AND r.id = c.run
)
SELECT count(*) FILTER (WHERE state = 'dead'), count(*) FROM rescued

-- name: claim_jobs
-- The file of the function explains the order.
SELECT * FROM kosmos.claim_jobs(%(limit)s, %(kinds)s, %(worker)s, %(lease_s)s)

-- name: renew_leases
-- Returns the tokens with valid leases; the other jobs were cancelled, or claimed by another worker. Skips locked rows:
-- one of them must not cost all others their leases, and no session can requeue a job while its row is locked.
WITH free AS (
    SELECT j.tenant_id, j.id
      FROM kosmos.jobs j
     WHERE j.token = ANY (%(tokens)s) AND j.state = 'running'
       FOR NO KEY UPDATE SKIP LOCKED
), renewed AS (
    UPDATE kosmos.jobs j
       SET lease_until = now() + make_interval(secs => %(lease_s)s)
      FROM free f
     WHERE j.tenant_id = f.tenant_id AND j.id = f.id
)
SELECT j.token FROM kosmos.jobs j WHERE j.token = ANY (%(tokens)s) AND j.state = 'running'

-- name: lock_leases
-- Verifies fencing tokens, and locks the jobs until the transaction ends: no requeue and no cancel comes between.
SELECT j.token
  FROM kosmos.jobs j
 WHERE j.token = ANY (%(tokens)s) AND j.state = 'running'
 ORDER BY j.tenant_id, j.key
   FOR UPDATE

-- name: finish_jobs
-- A job with `requeue` is queued again, a periodic one is scheduled, any other is done. Locks runs in the order of their
-- ids, as `count_cancelled_jobs`.
WITH finished AS (
    UPDATE kosmos.jobs j
       SET state = CASE WHEN j.requeue THEN 'queued' WHEN j.every_s IS NOT NULL THEN 'scheduled' ELSE 'done' END,
           run_at = CASE WHEN j.every_s IS NOT NULL AND NOT j.requeue
                         THEN now() + make_interval(secs => j.every_s) ELSE j.run_at END,
           finished_at = CASE WHEN j.requeue OR j.every_s IS NOT NULL THEN NULL ELSE now() END,
           token = NULL, lease_until = NULL, attempt = CASE WHEN j.requeue OR j.every_s IS NOT NULL THEN 0 ELSE j.attempt END,
           lost = 0, requeue = false, outcome = f.outcome, code = NULL, error = NULL, sync_run_ids = '{}'
      FROM unnest(%(tokens)s::uuid[], %(outcomes)s::text[], %(chunks)s::integer[]) AS f (token, outcome, chunks),
           LATERAL (SELECT b.sync_run_ids FROM kosmos.jobs b WHERE b.token = f.token AND b.state = 'running') AS before
     WHERE j.token = f.token AND j.state = 'running'
 RETURNING j.tenant_id, before.sync_run_ids, f.outcome, f.chunks
), locked AS (
    SELECT r.id
      FROM kosmos.sync_runs r
     WHERE (r.tenant_id, r.id) IN (SELECT f.tenant_id, unnest(f.sync_run_ids) FROM finished f)
     ORDER BY r.id
       FOR UPDATE
), accounted AS (
    UPDATE kosmos.sync_runs r
       SET seen = r.seen - c.gone, new = r.new + c.new, changed = r.changed + c.changed, unchanged = r.unchanged + c.unchanged,
           removed = r.removed + c.removed, chunks = r.chunks + c.chunks
      FROM (SELECT f.tenant_id, run, count(*) FILTER (WHERE f.outcome = 'new') AS new,
                   count(*) FILTER (WHERE f.outcome = 'changed') AS changed,
                   count(*) FILTER (WHERE f.outcome = 'unchanged') AS unchanged,
                   count(*) FILTER (WHERE f.outcome = 'removed') AS removed,
                   count(*) FILTER (WHERE f.outcome IN ('gone', 'empty')) AS gone,
                   sum(f.chunks) AS chunks
              FROM finished f, unnest(f.sync_run_ids) AS run JOIN locked l ON l.id = run
             GROUP BY f.tenant_id, run) c
     WHERE r.tenant_id = c.tenant_id AND r.id = c.run
)
SELECT count(*) FROM finished

-- name: fail_job
-- Schedules a retry, or the next time of a periodic job; otherwise the job is dead and stays for operators. A job that
-- waits for a full disk or a lost node has the same attempt again, unless it is too old.
WITH failing AS (
    SELECT n.tenant_id, n.id, n.waits, CASE WHEN n.waits THEN %(wait_s)s ELSE %(delay_s)s::double precision END AS delay_s
      FROM (SELECT b.tenant_id, b.id, %(wait_s)s::double precision IS NOT NULL
                                      AND b.created_at > now() - make_interval(days => %(wait_days)s) AS waits
              FROM kosmos.jobs b
             WHERE b.token = %(token)s AND b.state = 'running') n
), failed AS (
    UPDATE kosmos.jobs j
       SET state = CASE WHEN j.requeue THEN 'queued' WHEN f.delay_s IS NOT NULL OR j.every_s IS NOT NULL
                        THEN 'scheduled' ELSE 'dead' END,
           run_at = CASE WHEN j.requeue THEN now()
                         ELSE now() + make_interval(secs => coalesce(f.delay_s, j.every_s, 0)) END,
           finished_at = CASE WHEN j.requeue OR f.delay_s IS NOT NULL OR j.every_s IS NOT NULL THEN NULL ELSE now() END,
           token = NULL, lease_until = NULL, requeue = false,
           attempt = CASE WHEN j.requeue OR (f.delay_s IS NULL AND j.every_s IS NOT NULL) THEN 0
                          WHEN f.waits THEN j.attempt - 1 ELSE j.attempt END,
           outcome = 'failed', code = %(code)s, error = %(error)s
      FROM failing f
     WHERE j.tenant_id = f.tenant_id AND j.id = f.id AND j.token = %(token)s AND j.state = 'running'
 RETURNING j.tenant_id, j.state, j.sync_run_ids, j.key
), accounted AS (
    UPDATE kosmos.sync_runs r
       SET failed = r.failed + 1,
           failures = CASE WHEN jsonb_array_length(r.failures) < 100 THEN r.failures || jsonb_build_object(
               'source', %(source)s::text, 'code', %(code)s::text, 'message', %(error)s::text) ELSE r.failures END
      FROM failed f
     WHERE f.state = 'dead' AND r.tenant_id = f.tenant_id AND r.id = ANY (f.sync_run_ids)
)
SELECT state FROM failed

-- name: release_jobs
-- Claimed and not started: a stopping worker returns these jobs unchanged.
UPDATE kosmos.jobs j
   SET state = 'queued', token = NULL, lease_until = NULL, attempt = j.attempt - 1, requeue = false
 WHERE j.token = ANY (%(tokens)s) AND j.state = 'running'

-- name: expire_leases
-- The process of these jobs has ended: nothing waits for their leases.
UPDATE kosmos.jobs j
   SET lease_until = '-infinity'
 WHERE j.token = ANY (%(tokens)s) AND j.state = 'running'

-- name: cancel_jobs
-- Cancels jobs by id or key, or those of a collection: with or without those of documents, but for the kinds that are
-- kept. Without its token a worker cannot finish a running job, and it notices when it renews the lease. A pass has
-- locked its job when it locks those of documents, and a worker locks these by `lock_leases`: no deadlock with either.
-- Returns the runs that wait for the jobs.
WITH unfinished AS (
    SELECT j.tenant_id, j.id
      FROM kosmos.jobs j
     WHERE j.tenant_id = %(tenant_id)s
       AND (j.id = ANY (%(ids)s::uuid[]) OR j.key = ANY (%(keys)s::text[]) OR j.collection = %(collection)s
             AND j.kind <> ALL (%(kept)s::text[]) AND (%(documents)s OR j.kind <> 'document'))
       AND j.state IN ('scheduled', 'queued', 'running')
     ORDER BY j.tenant_id, j.kind = 'document', j.key
       FOR UPDATE
)
UPDATE kosmos.jobs j
   SET state = 'cancelled', finished_at = now(), token = NULL, lease_until = NULL, requeue = false,
       outcome = 'cancelled', code = 'cancelled', error = %(reason)s
  FROM unfinished u
 WHERE j.tenant_id = u.tenant_id AND j.id = u.id
RETURNING j.id, j.sync_run_ids

-- name: count_cancelled_jobs
-- Counts jobs that were cancelled or erased in the runs that wait for them. After the lock of the collection, as a
-- publication locks them: jobs, the collection, runs in the order of their ids.
WITH locked AS (
    SELECT r.id FROM kosmos.sync_runs r WHERE r.tenant_id = %(tenant_id)s AND r.id = ANY (%(run_ids)s) ORDER BY r.id FOR UPDATE
)
UPDATE kosmos.sync_runs r
   SET cancelled = r.cancelled + c.jobs
  FROM (SELECT l.id, count(*) AS jobs FROM locked l JOIN unnest(%(run_ids)s::uuid[]) AS u (run) ON u.run = l.id GROUP BY l.id) c
 WHERE r.tenant_id = %(tenant_id)s AND r.id = c.id

-- name: jobs_with_other_readers
-- Unfinished jobs of documents that were enqueued with other readers than these.
SELECT j.key
  FROM kosmos.jobs j
 WHERE j.tenant_id = %(tenant_id)s AND j.key = ANY (%(keys)s::text[]) AND j.state IN ('scheduled', 'queued', 'running')
   AND j.payload #> '{entry,readers}' IS DISTINCT FROM (%(readers)s::jsonb) -> j.key

-- name: change_preset_of_jobs
-- Locks in the order of `cancel_jobs`. Jobs that remember another preset than the previous one stay as they are.
UPDATE kosmos.jobs j
   SET payload = jsonb_set(j.payload, '{preset}', to_jsonb(%(after)s::text))
  FROM (SELECT o.tenant_id, o.id
          FROM kosmos.jobs o
         WHERE o.tenant_id = %(tenant_id)s AND o.collection = %(collection)s AND o.kind <> ALL (%(kept)s::text[])
           AND (%(documents)s OR o.kind <> 'document')
           AND o.state <> 'done' AND o.payload ->> 'preset' = %(before)s
         ORDER BY o.tenant_id, o.kind = 'document', o.key
           FOR UPDATE) old
 WHERE j.tenant_id = old.tenant_id AND j.id = old.id

-- name: retry_jobs
-- Those that are named, or all dead ones: what a deletion or a person has cancelled comes back by its name alone. The
-- last of each key, and none that newer work replaced: a periodic job is enqueued next to a cancelled one.
UPDATE kosmos.jobs j
   SET state = 'queued', finished_at = NULL, attempt = 0, lost = 0, run_at = now(), sync_run_ids = '{}'
 WHERE j.tenant_id = %(tenant_id)s AND j.state IN ('dead', 'cancelled')
   AND CASE WHEN %(ids)s::uuid[] IS NULL THEN j.state = 'dead' ELSE j.id = ANY (%(ids)s) END
   AND NOT EXISTS (
       SELECT FROM kosmos.jobs newer
        WHERE newer.tenant_id = %(tenant_id)s AND newer.key = j.key
          AND newer.state IN ('scheduled', 'queued', 'running'))
   AND NOT EXISTS (
       SELECT FROM kosmos.jobs later
        WHERE later.tenant_id = %(tenant_id)s AND later.key = j.key AND later.state IN ('dead', 'cancelled')
          AND later.id > j.id AND (%(ids)s::uuid[] IS NULL OR later.id = ANY (%(ids)s)))
RETURNING j.id

-- name: list_jobs
SELECT j.id, j.collection, j.kind, j.key, j.payload, j.state, j.priority, j.run_at, j.every_s, j.attempt, j.lost,
       j.worker, j.outcome, j.code, j.error, j.created_at, j.started_at, j.finished_at
  FROM kosmos.jobs j
 WHERE j.tenant_id = %(tenant_id)s
   AND (%(ids)s::uuid[] IS NULL OR j.id = ANY (%(ids)s))
   AND (%(states)s::text[] IS NULL OR j.state = ANY (%(states)s))
   AND (%(kinds)s::text[] IS NULL OR j.kind = ANY (%(kinds)s))
   AND (%(collection)s::text IS NULL OR j.collection = %(collection)s)
   AND (%(before)s::uuid IS NULL OR j.id < %(before)s)
 ORDER BY j.id DESC
 LIMIT %(limit)s

-- name: count_jobs
-- By kind and state, with the age of the oldest due job.
SELECT j.kind, j.state, count(*),
       coalesce(extract(epoch FROM now() - min(j.run_at) FILTER (WHERE j.state = 'queued')), 0)::double precision
  FROM kosmos.jobs j
 WHERE j.state IN ('scheduled', 'queued', 'running', 'dead')
 GROUP BY j.kind, j.state

-- name: count_dead_jobs
-- Of each tenant, with the most frequent code; the tenants with most of them first.
SELECT j.tenant, count(*), mode() WITHIN GROUP (ORDER BY j.code)
  FROM kosmos.jobs j
 WHERE j.state = 'dead'
 GROUP BY j.tenant_id, j.tenant
 ORDER BY count(*) DESC, j.tenant
 LIMIT %(limit)s

-- name: unclaimed_jobs
-- Due jobs while no worker runs: none has a lease, and none has ended a job lately.
SELECT count(*)
  FROM kosmos.jobs j
 WHERE (%(tenant_id)s::uuid IS NULL OR j.tenant_id = %(tenant_id)s)
   AND j.state IN ('queued', 'scheduled') AND j.run_at < now() - make_interval(secs => %(wait_s)s)
   AND NOT EXISTS (SELECT FROM kosmos.jobs r WHERE r.state = 'running' AND r.lease_until > now())
   AND NOT EXISTS (SELECT FROM kosmos.jobs f
                    WHERE f.state IN ('done', 'dead') AND f.finished_at > now() - make_interval(secs => %(wait_s)s))

-- name: tenants_of_jobs
SELECT DISTINCT j.tenant_id, j.tenant FROM kosmos.jobs j WHERE j.kind = ANY (%(kinds)s) ORDER BY j.tenant

-- name: list_followed_syncs
-- The periodic passes over sources that know their changes, of all tenants.
SELECT j.tenant_id, j.tenant, j.collection, j.key, j.payload
  FROM kosmos.jobs j
 WHERE j.kind = %(kind)s AND j.state IN ('scheduled', 'queued', 'running') AND j.every_s IS NOT NULL
   AND jsonb_typeof(j.payload -> 'spec' -> 'changes') = 'object'

-- name: run_job_again
UPDATE kosmos.jobs j SET requeue = true WHERE j.token = %(token)s AND j.state = 'running'

-- name: failing_passes
-- Recurring passes over sources and permission feeds that failed, and are not tried again before their next time.
SELECT j.payload, j.code, j.error
  FROM kosmos.jobs j
 WHERE j.tenant_id = %(tenant_id)s AND j.kind = ANY (%(passes)s::text[]) AND j.every_s IS NOT NULL
   AND j.state = 'scheduled' AND j.attempt = 0 AND j.code IS NOT NULL
 ORDER BY j.key

-- name: unfinished_job_of_key
SELECT j.id
  FROM kosmos.jobs j
 WHERE j.tenant_id = %(tenant_id)s AND j.key = %(key)s AND j.state IN ('scheduled', 'queued', 'running')

-- name: recently_failed_job_of_key
SELECT j.id
  FROM kosmos.jobs j
 WHERE j.tenant_id = %(tenant_id)s AND j.key = %(key)s AND j.state = 'dead'
   AND j.finished_at > now() - make_interval(secs => %(pause_s)s)

-- name: path_of_unfinished_sync
SELECT j.id, j.payload -> 'spec' ->> 'path'
  FROM kosmos.jobs j
 WHERE j.tenant_id = %(tenant_id)s AND j.key = %(key)s AND j.state IN ('scheduled', 'queued', 'running')

-- name: unfinished_jobs
SELECT count(*) FILTER (WHERE j.state IN ('queued', 'running') OR j.every_s IS NULL)
  FROM kosmos.jobs j
 WHERE j.state IN ('scheduled', 'queued', 'running') AND j.kind = ANY (%(kinds)s)

-- name: prune_jobs
-- A limited batch: a long transaction would keep vacuum from removing dead rows of the queue. The recurring job of a
-- source that was cancelled by request stays: the source is paused, and the job has its spec.
DELETE FROM kosmos.jobs j
 USING (SELECT o.tenant_id, o.id
          FROM kosmos.jobs o
         WHERE o.state IN ('done', 'dead', 'cancelled') AND o.finished_at < now() - make_interval(
               days => CASE WHEN o.state = 'dead' THEN %(keep_dead_days)s ELSE %(keep_days)s END)
           AND NOT (o.state = 'cancelled' AND o.every_s IS NOT NULL AND o.kind = ANY (%(passes)s::text[])
                    AND o.error = %(by_request)s)
         LIMIT 10000
           FOR UPDATE SKIP LOCKED) old
 WHERE j.tenant_id = old.tenant_id AND j.id = old.id

-- name: dead_since
SELECT count(*) FROM kosmos.jobs j WHERE j.state = 'dead' AND j.finished_at >= %(since)s AND j.kind = ANY (%(kinds)s)

-- name: server_time
SELECT now()

-- name: insert_sync_run
INSERT INTO kosmos.sync_runs (tenant_id, id, collection, source, state, seen, new, changed, unchanged, removed, failed, cancelled,
                              chunks, failures, started_at)
VALUES (%(tenant_id)s, %(run_id)s, %(collection)s, %(source)s, 'listing', 0, 0, 0, 0, 0, 0, 0, 0, '[]', now())

-- name: add_sync_run_counts
-- Adds what the listing counted without a job: unchanged and failed documents.
UPDATE kosmos.sync_runs r
   SET seen = r.seen + %(seen)s, unchanged = r.unchanged + %(unchanged)s, failed = r.failed + %(failed)s,
       removed = r.removed + %(removed)s, state = coalesce(%(state)s, r.state), error = coalesce(%(error)s, r.error),
       failures = CASE WHEN jsonb_array_length(r.failures) < 100 THEN r.failures || %(failures)s ELSE r.failures END,
       finished_at = CASE WHEN %(state)s = 'failed' THEN now() ELSE r.finished_at END
 WHERE r.tenant_id = %(tenant_id)s AND r.id = %(run_id)s

-- name: finish_sync_runs
-- Finishes runs whose documents all have an outcome.
UPDATE kosmos.sync_runs r
   SET state = 'finished', finished_at = now()
 WHERE r.state = 'working' AND r.seen = r.new + r.changed + r.unchanged + r.removed + r.failed + r.cancelled

-- name: fail_interrupted_sync_runs
-- Earlier runs of the same source that were interrupted.
UPDATE kosmos.sync_runs r
   SET state = 'failed', error = 'interrupted before the source was completely listed', finished_at = now()
 WHERE r.tenant_id = %(tenant_id)s AND r.collection = %(collection)s AND r.source = %(source)s AND r.state = 'listing'

-- name: fail_abandoned_sync_runs
-- Runs whose sync job was cancelled, or failed permanently, before the listing was complete.
UPDATE kosmos.sync_runs r
   SET state = CASE WHEN EXISTS (SELECT
                                   FROM kosmos.jobs c
                                  WHERE c.tenant_id = r.tenant_id AND c.collection = r.collection AND c.kind = 'sync'
                                    AND c.state = 'cancelled' AND c.payload -> 'spec' = r.source)
                    THEN 'cancelled' ELSE 'failed' END,
       error = 'the pass ended before the source was completely listed', finished_at = now()
 WHERE r.tenant_id = %(tenant_id)s AND r.state = 'listing'
   AND NOT EXISTS (SELECT FROM kosmos.jobs j
                    WHERE j.tenant_id = r.tenant_id AND j.collection = r.collection AND j.kind = 'sync'
                      AND j.state IN ('scheduled', 'queued', 'running') AND j.payload -> 'spec' = r.source)

-- name: list_sync_runs
SELECT r.id, r.collection, r.source, r.state, r.seen, r.new, r.changed, r.unchanged, r.removed, r.failed, r.cancelled, r.chunks,
       r.failures, r.error, r.started_at, r.finished_at
  FROM kosmos.sync_runs r
 WHERE r.tenant_id = %(tenant_id)s AND (%(run_id)s::uuid IS NULL OR r.id = %(run_id)s)
 ORDER BY r.started_at DESC
 LIMIT %(limit)s

-- name: latest_failures_of_sources
-- Of the last pass over each source that has listed it, or failed to.
SELECT DISTINCT ON (r.collection, r.source) r.seen, r.failed, r.failures
  FROM kosmos.sync_runs r
 WHERE r.tenant_id = %(tenant_id)s AND r.state IN ('working', 'finished')
 ORDER BY r.collection, r.source, r.started_at DESC

-- name: prune_sync_runs
DELETE FROM kosmos.sync_runs r WHERE r.finished_at < now() - make_interval(days => %(keep_days)s)

-- name: store_upload_chunk
INSERT INTO kosmos.uploads (tenant_id, id, number, data, created_at)
VALUES (%(tenant_id)s, %(upload_id)s, %(number)s, %(data)s, %(now)s)

-- name: read_upload
SELECT u.data FROM kosmos.uploads u WHERE u.tenant_id = %(tenant_id)s AND u.id = %(upload_id)s ORDER BY u.number

-- name: read_upload_chunk
SELECT u.data
  FROM kosmos.uploads u
 WHERE u.tenant_id = %(tenant_id)s AND u.id = %(upload_id)s AND u.number = %(number)s

-- name: size_of_upload
-- Locks the chunks until the transaction ends: what deletes abandoned uploads waits for what refers to this one.
SELECT coalesce(sum(octet_length(u.data)), 0)::bigint
  FROM (SELECT n.data
          FROM kosmos.uploads n
         WHERE n.tenant_id = %(tenant_id)s AND n.id = %(upload_id)s
           FOR SHARE) u

-- name: lock_uploads
SELECT u.id
  FROM kosmos.uploads u
 WHERE u.tenant_id = %(tenant_id)s AND u.id = ANY (%(upload_ids)s)
 ORDER BY u.id, u.number
   FOR UPDATE

-- name: delete_uploads
DELETE FROM kosmos.uploads u WHERE u.tenant_id = %(tenant_id)s AND u.id = ANY (%(upload_ids)s)

-- name: uploads_before
SELECT u.id FROM kosmos.uploads u WHERE u.tenant_id = %(tenant_id)s AND u.created_at < %(before)s

-- name: uploads_in_use
SELECT (j.payload ->> 'upload')::uuid
  FROM kosmos.jobs j
 WHERE j.tenant_id = %(tenant_id)s AND j.payload ? 'upload' AND j.state NOT IN ('done', 'cancelled')

-- name: stored_files
SELECT f.id FROM kosmos.files f WHERE f.tenant_id = %(tenant_id)s AND f.id = ANY (%(file_ids)s)
