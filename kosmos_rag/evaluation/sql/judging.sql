-- name: list_judging_feedback
-- Ratings and clicks on passages that still exist, and ratings that nothing answers the question, the newest first.
SELECT q.collection, q.question, q.subject, q.rating, q.at, q.source, q.section, q.line_start, q.line_end, q.acl
  FROM (SELECT f.collection, f.question, f.subject, f.rating, f.at, d.source, c.section, c.line_start, c.line_end, d.acl
          FROM kosmos.feedback f
          JOIN kosmos.chunks c ON c.tenant_id = %(tenant_id)s AND c.id = f.chunk_id
          JOIN kosmos.documents d ON d.tenant_id = %(tenant_id)s AND d.id = c.document_id
         WHERE f.tenant_id = %(tenant_id)s AND f.question IS NOT NULL
         UNION ALL
        SELECT f.collection, f.question, f.subject, 'up', f.at, NULL, '{}', NULL, NULL, '{}'
          FROM kosmos.feedback f
         WHERE f.tenant_id = %(tenant_id)s AND f.question IS NOT NULL AND f.chunk_id IS NULL
           AND f.reason = 'not_covered'
         UNION ALL
        SELECT f.collection, f.question, f.subject, 'down', f.at, NULL, '{}', NULL, NULL, '{}'
          FROM kosmos.feedback f
          LEFT JOIN kosmos.audit_events r ON r.tenant_id = %(tenant_id)s AND r.id = f.retrieval_id
         WHERE f.tenant_id = %(tenant_id)s AND f.question IS NOT NULL AND f.chunk_id IS NULL
           AND f.rating = 'up' AND f.reason IS NULL AND coalesce(r.outcome, 'hits') = 'hits') q
 WHERE %(collection)s::text IS NULL OR q.collection = %(collection)s
 ORDER BY q.at DESC, q.question, q.subject
 LIMIT %(limit)s

-- name: list_judged_questions
-- A decision that was withdrawn is `open`: its row says whose question results of evaluations have.
SELECT j.id, j.judgement, j.collection, j.question, j.source, j.section, j.line_start, j.line_end, j.principal, j.ups,
       j.downs, j.clicks, cardinality(j.subjects) AS readers, j.last_at
  FROM kosmos.judged_questions j
 WHERE j.tenant_id = %(tenant_id)s AND (%(collection)s::text IS NULL OR j.collection = %(collection)s)
   AND j.judgement <> 'open'
 ORDER BY j.at DESC, j.id

-- name: list_ids_of_judged_questions
SELECT j.question_id FROM kosmos.judged_questions j WHERE j.tenant_id = %(tenant_id)s

-- name: subjects_of_judged_question
SELECT unnest(j.subjects) FROM kosmos.judged_questions j
 WHERE j.tenant_id = %(tenant_id)s AND j.id = %(id)s

-- name: insert_judged_question
-- Over a decision that was withdrawn: results may have the question of its readers, who stay among the subjects.
INSERT INTO kosmos.judged_questions AS j (tenant_id, id, at, judgement, judge, collection, question, question_id, source,
                                          section, line_start, line_end, principal, subjects, ups, downs, clicks, last_at)
VALUES (%(tenant_id)s, %(id)s, %(at)s, %(judgement)s, %(judge)s, %(collection)s, %(question)s, %(question_id)s,
        %(source)s, %(section)s, %(line_start)s, %(line_end)s, %(principal)s, %(subjects)s, %(ups)s, %(downs)s,
        %(clicks)s, %(last_at)s)
ON CONFLICT (tenant_id, id) DO UPDATE
   SET at = excluded.at, judgement = excluded.judgement, judge = excluded.judge, question = excluded.question,
       question_id = excluded.question_id, section = excluded.section, line_start = excluded.line_start,
       line_end = excluded.line_end, principal = excluded.principal, ups = excluded.ups, downs = excluded.downs,
       clicks = excluded.clicks, last_at = excluded.last_at, subjects = excluded.subjects

-- name: set_judgement
UPDATE kosmos.judged_questions j
   SET judgement = %(judgement)s, at = %(at)s, judge = %(judge)s
 WHERE j.tenant_id = %(tenant_id)s AND j.id = %(id)s
