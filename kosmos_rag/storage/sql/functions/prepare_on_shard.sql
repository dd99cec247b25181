-- Prepares the query of a function for the tables of a shard. Shards of one range of hashes hold the same tenants. The
-- parameters of the function become columns, so that the query keeps its names. A statement takes .3 MB of the session:
-- it keeps the last 64.
CREATE OR REPLACE FUNCTION kosmos.prepare_on_shard(function_name text, shard oid, prepared text)
    RETURNS void
    LANGUAGE plpgsql
AS $function$
DECLARE
    query text;
    parameters text;
    replaced record;
    earlier record;
BEGIN
    SELECT substring(p.prosrc FROM 'RETURN (\(SELECT .*\));\s+END\s*$'),
           (SELECT string_agg(format('$%s::%s AS %I', a.number, p.proargtypes[a.number - 1]::regtype, a.name), ', ')
              FROM unnest(p.proargnames) WITH ORDINALITY AS a (name, number))
      INTO STRICT query, parameters
      FROM pg_catalog.pg_proc p
     WHERE p.proname = function_name AND p.pronamespace = 'kosmos'::regnamespace;
    -- Citus hides the names of shards in pg_class.
    FOR replaced IN
        SELECT c.relname AS name, s.shardid
          FROM pg_catalog.pg_dist_shard o
          JOIN pg_catalog.pg_dist_shard s ON s.shardminvalue = o.shardminvalue AND s.shardmaxvalue = o.shardmaxvalue
          JOIN pg_catalog.pg_class c ON c.oid = s.logicalrelid AND c.relnamespace = 'kosmos'::regnamespace
         WHERE o.shardid = substring(shard::regclass::text FROM '\d+$')::bigint
    LOOP
        query := regexp_replace(query, format('\mkosmos\.%s\M', replaced.name),
                                format('kosmos.%s_%s', replaced.name, replaced.shardid), 'g');
    END LOOP;
    FOR earlier IN
        SELECT s.name
          FROM pg_catalog.pg_prepared_statements s
         WHERE starts_with(s.name, function_name || ' ')
         ORDER BY s.prepare_time DESC
        OFFSET 63
    LOOP
        EXECUTE format('DEALLOCATE %I', earlier.name);
    END LOOP;
    EXECUTE format('PREPARE %I AS SELECT %s FROM (SELECT %s) AS arguments', prepared, query, parameters);
END
$function$
