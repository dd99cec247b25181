-- name: insert_evaluation
INSERT INTO kosmos.evaluations (tenant_id, id, at, label, set_name, set_sha256, collection, principals, depth, questions,
                                answered, measures, settings, settings_hash, code_version, index_state, seconds)
VALUES (%(tenant_id)s, %(id)s, %(at)s, %(label)s, %(set_name)s, %(set_sha256)s, %(collection)s, %(principals)s,
        %(depth)s, %(questions)s, %(answered)s, %(measures)s, %(settings)s, %(settings_hash)s, %(code_version)s,
        %(index_state)s, %(seconds)s)

-- name: insert_evaluation_result
INSERT INTO kosmos.evaluation_results (tenant_id, evaluation_id, question_id, question, judged, ranking, measures,
                                       timings_ms, refused, confidence)
VALUES (%(tenant_id)s, %(evaluation_id)s, %(question_id)s, %(question)s, %(judged)s, %(ranking)s, %(measures)s,
        %(timings_ms)s, %(refused)s, %(confidence)s)

-- name: list_evaluations
-- Newest first; ties in the order of the ids.
SELECT e.id, e.at, e.label, e.set_name, e.set_sha256, e.collection, e.principals, e.depth, e.questions, e.answered,
       e.measures, e.settings, e.settings_hash, e.code_version, e.index_state, e.seconds
  FROM kosmos.evaluations e
 WHERE e.tenant_id = %(tenant_id)s
 ORDER BY e.at DESC, e.id
 LIMIT %(limit)s

-- name: results_of_evaluation
SELECT r.question_id, r.question, r.judged, r.ranking, r.measures, r.timings_ms, r.refused, r.confidence
  FROM kosmos.evaluation_results r
 WHERE r.tenant_id = %(tenant_id)s AND r.evaluation_id = %(evaluation_id)s
 ORDER BY r.question_id

-- name: delete_evaluation
DELETE FROM kosmos.evaluations WHERE tenant_id = %(tenant_id)s AND id = %(id)s

-- name: chunks_for_questions
-- Readable chunks in the order of the documents, as input of synthetic questions.
SELECT d.source, c.section, c.line_start, c.line_end, c.text
  FROM kosmos.chunks c
  JOIN kosmos.documents d ON d.tenant_id = %(tenant_id)s AND d.id = c.document_id
 WHERE c.tenant_id = %(tenant_id)s AND (%(collection)s::text IS NULL OR c.collection = %(collection)s)
 ORDER BY d.source, d.collection, c.chunk_index

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
