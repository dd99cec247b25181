-- name: put_feedback
INSERT INTO kosmos.feedback (tenant_id, id, at, subject, collection, retrieval_id, question, question_sha256, rating,
                             chunk_id, source, comment, reason)
VALUES (%(tenant_id)s, %(id)s, %(at)s, %(subject)s, %(collection)s, %(retrieval_id)s, %(question)s, %(question_sha256)s,
        %(rating)s, %(chunk_id)s, %(source)s, %(comment)s, %(reason)s)
ON CONFLICT (tenant_id, id) DO UPDATE
   SET at = excluded.at, question = excluded.question, rating = excluded.rating, source = excluded.source,
       comment = excluded.comment, reason = excluded.reason

-- name: source_of_chunk
-- Row-level security hides chunks that the reader may not read.
SELECT d.source
  FROM kosmos.chunks c
  JOIN kosmos.documents d ON d.tenant_id = %(tenant_id)s AND d.id = c.document_id
 WHERE c.tenant_id = %(tenant_id)s AND c.id = %(chunk_id)s

-- name: rated_questions
-- Questions that readers rated as answered or as not covered, the newest first. A rating up is of an answer, unless its
-- reason or the audit log says that it was refused. The majority decides; questions of a tie are left out.
SELECT max(q.question), q.sha256, 2 * count(*) FILTER (WHERE q.answered) > count(*)
  FROM (SELECT f.question, f.question_sha256 AS sha256, f.at,
               f.reason IS NULL AND coalesce(r.outcome, 'hits') = 'hits' AS answered
          FROM kosmos.feedback f
          LEFT JOIN kosmos.audit_events r ON r.tenant_id = %(tenant_id)s AND r.id = f.retrieval_id
         WHERE f.tenant_id = %(tenant_id)s AND f.chunk_id IS NULL AND f.question IS NOT NULL
           AND (f.rating = 'up' OR f.reason = 'not_covered')
           AND (%(collection)s::text IS NULL OR f.collection = %(collection)s)) q
 GROUP BY q.sha256
HAVING 2 * count(*) FILTER (WHERE q.answered) <> count(*)
 ORDER BY max(q.at) DESC, q.sha256
 LIMIT %(limit)s
