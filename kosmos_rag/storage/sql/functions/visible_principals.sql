-- Returns those principals of a document that the reader holds. A filter on the acl compares only these: otherwise it
-- could read out the names of others, one by one. A function of its own, called for a filter on the acl only: a
-- function with a subquery is not inlined, and the planner must go on inlining matches_filter, which calls this one.
CREATE OR REPLACE FUNCTION kosmos.visible_principals(acl text[])
    RETURNS text[]
    LANGUAGE sql
    STABLE PARALLEL SAFE
AS $function$
SELECT ARRAY(SELECT p FROM unnest(acl) AS p WHERE p = ANY (kosmos.current_principals()))
$function$
