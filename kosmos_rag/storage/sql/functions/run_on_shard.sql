-- Runs a function that is written as RETURN (SELECT ...) on the tables of a shard, and returns its result. A function of
-- PL/pgSQL keeps the plans of tables that it names, and shards come and go. So the session prepares the query for each
-- shard, under a name with the version of the function. Citus gave the caller the shard, so it is where the tenant is.
-- This runs as its caller, and a shard has the policies of its table.
CREATE OR REPLACE FUNCTION kosmos.run_on_shard(function_name text, shard oid, VARIADIC arguments text[])
    RETURNS json
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'auto'
AS $function$
DECLARE
    prepared text;
    run text;
    result json;
BEGIN
    SELECT concat_ws(' ', p.proname, shard, p.xmin)
      INTO STRICT prepared
      FROM pg_catalog.pg_proc p
     WHERE p.proname = function_name AND p.pronamespace = 'kosmos'::regnamespace;
    SELECT format('EXECUTE %I (%s)', prepared, string_agg(quote_nullable(a.value), ', ' ORDER BY a.number))
      INTO run
      FROM unnest(arguments) WITH ORDINALITY AS a (value, number);
    BEGIN
        BEGIN
            EXECUTE run INTO result;
        EXCEPTION WHEN invalid_sql_statement_name THEN
            PERFORM kosmos.prepare_on_shard(function_name, shard, prepared);
            EXECUTE run INTO result;
        END;
    EXCEPTION WHEN query_canceled OR OTHERS THEN
        -- The context of the error has the arguments, words of a question among them, for the log of the server.
        RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
    END;
    RETURN result;
END
$function$
