-- Returns a UUID of version 7 (RFC 9562, section 5.7): milliseconds, then the version with the fraction of a
-- millisecond in 12 bits, then random bits. Ids of one tenant say nothing about how much others enqueue, as a sequence
-- would.
CREATE OR REPLACE FUNCTION kosmos.new_job_id()
    RETURNS uuid
    LANGUAGE sql
AS $function$
SELECT encode(substring(int8send(t.microseconds / 1000) FROM 3)
              || int2send((x'7000'::integer + t.microseconds % 1000 * 4096 / 1000)::smallint)
              || substring(uuid_send(gen_random_uuid()) FROM 9), 'hex')::uuid
  FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS microseconds) t
$function$
