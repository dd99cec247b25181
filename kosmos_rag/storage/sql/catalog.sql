-- name: database_exists
SELECT 1 FROM pg_catalog.pg_database WHERE datname = %(name)s

-- name: role_exists
SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = %(name)s

-- name: can_set_owner_role
-- A superuser may become anybody; asking pg_has_role says so without a grant.
SELECT pg_has_role(current_user, 'kosmos_owner', 'SET')

-- name: set_owner_role
-- Migrations run as the owner, so that what they make is owned by it, until their transaction ends.
SET LOCAL ROLE kosmos_owner

-- name: set_owner_role_for_session
-- As above for statements that no transaction may hold: CREATE INDEX CONCURRENTLY.
SET ROLE kosmos_owner

-- name: lock_provisioning
-- Held to the end of the transaction: provisioning and migrating take turns, whoever starts them.
SELECT pg_advisory_xact_lock(hashtextextended('kosmos:provision', 0))

-- name: schema_exists
-- Asked of the catalogue and not by to_regclass(), which a role without USAGE on the schema may not call.
SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = 'kosmos' AND c.relname = 'alembic_version')

-- name: text_search_languages
-- The text search configurations that a name alone finds.
SELECT c.cfgname::text
  FROM pg_catalog.pg_ts_config c
 WHERE pg_ts_config_is_visible(c.oid)

-- name: server
-- What the server is and who we are on it. A superuser and the tables' owner would not be held by row-level security.
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
-- With the oldest revision whose code can serve from it, which migrating writes down.
SELECT version_num, obj_description('kosmos.alembic_version'::regclass, 'pg_class') FROM kosmos.alembic_version

-- name: unprotected_tables
-- Every table of the schema with tenant data must have row-level security enabled and forced; no row is good news.
SELECT c.relname::text
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'kosmos' AND c.relkind IN ('r', 'p') AND c.relname <> 'alembic_version'
   AND NOT (c.relrowsecurity AND c.relforcerowsecurity)
 ORDER BY 1

-- name: unexpected_policies
-- One permissive policy a role and command: a second one would be OR-ed with the first, a restrictive one turns
-- permissive on distributed tables. Each must test the tenant; where rows carry readers, reading must test them too.
-- Exceptions: of the queue a worker has to see whose turn it is; the log is appended to by one role and read by the
-- other, and its partitions have no policy, so that nothing is read past their parents, but for the owner, who may
-- delete from the default ones what is past retention; samples for the guard are added by who answers.
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
-- Nobody who serves may change or remove what is in the log, or its seals, and who answers questions may not read it.
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
-- A materialised view, and a view that runs with its owner's rights, show the rows of every tenant.
SELECT c.relname::text
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'kosmos'
   AND (c.relkind = 'm'
        OR c.relkind = 'v' AND NOT coalesce('security_invoker=true' = ANY (c.reloptions), false))
 ORDER BY 1
