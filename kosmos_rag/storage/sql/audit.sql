-- name: begin_append
-- First in an append-only transaction of the app role; its other transactions are read-only on one snapshot.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE

-- name: set_synchronous_commit
-- Independent of the server's default: a delivered answer is in the log even after a crash.
SET LOCAL synchronous_commit = on

-- name: lock_audit_log_shared
-- Held from before an event draws its position until it commits: the sealer waits for uncommitted events.
SELECT pg_advisory_xact_lock_shared(hashtextextended('kosmos:audit:' || %(tenant_id)s::uuid::text, 0))

-- name: lock_audit_log
SELECT pg_advisory_xact_lock(hashtextextended('kosmos:audit:' || %(tenant_id)s::uuid::text, 0))

-- name: last_audit_position
SELECT last_value FROM kosmos.audit_event_positions

-- name: insert_audit_event
INSERT INTO kosmos.audit_events (tenant_id, id, at, position, kind, outcome, collection, subject, principals, question,
                               question_sha256, search_query, settings_hash, cached, milliseconds, follows)
VALUES (%(tenant_id)s, %(id)s, %(at)s, nextval('kosmos.audit_event_positions'), %(kind)s, %(outcome)s, %(collection)s,
        %(subject)s, %(principals)s, %(question)s, %(question_sha256)s, %(search_query)s, %(settings_hash)s, %(cached)s,
        %(milliseconds)s, %(follows)s)

-- name: insert_audit_passages
-- The row of the tenant is for Citus, as in insert_lexemes. A tenant that was erased meanwhile has none: the caller
-- counts the rows.
INSERT INTO kosmos.audit_passages (tenant_id, event_id, at, rank, shown, document_id, version_id, version,
                                       source, source_hash, chunk_ids, score)
SELECT t.tenant_id, %(id)s, %(at)s, p.rank, p.shown, p.document_id, p.version_id, p.version, p.source, p.source_hash,
       p.chunk_ids::uuid[], p.score
  FROM kosmos.tenants t
 CROSS JOIN unnest(%(ranks)s::integer[], %(shown)s::boolean[], %(document_ids)s::uuid[], %(version_ids)s::uuid[],
                   %(versions)s::integer[], %(sources)s::text[], %(source_hashes)s::uuid[], %(chunk_ids)s::text[],
                   %(scores)s::double precision[])
       AS p (rank, shown, document_id, version_id, version, source, source_hash, chunk_ids, score)
 WHERE t.tenant_id = %(tenant_id)s

-- name: list_audit_events
-- Ids are in the order of time: they bound the index scan. Times select the partitions.
SELECT r.id, r.at, r.kind, r.outcome, r.collection, r.subject, r.principals, r.question, r.question_sha256, r.search_query,
       r.settings_hash, r.cached, r.milliseconds, r.follows
  FROM kosmos.audit_events r
 WHERE r.tenant_id = %(tenant_id)s
   AND r.at >= %(since)s AND r.at < %(until)s AND r.id >= %(first_id)s AND r.id < %(before_id)s
   AND (%(subject)s::text IS NULL OR r.subject = %(subject)s)
   AND (%(outcomes)s::text[] IS NULL OR r.outcome = ANY (%(outcomes)s))
 ORDER BY r.id DESC
 LIMIT %(limit)s

-- name: audit_event_by_id
SELECT r.id, r.at, r.kind, r.outcome, r.collection, r.subject, r.principals, r.question, r.question_sha256, r.search_query,
       r.settings_hash, r.cached, r.milliseconds, r.follows
  FROM kosmos.audit_events r
 WHERE r.tenant_id = %(tenant_id)s AND r.id = %(id)s

-- name: audit_events_by_position
SELECT r.id, r.at, r.kind, r.outcome, r.collection, r.subject, r.principals, r.question, r.question_sha256, r.search_query,
       r.settings_hash, r.cached, r.milliseconds, r.follows, r.position
  FROM kosmos.audit_events r
 WHERE r.tenant_id = %(tenant_id)s AND r.position > %(after)s AND r.position <= %(last)s
 ORDER BY r.position, r.id, r.at
 LIMIT %(limit)s

-- name: oldest_unsealed_event
SELECT min(r.at) FROM kosmos.audit_events r WHERE r.tenant_id = %(tenant_id)s AND r.position > %(after)s

-- name: passages_of_audit_events
SELECT p.event_id, p.rank, p.shown, p.document_id, p.version_id, p.version, p.source, p.chunk_ids, p.score
  FROM kosmos.audit_passages p
 WHERE p.tenant_id = %(tenant_id)s AND p.event_id = ANY (%(ids)s::uuid[])
   AND p.at >= %(first_at)s AND p.at <= %(last_at)s
 ORDER BY p.event_id, p.rank

-- name: audit_document_access
SELECT r.at, r.id AS retrieval_id, r.kind, r.subject, r.principals, r.question, p.source, p.document_id, p.version, p.chunk_ids, p.rank,
       p.shown
  FROM kosmos.audit_passages p
  JOIN kosmos.audit_events r ON r.tenant_id = %(tenant_id)s AND r.id = p.event_id AND r.at = p.at
 WHERE p.tenant_id = %(tenant_id)s
   AND (p.document_id = %(document_id)s::uuid
        OR p.source_hash = %(source_hash)s::uuid AND p.source = %(source)s::text)
   AND p.at >= %(since)s AND p.at < %(until)s
 ORDER BY p.at DESC, p.event_id DESC, p.rank
 LIMIT %(limit)s

-- name: failed_questions
-- Groups by search query: "and in May?" alone helps no author of documents. Includes questions rated down, and excludes
-- those of evaluations (some of them have no answer on purpose) and SQL on described databases.
SELECT max(q.question) AS question, q.sha256 AS question_sha256, count(*) FILTER (WHERE q.outcome <> 'down') AS times,
       count(*) FILTER (WHERE q.outcome = 'refused') AS refused,
       count(*) FILTER (WHERE q.outcome = 'down') AS disliked,
       count(DISTINCT q.subject) AS subjects, max(q.at) AS last_at,
       coalesce((array_agg(q.comment ORDER BY q.at DESC) FILTER (WHERE q.comment IS NOT NULL))[1:5], '{}') AS comments
  FROM (SELECT coalesce(r.search_query, r.question) AS question, s.sha256, r.outcome, r.subject, r.at, NULL AS comment
          FROM kosmos.audit_events r
         CROSS JOIN LATERAL (
               SELECT coalesce(encode(sha256(convert_to(r.search_query, 'UTF8')), 'hex'), r.question_sha256)) s (sha256)
         WHERE r.tenant_id = %(tenant_id)s AND r.outcome <> 'hits' AND r.kind <> 'query'
           AND r.at >= %(since)s AND r.at < %(until)s
           AND r.subject IS DISTINCT FROM %(evaluator)s::text
         UNION ALL
        SELECT f.question, f.question_sha256, f.rating, f.subject, f.at, f.comment
          FROM kosmos.feedback f
         WHERE f.tenant_id = %(tenant_id)s AND f.rating = 'down' AND f.at >= %(since)s AND f.at < %(until)s) q
 GROUP BY q.sha256
 ORDER BY count(*) DESC, max(q.at) DESC, q.sha256
 LIMIT %(limit)s

-- name: last_seal
SELECT s.number, s.at, s.month, s.last_position, s.rows, s.rows_sha256, s.sha256
  FROM kosmos.audit_seals s
 WHERE s.tenant_id = %(tenant_id)s
 ORDER BY s.number DESC
 LIMIT 1

-- name: seals
SELECT s.number, s.at, s.month, s.last_position, s.rows, s.rows_sha256, s.sha256
  FROM kosmos.audit_seals s
 WHERE s.tenant_id = %(tenant_id)s AND s.number > %(after)s
 ORDER BY s.number
 LIMIT %(limit)s

-- name: insert_seal
INSERT INTO kosmos.audit_seals (tenant_id, number, at, month, last_position, rows, rows_sha256, sha256)
VALUES (%(tenant_id)s, %(number)s, %(at)s, %(month)s, %(last_position)s, %(rows)s, %(rows_sha256)s, %(sha256)s)
ON CONFLICT (tenant_id, number) DO NOTHING
RETURNING number

-- name: count_unsealed_events
SELECT count(*)
  FROM kosmos.audit_events r
 WHERE r.tenant_id = %(tenant_id)s AND r.position > %(after)s

-- name: audit_partitions
SELECT c.relname::text
  FROM pg_catalog.pg_inherits i
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent IN ('kosmos.audit_events'::regclass, 'kosmos.audit_passages'::regclass)

-- name: lock_audit_partitions
-- Two sessions cannot replace a function at the same time.
SELECT pg_advisory_xact_lock(hashtextextended('kosmos:audit:months', 0))

-- name: audit_expired_before
SELECT kosmos.audit_expired_before()

-- name: has_audit_events_before
SELECT EXISTS (SELECT FROM kosmos.audit_events r
                WHERE r.tenant_id = %(tenant_id)s AND r.at < %(since)s)
