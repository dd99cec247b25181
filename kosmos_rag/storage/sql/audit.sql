-- name: allow_appending
-- First in a transaction of the reading role, whose transactions are read-only and on one snapshot otherwise.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE

-- name: wait_for_disk
-- Whatever the server's default is: an answer that is given out is in the log after a crash too.
SET LOCAL synchronous_commit = on

-- name: share_log
-- Held while a row gets its position and until it is committed: who seals waits for those that are on their way.
SELECT pg_advisory_xact_lock_shared(hashtextextended('kosmos:audit:' || %(tenant_id)s::uuid::text, 0))

-- name: hold_log
SELECT pg_advisory_xact_lock(hashtextextended('kosmos:audit:' || %(tenant_id)s::uuid::text, 0))

-- name: last_position
SELECT last_value FROM kosmos.retrieval_positions

-- name: insert_retrieval
INSERT INTO kosmos.retrievals (tenant_id, id, at, position, kind, outcome, collection, subject, principals, question,
                               question_sha256, searched, settings, cached, milliseconds, follows)
VALUES (%(tenant_id)s, %(id)s, %(at)s, nextval('kosmos.retrieval_positions'), %(kind)s, %(outcome)s, %(collection)s,
        %(subject)s, %(principals)s, %(question)s, %(question_sha256)s, %(searched)s, %(settings)s, %(cached)s,
        %(milliseconds)s, %(follows)s)

-- name: insert_retrieved_passages
-- The conflict cannot be, the id is new; with the clause no distributed server makes a COPY of it.
INSERT INTO kosmos.retrieved_passages (tenant_id, retrieval_id, at, rank, shown, document_id, version_id, version,
                                       source, source_hash, chunk_ids, score)
SELECT %(tenant_id)s, %(id)s, %(at)s, p.rank, p.shown, p.document_id, p.version_id, p.version, p.source, p.source_hash,
       p.chunk_ids::uuid[], p.score
  FROM unnest(%(ranks)s::integer[], %(shown)s::boolean[], %(document_ids)s::uuid[], %(version_ids)s::uuid[],
              %(versions)s::integer[], %(sources)s::text[], %(source_hashes)s::uuid[], %(chunk_ids)s::text[],
              %(scores)s::double precision[])
       AS p (rank, shown, document_id, version_id, version, source, source_hash, chunk_ids, score)
ON CONFLICT DO NOTHING

-- name: find_retrievals
-- Ids are in the order of time: they bound what an index is read for, and times name the partitions.
SELECT r.id, r.at, r.kind, r.outcome, r.collection, r.subject, r.principals, r.question, r.question_sha256, r.searched,
       r.settings, r.cached, r.milliseconds, r.follows
  FROM kosmos.retrievals r
 WHERE r.tenant_id = %(tenant_id)s
   AND r.at >= %(since)s AND r.at < %(until)s AND r.id >= %(first_id)s AND r.id < %(before_id)s
   AND (%(subject)s::text IS NULL OR r.subject = %(subject)s)
   AND (%(outcomes)s::text[] IS NULL OR r.outcome = ANY (%(outcomes)s))
 ORDER BY r.id DESC
 LIMIT %(limit)s

-- name: retrieval_by_id
SELECT r.id, r.at, r.kind, r.outcome, r.collection, r.subject, r.principals, r.question, r.question_sha256, r.searched,
       r.settings, r.cached, r.milliseconds, r.follows
  FROM kosmos.retrievals r
 WHERE r.tenant_id = %(tenant_id)s AND r.id = %(id)s

-- name: retrievals_by_position
SELECT r.id, r.at, r.kind, r.outcome, r.collection, r.subject, r.principals, r.question, r.question_sha256, r.searched,
       r.settings, r.cached, r.milliseconds, r.follows, r.position
  FROM kosmos.retrievals r
 WHERE r.tenant_id = %(tenant_id)s AND r.position > %(after)s AND r.position <= %(upto)s
 ORDER BY r.position, r.id, r.at
 LIMIT %(limit)s

-- name: oldest_unsealed
SELECT min(r.at) FROM kosmos.retrievals r WHERE r.tenant_id = %(tenant_id)s AND r.position > %(after)s

-- name: passages_of_retrievals
SELECT p.retrieval_id, p.rank, p.shown, p.document_id, p.version_id, p.version, p.source, p.chunk_ids, p.score
  FROM kosmos.retrieved_passages p
 WHERE p.tenant_id = %(tenant_id)s AND p.retrieval_id = ANY (%(ids)s::uuid[])
   AND p.at >= %(first_at)s AND p.at <= %(last_at)s
 ORDER BY p.retrieval_id, p.rank

-- name: who_saw
SELECT r.at, r.id, r.kind, r.subject, r.principals, r.question, p.source, p.document_id, p.version, p.chunk_ids, p.rank,
       p.shown
  FROM kosmos.retrieved_passages p
  JOIN kosmos.retrievals r ON r.tenant_id = %(tenant_id)s AND r.id = p.retrieval_id AND r.at = p.at
 WHERE p.tenant_id = %(tenant_id)s
   AND (p.document_id = %(document_id)s::uuid
        OR p.source_hash = %(source_hash)s::uuid AND p.source = %(source)s::text)
   AND p.at >= %(since)s AND p.at < %(until)s
 ORDER BY p.at DESC, p.retrieval_id DESC, p.rank
 LIMIT %(limit)s

-- name: failed_questions
-- By what was searched for: "and in May?" says nothing to who writes documents. With what was rated down, and without
-- what was asked to measure: of such a set a part has no answer on purpose.
SELECT max(q.question), q.sha256, count(*) FILTER (WHERE q.outcome <> 'down'),
       count(*) FILTER (WHERE q.outcome = 'refused'), count(*) FILTER (WHERE q.outcome = 'down'),
       count(DISTINCT q.subject), max(q.at),
       coalesce((array_agg(q.comment ORDER BY q.at DESC) FILTER (WHERE q.comment IS NOT NULL))[1:5], '{}')
  FROM (SELECT coalesce(r.searched, r.question) AS question, s.sha256, r.outcome, r.subject, r.at, NULL AS comment
          FROM kosmos.retrievals r
         CROSS JOIN LATERAL (
               SELECT coalesce(encode(sha256(convert_to(r.searched, 'UTF8')), 'hex'), r.question_sha256)) s (sha256)
         WHERE r.tenant_id = %(tenant_id)s AND r.outcome <> 'hits' AND r.at >= %(since)s AND r.at < %(until)s
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

-- name: unsealed_retrievals
SELECT count(*)
  FROM kosmos.retrievals r
 WHERE r.tenant_id = %(tenant_id)s AND r.position > %(after)s

-- name: log_partitions
SELECT c.relname::text
  FROM pg_catalog.pg_inherits i
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent IN ('kosmos.retrievals'::regclass, 'kosmos.retrieved_passages'::regclass)

-- name: hold_months
-- Two who replace a function at once would get in each other's way.
SELECT pg_advisory_xact_lock(hashtextextended('kosmos:audit:months', 0))

-- name: expired_before
SELECT kosmos.log_expired_before()

-- name: has_retrievals_before
SELECT EXISTS (SELECT FROM kosmos.retrievals r
                WHERE r.tenant_id = %(tenant_id)s AND r.at < %(since)s)
