-- name: insert_subscriber
-- It receives what is recorded from now on.
INSERT INTO kosmos.webhook_subscribers (tenant_id, id, name, url, types, collections, state, position, attempts, failures,
                                        secret_version, created_at)
SELECT s.tenant_id, %(id)s, %(name)s, %(url)s, %(types)s, %(collections)s, 'active', s.last_sequence, 0, 0, 1, %(now)s
  FROM kosmos.event_streams s
 WHERE s.tenant_id = %(tenant_id)s
ON CONFLICT (tenant_id, name) DO NOTHING
RETURNING id

-- name: count_subscribers
SELECT count(*) FROM kosmos.webhook_subscribers w WHERE w.tenant_id = %(tenant_id)s

-- name: list_subscribers
-- With the time of the first event that each has not received, and the number of dead letters.
SELECT w.id, w.name, w.url, w.types, w.collections, w.state, w.reason, w.position, w.attempts, w.error, w.failing_since,
       w.next_attempt_at, w.delivered_at, w.created_at,
       (SELECT count(*)
          FROM kosmos.webhook_dead_letters d
         WHERE d.tenant_id = %(tenant_id)s AND d.subscriber_id = w.id) AS dead_letters,
       (SELECT e.at
          FROM kosmos.events e
         WHERE e.tenant_id = %(tenant_id)s AND e.sequence > w.position
           AND (cardinality(w.types) = 0 OR e.type = ANY (w.types))
           AND (cardinality(w.collections) = 0 OR e.collection = ANY (w.collections))
         ORDER BY e.sequence
         LIMIT 1) AS waiting_since
  FROM kosmos.webhook_subscribers w
 WHERE w.tenant_id = %(tenant_id)s AND (%(name)s::text IS NULL OR w.name = %(name)s)
 ORDER BY w.name

-- name: lock_active_subscribers
-- Against an erasure of the tenant, until the commit.
SELECT w.id
  FROM kosmos.webhook_subscribers w
 WHERE w.tenant_id = %(tenant_id)s AND w.state = 'active'
 ORDER BY w.id
   FOR KEY SHARE

-- name: read_subscriber
SELECT w.id, w.name, w.url, w.types, w.collections, w.state, w.position, w.attempts, w.failures, w.next_attempt_at,
       w.secret_version, w.rotated_at
  FROM kosmos.webhook_subscribers w
 WHERE w.tenant_id = %(tenant_id)s AND w.id = %(id)s

-- name: read_secret_version
SELECT w.id, w.secret_version FROM kosmos.webhook_subscribers w WHERE w.tenant_id = %(tenant_id)s AND w.name = %(name)s

-- name: rotate_secret
UPDATE kosmos.webhook_subscribers w
   SET secret_version = w.secret_version + 1, rotated_at = %(now)s
 WHERE w.tenant_id = %(tenant_id)s AND w.name = %(name)s
RETURNING w.id, w.secret_version

-- name: set_subscriber_state
-- Whoever resumes has removed the cause, so the next attempt is due at once. A pause would hide the reason of a stop.
UPDATE kosmos.webhook_subscribers w
   SET state = %(state)s, reason = NULL, failures = 0, next_attempt_at = NULL
 WHERE w.tenant_id = %(tenant_id)s AND w.name = %(name)s AND (%(state)s::text = 'active' OR w.state <> 'stopped')
RETURNING w.id

-- name: delete_subscriber
DELETE FROM kosmos.webhook_subscribers w WHERE w.tenant_id = %(tenant_id)s AND w.name = %(name)s RETURNING w.id

-- name: read_stream
SELECT s.last_sequence, s.recording FROM kosmos.event_streams s WHERE s.tenant_id = %(tenant_id)s

-- name: find_next_sequence
SELECT min(e.sequence) FROM kosmos.events e WHERE e.tenant_id = %(tenant_id)s AND e.sequence > %(position)s

-- name: list_undelivered
SELECT e.sequence, e.at, e.type, e.collection, e.data
  FROM kosmos.events e
 WHERE e.tenant_id = %(tenant_id)s AND e.sequence > %(position)s AND e.sequence <= %(last)s
   AND (cardinality(%(types)s::text[]) = 0 OR e.type = ANY (%(types)s))
   AND (cardinality(%(collections)s::text[]) = 0 OR e.collection = ANY (%(collections)s))
 ORDER BY e.sequence
 LIMIT %(limit)s

-- name: advance_subscriber
-- By the position that the delivery began at: a delivery that was overtaken changes nothing.
UPDATE kosmos.webhook_subscribers w
   SET position = %(after)s, attempts = 0, failures = 0, error = NULL, failing_since = NULL, next_attempt_at = NULL,
       delivered_at = coalesce(%(delivered_at)s, w.delivered_at)
 WHERE w.tenant_id = %(tenant_id)s AND w.id = %(id)s AND w.position = %(position)s
RETURNING w.state

-- name: record_failed_delivery
UPDATE kosmos.webhook_subscribers w
   SET attempts = %(attempts)s, failures = w.failures + 1, error = %(error)s, next_attempt_at = %(next_attempt_at)s,
       failing_since = coalesce(w.failing_since, %(now)s)
 WHERE w.tenant_id = %(tenant_id)s AND w.id = %(id)s AND w.position = %(position)s

-- name: stop_subscriber
UPDATE kosmos.webhook_subscribers w
   SET state = 'stopped', reason = %(reason)s, position = %(after)s
 WHERE w.tenant_id = %(tenant_id)s AND w.id = %(id)s AND w.position = %(position)s AND w.state = 'active'

-- name: insert_dead_letter
INSERT INTO kosmos.webhook_dead_letters (tenant_id, subscriber_id, sequence, attempts, error, failed_at, redeliver)
VALUES (%(tenant_id)s, %(id)s, %(sequence)s, %(attempts)s, %(error)s, %(now)s, false)
ON CONFLICT DO NOTHING

-- name: list_dead_letters
SELECT d.sequence, e.at, e.type, e.collection, e.data, d.attempts, d.error, d.failed_at, d.redeliver
  FROM kosmos.webhook_dead_letters d
  JOIN kosmos.events e ON e.tenant_id = %(tenant_id)s AND e.sequence = d.sequence
 WHERE d.tenant_id = %(tenant_id)s AND d.subscriber_id = %(id)s AND (NOT %(redelivered)s OR d.redeliver)
 ORDER BY d.sequence
 LIMIT %(limit)s

-- name: redeliver_dead_letters
UPDATE kosmos.webhook_dead_letters d
   SET redeliver = true
 WHERE d.tenant_id = %(tenant_id)s AND d.subscriber_id = %(id)s
   AND (%(sequence)s::bigint IS NULL OR d.sequence = %(sequence)s)
RETURNING d.sequence

-- name: delete_dead_letter
DELETE FROM kosmos.webhook_dead_letters d
 WHERE d.tenant_id = %(tenant_id)s AND d.subscriber_id = %(id)s AND d.sequence = %(sequence)s

-- name: record_redelivery
-- The endpoint answers again, so the event that waits is due.
UPDATE kosmos.webhook_subscribers w
   SET failures = 0, error = NULL, failing_since = NULL, next_attempt_at = NULL, delivered_at = %(now)s
 WHERE w.tenant_id = %(tenant_id)s AND w.id = %(id)s

-- name: record_failed_redelivery
UPDATE kosmos.webhook_dead_letters d
   SET redeliver = false, attempts = d.attempts + 1, error = %(error)s, failed_at = %(now)s
 WHERE d.tenant_id = %(tenant_id)s AND d.subscriber_id = %(id)s AND d.sequence = %(sequence)s

-- name: prune_dead_letters
-- Of events that are deleted, nothing can be sent again.
DELETE FROM kosmos.webhook_dead_letters d
 WHERE d.tenant_id = %(tenant_id)s
   AND NOT EXISTS (SELECT FROM kosmos.events e WHERE e.tenant_id = %(tenant_id)s AND e.sequence = d.sequence)
