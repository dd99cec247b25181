-- Sets tenant and reader of the transaction. A literal SET LOCAL and not set_config(): only the former reaches the
-- workers of a distributed server. The setting kosmos.everyone lets policies test rows for everyone before they parse
-- principals.
CREATE OR REPLACE FUNCTION kosmos.set_tenant_context(tenant uuid, principals text[])
    RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    EXECUTE format('SET LOCAL kosmos.tenant = %L', tenant);
    EXECUTE format('SET LOCAL kosmos.principals = %L', principals);
    EXECUTE format('SET LOCAL kosmos.everyone = %L',
                   CASE WHEN 'everyone' = ANY (principals) THEN 'on' ELSE 'off' END);
END
$function$
