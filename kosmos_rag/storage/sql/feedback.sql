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
