-- name: count_unanswered
-- How many questions are stored, whether this one is, and whether the tenant exists.
SELECT (SELECT count(*) FROM kosmos.unanswered_questions u WHERE u.tenant_id = %(tenant_id)s),
       EXISTS (SELECT FROM kosmos.unanswered_questions u WHERE u.tenant_id = %(tenant_id)s AND u.id = %(id)s),
       EXISTS (SELECT FROM kosmos.tenants t WHERE t.tenant_id = %(tenant_id)s)

-- name: put_unanswered
-- The question of a reader has one row. A question that is asked again is unanswered again.
INSERT INTO kosmos.unanswered_questions (tenant_id, id, first_at, last_at, times, collection, subject, principals,
                                         question, reason, checked_at)
VALUES (%(tenant_id)s, %(id)s, %(at)s, %(at)s, 1, %(collection)s, %(subject)s, %(principals)s, %(question)s,
        %(reason)s, %(at)s)
ON CONFLICT (tenant_id, id) DO UPDATE
   SET last_at = excluded.last_at, times = unanswered_questions.times + 1, principals = excluded.principals,
       reason = excluded.reason, checked_at = excluded.checked_at, checked_state = NULL, answered_at = NULL

-- name: list_unanswered
SELECT u.id, u.first_at, u.last_at, u.times, u.collection, u.subject, u.principals, u.question, u.reason, u.group_id,
       u.answered_at, u.checked_state
  FROM kosmos.unanswered_questions u
 WHERE u.tenant_id = %(tenant_id)s AND (%(collection)s::text IS NULL OR u.collection = %(collection)s)
 ORDER BY u.first_at, u.id

-- name: list_unanswered_to_check
SELECT u.id, u.first_at, u.last_at, u.times, u.collection, u.subject, u.principals, u.question, u.reason, u.group_id,
       u.answered_at, u.checked_state
  FROM kosmos.unanswered_questions u
 WHERE u.tenant_id = %(tenant_id)s AND (%(collection)s::text IS NULL OR u.collection = %(collection)s)
   AND u.answered_at IS NULL
 ORDER BY u.checked_at, u.id
 LIMIT %(limit)s

-- name: vectors_of_unanswered
SELECT u.id, u.vector
  FROM kosmos.unanswered_questions u
 WHERE u.tenant_id = %(tenant_id)s AND u.vector_model = %(model)s

-- name: set_vector_of_unanswered
UPDATE kosmos.unanswered_questions u
   SET vector = %(vector)s, vector_model = %(model)s
 WHERE u.tenant_id = %(tenant_id)s AND u.id = %(id)s

-- name: set_group_of_unanswered
UPDATE kosmos.unanswered_questions u
   SET group_id = %(group_id)s
 WHERE u.tenant_id = %(tenant_id)s AND u.id = %(id)s

-- name: set_check_of_unanswered
-- Its reader may have asked it again, without an answer, while it was checked.
UPDATE kosmos.unanswered_questions u
   SET checked_at = %(at)s, checked_state = %(state)s, answered_at = %(answered_at)s
 WHERE u.tenant_id = %(tenant_id)s AND u.id = %(id)s AND u.last_at <= %(at)s

-- name: prune_unanswered
DELETE FROM kosmos.unanswered_questions u
 WHERE u.tenant_id = %(tenant_id)s
   AND (u.last_at < %(before)s
        OR u.id IN (SELECT o.id
                      FROM kosmos.unanswered_questions o
                     WHERE o.tenant_id = %(tenant_id)s
                     ORDER BY o.last_at DESC, o.id
                    OFFSET %(newest)s))
