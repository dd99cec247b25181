-- Reads what a search needs to know before it starts: collections, terms, indexes. Citus plans a statement of several
-- tables anew each time, at three times the cost of running it, so here it only finds the shard of the tenant. The plan
-- is not kept: each run of a kept plan of one shard takes 20 kB of memory in Citus 14 until the session ends.
CREATE OR REPLACE FUNCTION kosmos.search_state(tenant uuid, of_collection text, texts text[],
                                               text_weights double precision[])
    RETURNS json
    LANGUAGE plpgsql
    STABLE
    SET plan_cache_mode TO 'force_custom_plan'
AS $function$
DECLARE
    state json;
BEGIN
    IF current_setting('citus.version', true) IS NULL THEN
        RETURN kosmos.search_state_of_shard('kosmos.tenants'::regclass, tenant, of_collection, texts, text_weights);
    END IF;
    SELECT kosmos.search_state_of_shard(t.tableoid, tenant, of_collection, texts, text_weights)
      INTO state
      FROM kosmos.tenants t
     WHERE t.tenant_id = tenant;
    RETURN coalesce(state, '{"overview": null, "terms": [], "indexes": []}');
END
$function$
