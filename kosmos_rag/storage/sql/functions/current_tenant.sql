-- Returns the tenant of the context; NULL outside one. Policies call this function.
CREATE OR REPLACE FUNCTION kosmos.current_tenant()
    RETURNS uuid
    LANGUAGE sql
    STABLE PARALLEL SAFE
AS $function$
SELECT NULLIF(current_setting('kosmos.tenant', true), '')::uuid
$function$
