-- name: count_answer_samples
-- How many answers are stored, and whether the tenant exists.
SELECT (SELECT count(*) FROM kosmos.answer_samples s WHERE s.tenant_id = %(tenant_id)s),
       EXISTS (SELECT FROM kosmos.tenants t WHERE t.tenant_id = %(tenant_id)s)

-- name: insert_answer_sample
INSERT INTO kosmos.answer_samples (tenant_id, id, at, collection, subject, principals, retrieval_id, question_sha256,
                                   is_refused, answer, sources)
VALUES (%(tenant_id)s, %(id)s, %(at)s, %(collection)s, %(subject)s, %(principals)s, %(retrieval_id)s,
        %(question_sha256)s, %(is_refused)s, %(answer)s, %(sources)s)

-- name: list_answers_to_check
SELECT s.id, s.collection, s.principals, s.answer
  FROM kosmos.answer_samples s
 WHERE s.tenant_id = %(tenant_id)s AND (%(collection)s::text IS NULL OR s.collection = %(collection)s)
   AND s.answer IS NOT NULL
 ORDER BY s.at, s.id
 LIMIT %(limit)s

-- name: set_answer_verdict
UPDATE kosmos.answer_samples s
   SET verdict = %(verdict)s, checked_at = %(at)s, answer = NULL, sources = '{}', principals = '{}'
 WHERE s.tenant_id = %(tenant_id)s AND s.id = %(id)s

-- name: delete_answer_sample
DELETE FROM kosmos.answer_samples s WHERE s.tenant_id = %(tenant_id)s AND s.id = %(id)s

-- name: count_answer_checks
-- Feedback names the retrieval, or the question and then comes from the same reader after the answer.
SELECT r.collection,
       count(*) FILTER (WHERE NOT r.is_refused) AS answers,
       count(*) FILTER (WHERE r.verdict = 'supported') AS supported,
       count(*) FILTER (WHERE r.verdict = 'unsupported') AS unsupported,
       count(*) FILTER (WHERE r.verdict = 'outdated') AS outdated,
       count(*) FILTER (WHERE NOT r.is_refused AND r.verdict IS NULL) AS waiting,
       count(*) FILTER (WHERE NOT r.is_refused AND r.up) AS rated_up,
       count(*) FILTER (WHERE NOT r.is_refused AND r.down) AS rated_down,
       count(*) FILTER (WHERE r.is_refused) AS refusals,
       count(*) FILTER (WHERE r.is_refused AND (r.up OR r.not_covered)) AS confirmed,
       count(*) FILTER (WHERE r.is_refused AND (r.down AND NOT r.not_covered OR r.passage_up)) AS disputed
  FROM (SELECT s.collection, s.is_refused, s.verdict,
               coalesce(bool_or(f.chunk_id IS NULL AND f.rating = 'up'), false) AS up,
               coalesce(bool_or(f.chunk_id IS NULL AND f.rating = 'down'), false) AS down,
               coalesce(bool_or(f.chunk_id IS NULL AND f.reason = 'not_covered'), false) AS not_covered,
               coalesce(bool_or(f.chunk_id IS NOT NULL AND f.rating = 'up'), false) AS passage_up
          FROM kosmos.answer_samples s
          LEFT JOIN kosmos.feedback f
            ON f.tenant_id = %(tenant_id)s AND f.subject = s.subject
           AND (f.retrieval_id = s.retrieval_id
                OR f.retrieval_id IS NULL AND f.question_sha256 = s.question_sha256 AND f.at >= s.at)
         WHERE s.tenant_id = %(tenant_id)s AND (%(collection)s::text IS NULL OR s.collection = %(collection)s)
         GROUP BY s.tenant_id, s.id, s.collection, s.is_refused, s.verdict) r
 GROUP BY r.collection
 ORDER BY count(*) DESC, r.collection

-- name: prune_answer_samples
DELETE FROM kosmos.answer_samples s
 WHERE s.tenant_id = %(tenant_id)s
   AND (s.at < %(before)s
        OR s.id IN (SELECT o.id
                      FROM kosmos.answer_samples o
                     WHERE o.tenant_id = %(tenant_id)s
                     ORDER BY o.at DESC, o.id
                    OFFSET %(newest)s))
