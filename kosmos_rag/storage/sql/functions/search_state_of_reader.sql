-- Reads the state of a search in one statement without a transaction: the function sets the context itself, until the
-- transaction of its statement ends. It runs as its caller, so row-level security decides.
CREATE OR REPLACE FUNCTION kosmos.search_state_of_reader(tenant uuid, readers text[], of_collection text, texts text[],
                                                         text_weights double precision[])
    RETURNS json
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'auto'
AS $function$
BEGIN
    PERFORM kosmos.set_tenant_context(tenant, readers);
    RETURN kosmos.search_state(tenant, of_collection, texts, text_weights);
END
$function$
