-- name: extend_event_stream
-- Locks the stream until the commit, so that sequences are in the order of commits.
UPDATE kosmos.event_streams s
   SET last_sequence = s.last_sequence + %(count)s
 WHERE s.tenant_id = %(tenant_id)s AND s.recording
RETURNING s.last_sequence - %(count)s

-- name: insert_events
INSERT INTO kosmos.events (tenant_id, sequence, at, type, collection, data)
SELECT s.tenant_id, %(last)s + u.number, %(now)s, u.type, u.collection, u.data::jsonb
  FROM kosmos.event_streams s
 CROSS JOIN unnest(%(types)s::text[], %(collections)s::text[], %(data)s::text[])
       WITH ORDINALITY AS u (type, collection, data, number)
 WHERE s.tenant_id = %(tenant_id)s

-- name: set_event_recording
-- A start after a pause skips a number: who read up to the pause has missed events.
INSERT INTO kosmos.event_streams AS s (tenant_id, recording, last_sequence)
VALUES (%(tenant_id)s, %(recording)s, 0)
ON CONFLICT (tenant_id) DO UPDATE
   SET recording = excluded.recording,
       last_sequence = s.last_sequence + CASE WHEN excluded.recording AND NOT s.recording THEN 1 ELSE 0 END

-- name: event_stream
SELECT s.recording, s.last_sequence FROM kosmos.event_streams s WHERE s.tenant_id = %(tenant_id)s

-- name: list_events
SELECT e.sequence, e.at, e.type, e.collection, e.data
  FROM kosmos.events e
 WHERE e.tenant_id = %(tenant_id)s AND e.sequence > %(after)s
 ORDER BY e.sequence
 LIMIT %(limit)s

-- name: prune_events
-- By sequence, since the clocks of writers differ: what stays has no gap.
DELETE FROM kosmos.events e
 WHERE e.tenant_id = %(tenant_id)s
   AND e.sequence <= (SELECT max(p.sequence)
                        FROM kosmos.events p
                       WHERE p.tenant_id = %(tenant_id)s AND p.at < %(before)s)

-- name: erase_event_names
-- The names and errors of erased documents. The events stay, so that subscribers erase these documents too. A document
-- that failed, or was removed before, has no row: its name and the key of its job find it.
UPDATE kosmos.events e
   SET data = e.data - ARRAY['source', 'code', 'message']
 WHERE e.tenant_id = %(tenant_id)s AND e.data ?| ARRAY['source', 'code']
   AND (e.data ->> 'document_id' = ANY (%(keys)s::text[]) OR e.data ->> 'source' = ANY (%(sources)s::text[])
        OR e.data ->> 'source' LIKE %(pattern)s)

-- name: erase_event_errors
-- The error of a source may name an erased document.
UPDATE kosmos.events e
   SET data = e.data || '{"message": "erased"}'
 WHERE e.tenant_id = %(tenant_id)s
   AND EXISTS (SELECT FROM unnest(%(mentioned)s::text[], %(mentions)s::text[]) AS s (name, mention)
                WHERE strpos(e.data ->> 'message', s.name) > 0 AND e.data ->> 'message' ~ s.mention)
