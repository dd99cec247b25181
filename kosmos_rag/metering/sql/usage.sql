-- name: has_tenant
-- A tenant has a row from its first document to its erasure; usage without it violates the foreign key.
SELECT t.tenant_id FROM kosmos.tenants t WHERE t.tenant_id = %(tenant_id)s

-- name: insert_usage
-- A batch whose commit was not confirmed is sent again, with the same ids.
INSERT INTO kosmos.usage (tenant_id, id, hour, collection, subject, quantity, model, amount, cost)
VALUES (%(tenant_id)s, %(id)s, %(hour)s, %(collection)s, %(subject)s, %(quantity)s, %(model)s, %(amount)s, %(cost)s)
ON CONFLICT DO NOTHING

-- name: read_usage
-- Sums over the hours of an interval. Of what is stored, an interval has the amount of its last hour.
WITH hours AS (
    SELECT CASE WHEN %(every)s::text IS NOT NULL THEN date_trunc(%(every)s::text, u.hour, 'UTC') END AS start,
           CASE WHEN %(by_collection)s THEN u.collection END AS collection,
           CASE WHEN %(by_subject)s THEN u.subject END AS subject,
           CASE WHEN %(by_model)s THEN u.model END AS model,
           u.quantity, u.hour, sum(u.amount) AS amount, sum(u.cost) AS cost
      FROM kosmos.usage u
     WHERE u.tenant_id = %(tenant_id)s AND u.hour >= %(since)s AND u.hour < %(until)s
       AND (%(subject)s::text IS NULL OR u.subject = %(subject)s)
     GROUP BY 1, 2, 3, 4, 5, 6
)
SELECT h.start, h.collection, h.subject, h.model, h.quantity,
       CASE WHEN h.quantity = ANY (%(levels)s::text[]) THEN (array_agg(h.amount ORDER BY h.hour DESC))[1]
            ELSE sum(h.amount) END AS amount,
       sum(h.cost) AS cost
  FROM hours h
 GROUP BY 1, 2, 3, 4, 5
 ORDER BY 1, 2, 3, 5, 4
 LIMIT %(rows)s

-- name: take_usage
-- The rows of the hours before a time, to join them.
DELETE FROM kosmos.usage u
 WHERE u.tenant_id = %(tenant_id)s AND u.hour >= %(since)s AND u.hour < %(until)s
RETURNING u.id, u.hour, u.collection, u.subject, u.quantity, u.model, u.amount, u.cost

-- name: find_split_hours
-- Closed hours with several rows of one amount.
SELECT DISTINCT g.hour
  FROM (SELECT u.hour
          FROM kosmos.usage u
         WHERE u.tenant_id = %(tenant_id)s AND u.hour >= %(since)s AND u.hour < %(until)s
         GROUP BY u.hour, u.collection, u.subject, u.quantity, u.model
        HAVING count(*) > 1) g
 ORDER BY 1

-- name: prune_usage
DELETE FROM kosmos.usage u WHERE u.tenant_id = %(tenant_id)s AND u.hour < %(before)s

-- name: measure_stored
-- What each collection has now: chunks, and bytes of the files that they were made from; zero where it had some, or its
-- last amount would stay. Nothing where this hour has it: maintenance comes every few minutes, and reads all documents here.
WITH present AS (
    SELECT d.collection, sum(v.chunks)::bigint AS chunks, sum(v.bytes)::bigint AS bytes
      FROM kosmos.documents d
      JOIN kosmos.document_versions v ON v.tenant_id = %(tenant_id)s AND v.document_id = d.id AND v.number = d.version
     WHERE d.tenant_id = %(tenant_id)s
     GROUP BY d.collection
), earlier AS (
    SELECT DISTINCT u.collection
      FROM kosmos.usage u
     WHERE u.tenant_id = %(tenant_id)s AND u.quantity = ANY (%(levels)s::text[]) AND u.amount > 0
       AND u.hour = (SELECT max(l.hour) FROM kosmos.usage l
                      WHERE l.tenant_id = %(tenant_id)s AND l.quantity = ANY (%(levels)s::text[]))
)
SELECT collection, coalesce(p.chunks, 0), coalesce(p.bytes, 0)
  FROM present p
  FULL JOIN earlier USING (collection)
 WHERE NOT EXISTS (SELECT FROM kosmos.usage u
                    WHERE u.tenant_id = %(tenant_id)s AND u.hour = %(hour)s AND u.quantity = ANY (%(levels)s::text[]))

-- name: read_totals
-- What a tenant, or one reader, has used since a time.
SELECT u.quantity, sum(u.amount), sum(u.cost)
  FROM kosmos.usage u
 WHERE u.tenant_id = %(tenant_id)s AND u.hour >= %(since)s AND (%(subject)s::text IS NULL OR u.subject = %(subject)s)
 GROUP BY u.quantity
