-- name: lock_erasures
-- One erasure of a tenant at a time: the records of erasures are numbered, and each carries the hash of the one before.
SELECT pg_advisory_xact_lock(hashtextextended('kosmos:erasures:' || %(tenant_id)s::uuid::text, 0))

-- name: lock_job_errors
-- The jobs that `erase_job_errors` may change, before those of documents: a pass has locked its job when it locks these.
SELECT FROM kosmos.jobs j
 WHERE j.tenant_id = %(tenant_id)s AND j.kind <> 'document' AND j.error IS NOT NULL
 ORDER BY j.tenant_id, j.key
   FOR UPDATE

-- name: erase_document_jobs
-- Jobs of documents, waiting, running and finished ones. A running job loses its lease with its row. Locks in the order
-- of `lock_leases`, as in cancel_jobs. Returns the runs that wait for the jobs.
DELETE FROM kosmos.jobs j
 USING (SELECT n.tenant_id, n.id
          FROM kosmos.jobs n
         WHERE n.tenant_id = %(tenant_id)s AND n.kind = 'document'
           AND (coalesce(n.payload #>> '{document,source}', n.payload #>> '{entry,source}') LIKE %(pattern)s
                OR n.payload #>> ARRAY['document', 'metadata', %(key)s] = %(value)s
                OR n.payload #> ARRAY['document', 'metadata', %(key)s] @> to_jsonb(%(value)s::text)
                OR n.key = ANY (%(keys)s::text[]))
         ORDER BY n.tenant_id, n.key
           FOR UPDATE) o
 WHERE j.tenant_id = o.tenant_id AND j.id = o.id
RETURNING j.id, j.key, coalesce(j.payload #>> '{document,source}', j.payload #>> '{entry,source}'),
          CASE WHEN j.finished_at IS NULL THEN j.sync_run_ids ELSE '{}' END

-- name: files_of_jobs_to_erase
-- Files whose jobs have the metadata, or the source, and no document yet.
SELECT (j.payload ->> 'file')::uuid
  FROM kosmos.jobs j
 WHERE j.tenant_id = %(tenant_id)s AND j.kind = 'document' AND j.payload ? 'file'
   AND (j.payload #>> '{document,source}' LIKE %(pattern)s
        OR j.payload #>> ARRAY['document', 'metadata', %(key)s] = %(value)s
        OR j.payload #> ARRAY['document', 'metadata', %(key)s] @> to_jsonb(%(value)s::text))

-- name: documents_to_erase
SELECT d.id, d.collection, d.source
  FROM kosmos.documents d
 WHERE d.tenant_id = %(tenant_id)s
   AND (d.source LIKE %(pattern)s
        OR (d.file_id IS NOT NULL AND regexp_replace(d.source, '#part-[0-9]+$', '') LIKE %(pattern)s)
        OR d.metadata ->> %(key)s = %(value)s
        OR d.metadata -> %(key)s @> to_jsonb(%(value)s::text))
 ORDER BY d.collection, d.source

-- name: rows_of_documents
SELECT (SELECT count(*) FROM kosmos.document_versions v
         WHERE v.tenant_id = %(tenant_id)s AND v.document_id = ANY (%(document_ids)s::uuid[])),
       (SELECT count(*) FROM kosmos.chunks c
         WHERE c.tenant_id = %(tenant_id)s AND c.document_id = ANY (%(document_ids)s::uuid[])),
       (SELECT count(*)
          FROM kosmos.embeddings e
          JOIN kosmos.chunks c ON c.tenant_id = %(tenant_id)s AND c.id = e.chunk_id
         WHERE e.tenant_id = %(tenant_id)s AND c.document_id = ANY (%(document_ids)s::uuid[]))

-- name: erase_document_permissions
DELETE FROM kosmos.document_permissions p
 WHERE p.tenant_id = %(tenant_id)s AND p.document_id = ANY (%(document_ids)s::uuid[])

-- name: erase_sync_failures
-- The counts of a run stay; the names and errors of erased documents go.
UPDATE kosmos.sync_runs r
   SET failures = (SELECT coalesce(jsonb_agg(f.entry ORDER BY f.number), '[]')
                     FROM jsonb_array_elements(r.failures) WITH ORDINALITY AS f (entry, number)
                    WHERE (f.entry ->> 'source' = ANY (%(sources)s::text[])
                           OR coalesce(f.entry ->> 'source' LIKE %(pattern)s, false)) IS NOT TRUE)
 WHERE r.tenant_id = %(tenant_id)s
   AND EXISTS (SELECT FROM jsonb_array_elements(r.failures) AS f (entry)
                WHERE f.entry ->> 'source' = ANY (%(sources)s::text[]) OR f.entry ->> 'source' LIKE %(pattern)s)

-- name: erase_sync_errors
-- The error of a pass may name an erased document, as a word of its own: a source may be a single letter. What is looked
-- for as text first is empty for a pattern.
UPDATE kosmos.sync_runs r
   SET error = 'erased'
 WHERE r.tenant_id = %(tenant_id)s
   AND EXISTS (SELECT FROM unnest(%(mentioned)s::text[], %(mentions)s::text[]) AS s (name, mention)
                WHERE strpos(r.error, s.name) > 0 AND r.error ~ s.mention)

-- name: erase_job_errors
-- So may the error of a job that is of no document, such as a pass over a permission feed.
UPDATE kosmos.jobs j
   SET error = 'erased'
 WHERE j.tenant_id = %(tenant_id)s AND j.kind <> 'document'
   AND EXISTS (SELECT FROM unnest(%(mentioned)s::text[], %(mentions)s::text[]) AS s (name, mention)
                WHERE strpos(j.error, s.name) > 0 AND j.error ~ s.mention)

-- name: erase_document_feedback
DELETE FROM kosmos.feedback f
 WHERE f.tenant_id = %(tenant_id)s AND (f.source = ANY (%(sources)s::text[]) OR f.source LIKE %(pattern)s)

-- name: erase_comments
-- A comment on a whole retrieval may quote any of its passages. What an event that the log no longer has delivered is not
-- known.
UPDATE kosmos.feedback f
   SET comment = NULL
 WHERE f.tenant_id = %(tenant_id)s AND f.comment IS NOT NULL AND f.source IS NULL
   AND (EXISTS (SELECT FROM kosmos.audit_passages p
                 WHERE p.tenant_id = %(tenant_id)s AND p.event_id = f.retrieval_id
                   AND (p.document_id = ANY (%(document_ids)s::uuid[]) OR p.source LIKE %(pattern)s))
        OR NOT EXISTS (SELECT FROM kosmos.audit_events e
                        WHERE e.tenant_id = %(tenant_id)s AND e.id = f.retrieval_id))

-- name: sources_in_use
SELECT d.source FROM kosmos.documents d WHERE d.tenant_id = %(tenant_id)s AND d.source = ANY (%(names)s::text[])

-- name: places_of_erased_documents
-- What evaluations, and the reasons of monitor runs, call places in erased documents: SOURCE#HEADING:FIRST-LAST, of which
-- each part but the first may be absent. A source may have a # too.
SELECT DISTINCT n.place
  FROM (SELECT unnest(r.ranking) FROM kosmos.evaluation_results r WHERE r.tenant_id = %(tenant_id)s
         UNION ALL
        SELECT jsonb_object_keys(r.judged) FROM kosmos.evaluation_results r WHERE r.tenant_id = %(tenant_id)s
         UNION ALL
        SELECT (regexp_matches(r.reason, '\(([^()]*(?:\([^()]*\)[^()]*)*)\) is (?:gone|changed)', 'g'))[1]
          FROM kosmos.monitor_runs r
         WHERE r.tenant_id = %(tenant_id)s AND r.kind = 'questions') AS n (place)
 WHERE n.place = ANY (%(names)s::text[])
    OR EXISTS (SELECT
                 FROM string_to_array(regexp_replace(n.place, ':[0-9]+-[0-9]+$', ''), '#') AS p (parts)
                CROSS JOIN generate_series(1, cardinality(p.parts)) AS k (number)
                CROSS JOIN array_to_string(p.parts[:k.number], '#') AS s (name)
                WHERE s.name = ANY (%(names)s::text[]) OR s.name LIKE %(pattern)s)

-- name: erase_evaluated_places
-- The measures stay; the names of erased documents go.
UPDATE kosmos.evaluation_results r
   SET judged = r.judged - %(places)s::text[],
       ranking = ARRAY(SELECT CASE WHEN n.name = ANY (%(places)s::text[]) THEN 'erased' ELSE n.name END
                         FROM unnest(r.ranking) WITH ORDINALITY AS n (name, number)
                        ORDER BY n.number)
 WHERE r.tenant_id = %(tenant_id)s AND (r.judged ?| %(places)s::text[] OR r.ranking && %(places)s::text[])

-- name: erase_places_of_reasons
UPDATE kosmos.monitor_runs r
   SET reason = 'erased'
 WHERE r.tenant_id = %(tenant_id)s AND r.kind = 'questions'
   AND EXISTS (SELECT FROM unnest(%(places)s::text[]) AS n (name) WHERE strpos(r.reason, '(' || n.name || ') is ') > 0)

-- name: erase_idempotency_keys_of_jobs
DELETE FROM kosmos.idempotency_keys k WHERE k.tenant_id = %(tenant_id)s AND k.job_id = ANY (%(job_ids)s::uuid[])

-- name: erase_subject_feedback
DELETE FROM kosmos.feedback f WHERE f.tenant_id = %(tenant_id)s AND f.subject = %(subject)s

-- name: erase_subject_samples
-- A sample has the principals of its reader and no subject. The service adds one for the subject, `user:NAME`.
DELETE FROM kosmos.monitor_samples s
 WHERE s.tenant_id = %(tenant_id)s AND s.principals && ARRAY[%(subject)s, 'user:' || %(subject)s]

-- name: erase_subject_questions
-- Of a reader by name, and by the principal that the service adds for it.
DELETE FROM kosmos.unanswered_questions u
 WHERE u.tenant_id = %(tenant_id)s
   AND (u.subject = %(subject)s OR u.principals && ARRAY[%(subject)s, 'user:' || %(subject)s])

-- name: erase_subject_answers
-- An answer that is checked has no principals any more.
DELETE FROM kosmos.answer_samples s
 WHERE s.tenant_id = %(tenant_id)s
   AND (s.subject = %(subject)s OR s.principals && ARRAY[%(subject)s, 'user:' || %(subject)s])

-- name: erase_answers_from_documents
-- Answers that wait for their check may have text of each document of their context.
DELETE FROM kosmos.answer_samples s
 WHERE s.tenant_id = %(tenant_id)s
   AND (s.sources && %(sources)s::text[]
        OR EXISTS (SELECT FROM unnest(s.sources) AS n (name) WHERE n.name LIKE %(pattern)s))

-- name: erase_subject_results
-- Questions in evaluations that were judged by feedback of this reader alone. The measures stay.
UPDATE kosmos.evaluation_results r
   SET question = 'erased'
 WHERE r.tenant_id = %(tenant_id)s
   AND r.question_id IN (SELECT j.question_id
                           FROM kosmos.judged_questions j
                          WHERE j.tenant_id = %(tenant_id)s AND j.subjects = ARRAY[%(subject)s])

-- name: erase_subject_judgements
DELETE FROM kosmos.judged_questions j
 WHERE j.tenant_id = %(tenant_id)s AND j.subjects = ARRAY[%(subject)s]

-- name: erase_subject_of_judgements
-- Other readers have asked the question too.
UPDATE kosmos.judged_questions j
   SET subjects = array_remove(j.subjects, %(subject)s), judge = nullif(j.judge, %(subject)s)
 WHERE j.tenant_id = %(tenant_id)s AND (%(subject)s = ANY (j.subjects) OR j.judge = %(subject)s)

-- name: erase_results_of_documents
-- The question of a reader in evaluations. Without its judged question a later erasure of the reader would not find it.
UPDATE kosmos.evaluation_results r
   SET question = 'erased'
 WHERE r.tenant_id = %(tenant_id)s
   AND r.question_id IN (SELECT j.question_id
                           FROM kosmos.judged_questions j
                          WHERE j.tenant_id = %(tenant_id)s
                            AND (j.source = ANY (%(sources)s::text[]) OR j.source LIKE %(pattern)s))

-- name: erase_judged_documents
DELETE FROM kosmos.judged_questions j
 WHERE j.tenant_id = %(tenant_id)s AND (j.source = ANY (%(sources)s::text[]) OR j.source LIKE %(pattern)s)

-- name: erase_subject_jobs
-- A job of an upload names the key that is charged; the collection is charged without it.
UPDATE kosmos.jobs j
   SET payload = j.payload - 'subject'
 WHERE j.tenant_id = %(tenant_id)s AND j.kind = 'document' AND j.payload ->> 'subject' = %(subject)s

-- name: erase_subject_usage
-- The amounts are the tenant's; who used them is erased.
UPDATE kosmos.usage u SET subject = NULL WHERE u.tenant_id = %(tenant_id)s AND u.subject = %(subject)s

-- name: mirrors_of_tenant
-- Periodic jobs that read a source: an erased document that is still there is ingested again.
SELECT count(*) FROM kosmos.jobs j WHERE j.tenant_id = %(tenant_id)s AND j.kind = 'sync' AND j.every_s IS NOT NULL

-- name: retained_audit_events
-- Nobody may change the audit log: its months are dropped when their retention ends.
SELECT count(*), max(r.at)
  FROM kosmos.audit_events r
 WHERE r.tenant_id = %(tenant_id)s AND (%(subject)s::text IS NULL OR r.subject = %(subject)s)

-- name: retained_audit_passages
SELECT count(*), max(p.at)
  FROM kosmos.audit_passages p
 WHERE p.tenant_id = %(tenant_id)s
   AND (%(document_ids)s::uuid[] IS NULL OR p.document_id = ANY (%(document_ids)s::uuid[]))

-- name: erasures
SELECT e.number, e.at, e.kind, e.selector_sha256, e.erased, e.retained, e.sha256
  FROM kosmos.erasures e
 WHERE e.tenant_id = %(tenant_id)s
 ORDER BY e.number

-- name: insert_erasure
INSERT INTO kosmos.erasures (tenant_id, number, at, kind, selector_sha256, erased, retained, sha256)
VALUES (%(tenant_id)s, %(number)s, %(at)s, %(kind)s, %(selector_sha256)s, %(erased)s, %(retained)s, %(sha256)s)

-- name: delete_planner_statistics
-- Of our tables, their partitions and indexes: samples of values, whatever became of the rows.
DELETE FROM pg_catalog.pg_statistic s
 USING pg_catalog.pg_class c, pg_catalog.pg_namespace n
 WHERE s.starelid = c.oid AND c.relnamespace = n.oid AND n.nspname = 'kosmos'

-- name: count_wal_files
SELECT count(*) FROM pg_ls_waldir()

-- name: switch_wal_file
-- An empty file is not switched: the message is a write.
SELECT pg_logical_emit_message(false, 'kosmos', 'switch'), pg_switch_wal()

-- name: reload_configuration
SELECT pg_reload_conf()

-- name: wal_recycle
SELECT current_setting('wal_recycle')

-- name: lock_tenant
-- Each row of a tenant refers to this one, through others or itself: what writes such a row has ended, or waits from
-- here to the commit.
SELECT FROM kosmos.tenants t WHERE t.tenant_id = %(tenant_id)s FOR UPDATE

-- name: clear_live_space
-- The reference to the live space would keep it from being deleted.
UPDATE kosmos.tenants t SET live_space_id = NULL WHERE t.tenant_id = %(tenant_id)s

-- name: erase_jobs
DELETE FROM kosmos.jobs j WHERE j.tenant_id = %(tenant_id)s

-- name: files_to_erase
-- Files by name, and those that erased documents were made from.
SELECT f.id
  FROM kosmos.files f
 WHERE f.tenant_id = %(tenant_id)s
   AND (f.filename LIKE %(pattern)s OR f.id = ANY (%(job_files)s::uuid[])
        OR EXISTS (SELECT FROM kosmos.vector_store_files a
                    WHERE a.tenant_id = %(tenant_id)s AND a.file_id = f.id
                      AND a.document_id = ANY (%(document_ids)s::uuid[])))

-- name: documents_of_files
SELECT d.id, d.collection, d.source
  FROM kosmos.vector_store_files a
  JOIN kosmos.documents d ON d.tenant_id = %(tenant_id)s AND d.id = a.document_id
 WHERE a.tenant_id = %(tenant_id)s AND a.file_id = ANY (%(file_ids)s::uuid[])

-- name: erase_uploader
-- The file is its tenant's; who uploaded it is erased.
UPDATE kosmos.files f
   SET acl = array_remove(f.acl, %(uploader)s)
 WHERE f.tenant_id = %(tenant_id)s AND %(uploader)s = ANY (f.acl)

-- name: erase_files
DELETE FROM kosmos.files f WHERE f.tenant_id = %(tenant_id)s AND f.id = ANY (%(file_ids)s)

-- name: attached_documents
-- Of files that are attached, with and without a document.
SELECT a.document_id FROM kosmos.vector_store_files a WHERE a.tenant_id = %(tenant_id)s AND a.file_id = ANY (%(file_ids)s)
