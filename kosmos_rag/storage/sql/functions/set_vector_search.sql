-- Sets how far the transaction searches the vector indexes. An iterative scan goes on beyond that where row-level
-- security or a filter leaves too few rows.
CREATE OR REPLACE FUNCTION kosmos.set_vector_search(probes integer, ef_search integer)
    RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    EXECUTE format('SET LOCAL ivfflat.probes = %s', probes);
    EXECUTE format('SET LOCAL hnsw.ef_search = %s', ef_search);
    SET LOCAL ivfflat.iterative_scan = 'relaxed_order';
    SET LOCAL hnsw.iterative_scan = 'relaxed_order';
END
$function$
