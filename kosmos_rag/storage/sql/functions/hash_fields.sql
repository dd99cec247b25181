-- Returns hashes of the paths and values of a JSON object: the terms of filters. Numbers are equal if their values are:
-- 1 and 1.0. A list has the terms of its elements.
CREATE OR REPLACE FUNCTION kosmos.hash_fields(fields jsonb)
    RETURNS bigint[]
    LANGUAGE sql
    IMMUTABLE PARALLEL SAFE
AS $function$
WITH RECURSIVE nodes (path, value) AS (
    SELECT '', fields
     UNION ALL
    SELECT n.path || child.step, child.value
      FROM nodes n
     CROSS JOIN LATERAL (
           SELECT chr(31) || member.key AS step, member.value
             FROM jsonb_each(CASE jsonb_typeof(n.value) WHEN 'object' THEN n.value ELSE '{}' END) member
            UNION ALL
           SELECT '', element.value
             FROM jsonb_array_elements(CASE jsonb_typeof(n.value) WHEN 'array' THEN n.value ELSE '[]' END) element
           ) child)
SELECT coalesce(array_agg(DISTINCT hashtextextended(
           (n.path || chr(30) || CASE jsonb_typeof(n.value) WHEN 'number' THEN trim_scale(n.value::numeric)::text
                                      ELSE n.value::text END) COLLATE "C", 0)), '{}')
  FROM nodes n
 WHERE jsonb_typeof(n.value) NOT IN ('object', 'array')
$function$
