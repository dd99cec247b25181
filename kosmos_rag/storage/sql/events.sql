-- name: extend_event_stream
-- Locks the stream until the commit, so that sequences are in the order of commits.
UPDATE kosmos.event_streams s
   SET last_sequence = s.last_sequence + %(count)s
 WHERE s.tenant_id = %(tenant_id)s AND s.recording
RETURNING s.last_sequence - %(count)s

-- name: insert_events
INSERT INTO kosmos.events (tenant_id, sequence, at, type, collection, data)
SELECT %(tenant_id)s, %(last)s + u.number, %(now)s, u.type, u.collection, u.data::jsonb
  FROM unnest(%(types)s::text[], %(collections)s::text[], %(data)s::text[])
       WITH ORDINALITY AS u (type, collection, data, number)

-- name: set_event_recording
INSERT INTO kosmos.event_streams AS s (tenant_id, recording, last_sequence)
VALUES (%(tenant_id)s, %(recording)s, 0)
ON CONFLICT (tenant_id) DO UPDATE SET recording = excluded.recording

-- name: event_stream
SELECT s.recording, s.last_sequence FROM kosmos.event_streams s WHERE s.tenant_id = %(tenant_id)s

-- name: list_events
SELECT e.sequence, e.at, e.type, e.collection, e.data
  FROM kosmos.events e
 WHERE e.tenant_id = %(tenant_id)s AND e.sequence > %(after)s
 ORDER BY e.sequence
 LIMIT %(limit)s

-- name: prune_events
DELETE FROM kosmos.events e
 WHERE e.tenant_id = %(tenant_id)s AND e.at < %(before)s

-- name: erase_event_names
-- The names and errors of erased documents. The events stay, so that subscribers erase these documents too.
UPDATE kosmos.events e
   SET data = e.data - ARRAY['source', 'code']
 WHERE e.tenant_id = %(tenant_id)s AND e.data ->> 'document_id' = ANY (%(document_ids)s::uuid[]::text[])
   AND e.data ?| ARRAY['source', 'code']
