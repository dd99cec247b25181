-- name: database_exists
SELECT 1 FROM pg_catalog.pg_database WHERE datname = %(name)s

-- name: role_exists
SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = %(name)s

-- name: can_set_owner_role
-- A superuser may set any role; pg_has_role says so without a grant.
SELECT pg_has_role(current_user, 'kosmos_owner', 'SET')

-- name: set_owner_role
-- Migrations run as the owner until their transaction ends: the owner owns what they create.
SET LOCAL ROLE kosmos_owner

-- name: set_owner_role_for_session
-- For statements that run outside transactions: CREATE INDEX CONCURRENTLY.
SET ROLE kosmos_owner

-- name: lock_provisioning
-- Held to the end of the transaction: concurrent provisioning and migrations run one after another.
SELECT pg_advisory_xact_lock(hashtextextended('kosmos:provision', 0))

-- name: schema_exists
-- Reads the catalogue: a role without USAGE on the schema may not call to_regclass().
SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = 'kosmos' AND c.relname = 'alembic_version')

-- name: text_search_languages
-- Text search configurations that are visible without a schema name.
SELECT c.cfgname::text
  FROM pg_catalog.pg_ts_config c
 WHERE pg_ts_config_is_visible(c.oid)

-- name: server
-- State of the server and of the connected role. Row-level security does not bind a superuser or the owner's members.
SELECT current_setting('server_version_num')::integer AS server_version,
       (SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'vector') AS vector_version,
       (SELECT default_version FROM pg_catalog.pg_available_extensions WHERE name = 'vector') AS vector_available,
       current_user::text AS role,
       (SELECT bool_or(r.rolsuper) FROM pg_catalog.pg_roles r
         WHERE r.rolname IN (current_user, session_user)) AS is_superuser,
       (SELECT bool_or(r.rolbypassrls) FROM pg_catalog.pg_roles r
         WHERE r.rolname IN (current_user, session_user)) AS bypasses_rls,
       (SELECT coalesce(array_agg(r.rolname::text ORDER BY r.rolname), '{}') FROM pg_catalog.pg_roles r
         WHERE r.rolname IN ('kosmos_owner', 'kosmos_app', 'kosmos_worker')
           AND pg_has_role(session_user, r.oid, 'MEMBER')) AS member_of

-- name: revision
-- With the oldest revision whose code can serve from it; migrations store it as a comment.
SELECT version_num, obj_description('kosmos.alembic_version'::regclass, 'pg_class') FROM kosmos.alembic_version

-- name: unprotected_tables
-- Tables of tenant data without enabled and forced row-level security; must return no row.
SELECT c.relname::text
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'kosmos' AND c.relkind IN ('r', 'p') AND c.relname <> 'alembic_version'
   AND NOT (c.relrowsecurity AND c.relforcerowsecurity)
 ORDER BY 1

-- name: unexpected_policies
-- Each role and command has one permissive policy: a second one would be OR-ed with it, and a restrictive one turns
-- permissive on distributed tables. Each policy tests the tenant; on tables with an acl column, app_read tests it too.
-- Exceptions: a worker sees the queue of all tenants; the app role appends to the audit log and the worker role reads
-- it; partitions of the log have no policy, so no query reads past the parent, except that the owner may delete expired
-- rows of the default partitions; the app role appends samples for the recall monitor.
SELECT c.relname::text AS table_name, p.polname::text AS policy
  FROM pg_catalog.pg_policy p
  JOIN pg_catalog.pg_class c ON c.oid = p.polrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'kosmos'
   AND NOT coalesce(
       p.polname = 'owner_expire' AND c.relname IN ('audit_events_default', 'audit_passages_default')
       AND p.polroles = ARRAY['kosmos_owner'::regrole::oid] AND p.polwithcheck IS NULL
       AND pg_get_expr(p.polqual, p.polrelid) = '(at < kosmos.audit_expired_before())'
       OR p.polpermissive AND NOT c.relispartition
       AND (pg_get_expr(coalesce(p.polqual, p.polwithcheck), p.polrelid) LIKE '%%tenant_id = kosmos.current_tenant()%%'
            OR p.polname = 'worker_queue' AND c.relname IN ('jobs', 'sync_runs'))
       AND pg_get_expr(coalesce(p.polqual, p.polwithcheck), p.polrelid) NOT ILIKE '%% OR %%'
       AND (p.polname IN ('app_append', 'worker_append', 'worker_read'))
           = (c.relname IN ('audit_events', 'audit_passages', 'audit_seals')
              OR c.relname = 'monitor_samples' AND p.polname = 'app_append')
       AND CASE p.polname
           WHEN 'app_append' THEN
               p.polcmd = 'a' AND p.polroles = ARRAY['kosmos_app'::regrole::oid] AND c.relname <> 'audit_seals'
           WHEN 'worker_append' THEN
               p.polcmd = 'a' AND p.polroles = ARRAY['kosmos_worker'::regrole::oid] AND c.relname = 'audit_seals'
           WHEN 'worker_read' THEN
               p.polcmd = 'r' AND p.polroles = ARRAY['kosmos_worker'::regrole::oid]
           WHEN 'app_read' THEN
               p.polcmd = 'r' AND p.polroles = ARRAY['kosmos_app'::regrole::oid]
               AND (pg_get_expr(p.polqual, p.polrelid) LIKE '%%acl && kosmos.current_principals()%%')
                   = EXISTS (SELECT FROM pg_catalog.pg_attribute a
                              WHERE a.attrelid = c.oid AND a.attname = 'acl' AND NOT a.attisdropped)
           WHEN 'worker_all' THEN
               p.polcmd = '*' AND p.polroles = ARRAY['kosmos_worker'::regrole::oid]
               AND pg_get_expr(p.polwithcheck, p.polrelid) LIKE '%%tenant_id = kosmos.current_tenant()%%'
           WHEN 'worker_queue' THEN
               p.polcmd = '*' AND p.polroles = ARRAY['kosmos_worker'::regrole::oid]
           ELSE false END, false)
 ORDER BY 1, 2

-- name: missing_policies
SELECT c.relname::text AS table_name, wanted.policy
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 CROSS JOIN LATERAL unnest(CASE
       WHEN c.relname IN ('jobs', 'sync_runs') THEN ARRAY['app_read', 'worker_queue']
       WHEN c.relname IN ('audit_events', 'audit_passages') THEN ARRAY['app_append', 'worker_read']
       WHEN c.relname = 'audit_seals' THEN ARRAY['worker_append', 'worker_read']
       WHEN c.relname = 'monitor_samples' THEN ARRAY['app_append', 'worker_all']
       ELSE ARRAY['app_read', 'worker_all'] END) AS wanted (policy)
 WHERE n.nspname = 'kosmos' AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname <> 'alembic_version'
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_policy p WHERE p.polrelid = c.oid AND p.polname = wanted.policy)
 ORDER BY 1, 2

-- name: writable_audit_tables
-- Tables of the audit log that a serving role may change, or that the app role may read; must return no row.
SELECT c.relname::text AS table_name, r.rolname::text AS role
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_roles r ON r.rolname IN ('kosmos_app', 'kosmos_worker')
 WHERE n.nspname = 'kosmos' AND c.relkind IN ('r', 'p')
   AND (starts_with(c.relname, 'audit_events') OR starts_with(c.relname, 'audit_passages')
        OR c.relname = 'audit_seals')
   AND (has_table_privilege(r.oid, c.oid, 'DELETE, TRUNCATE') OR has_any_column_privilege(r.oid, c.oid, 'UPDATE')
        OR r.rolname = 'kosmos_app' AND has_any_column_privilege(r.oid, c.oid, 'SELECT'))
 ORDER BY 1, 2

-- name: leaking_relations
-- Materialised views, and views with the rights of their owner, show the rows of every tenant; must return no row.
SELECT c.relname::text
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'kosmos'
   AND (c.relkind = 'm'
        OR c.relkind = 'v' AND NOT coalesce('security_invoker=true' = ANY (c.reloptions), false))
 ORDER BY 1
