-- Returns the principals of the reader; NULL outside a context. Policies call this function.
CREATE OR REPLACE FUNCTION kosmos.current_principals()
    RETURNS text[]
    LANGUAGE sql
    STABLE PARALLEL SAFE
AS $function$
SELECT NULLIF(current_setting('kosmos.principals', true), '')::text[]
$function$
