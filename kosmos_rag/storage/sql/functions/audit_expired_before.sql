-- Returns the time before which the records of the audit log have expired. Retention replaces the constant, which only
-- the owner may do: what is older was removed, and a seal need not find it. A policy calls this function.
CREATE OR REPLACE FUNCTION kosmos.audit_expired_before()
    RETURNS timestamp with time zone
    LANGUAGE sql
    STABLE PARALLEL SAFE
RETURN NULL::timestamp with time zone
