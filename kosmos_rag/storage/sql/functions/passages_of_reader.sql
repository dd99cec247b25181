-- Reads passages in one statement without a transaction: the function sets the context itself, until the transaction of
-- its statement ends. It runs as its caller, so row-level security decides. The columns after the first are those of
-- located_passages. The last row has the states of the collections, as search_state has them, and nothing else. A node of
-- Citus refuses both in one statement. The states are read after the passages: passages of a later state never come with
-- earlier states.
CREATE OR REPLACE FUNCTION kosmos.passages_of_reader(tenant uuid, readers text[], of_collection text, ids uuid[])
    RETURNS TABLE(states json, chunk_id uuid, document_id uuid, version_id uuid, version integer, source text,
                  title text, media_type text, metadata jsonb, chunk_index integer, section text[], start integer,
                  "end" integer, line_start integer, line_end integer, page_start integer, page_end integer, text text,
                  chunker text, collection text, parent_start integer, parent_end integer, notes jsonb,
                  principals text[], table_context text[], place_spans jsonb)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'auto'
AS $function$
#variable_conflict use_column
BEGIN
    PERFORM kosmos.set_tenant_context(tenant, readers);
    RETURN QUERY SELECT NULL::json, p.* FROM kosmos.located_passages(tenant, ids) p;
    SELECT coalesce(json_object_agg(s.collection, s.state), '{}')
      INTO states
      FROM (SELECT n.collection,
                   encode(sha256(string_agg(uuid_send(n.acl_hash) || uuid_send(n.state), '' ORDER BY n.acl_hash)), 'hex')
                   AS state
              FROM kosmos.acl_statistics n
             WHERE n.tenant_id = tenant AND (of_collection IS NULL OR n.collection = of_collection)
             GROUP BY n.collection) s;
    RETURN NEXT;
END
$function$
