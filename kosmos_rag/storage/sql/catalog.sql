-- name: database_exists
SELECT 1 FROM pg_catalog.pg_database WHERE datname = %(name)s

-- name: role_exists
SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = %(name)s

-- name: can_set_role
-- A superuser may set any role; pg_has_role says so without a grant.
SELECT pg_has_role(current_user, %(role)s, 'SET')

-- name: backup_rights
-- Whether row-level security does not bind the connected role, whether it is kosmos_backup or may act as it, and the
-- tables that this role does not read yet. pg_dump would leave their rows out, without an error.
SELECT (SELECT r.rolsuper OR r.rolbypassrls FROM pg_catalog.pg_roles r WHERE r.rolname = current_user),
       EXISTS (SELECT FROM pg_catalog.pg_roles r
                WHERE r.rolname = 'kosmos_backup' AND pg_has_role(current_user, r.oid, 'SET')),
       ARRAY(SELECT c.relname::text FROM pg_catalog.pg_class c
               JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
              WHERE n.nspname = 'kosmos' AND c.relkind = 'r' AND c.relrowsecurity
                AND NOT EXISTS (SELECT FROM pg_catalog.pg_policy p
                                 WHERE p.polrelid = c.oid AND p.polname = 'backup_read')
              ORDER BY 1)

-- name: backup_members
-- Roles that read the rows of every tenant as kosmos_backup. Members of the owner may change its policies anyway.
SELECT r.rolname::text
  FROM pg_catalog.pg_roles r
  JOIN pg_catalog.pg_roles b ON b.rolname = 'kosmos_backup'
 WHERE r.oid <> b.oid AND pg_has_role(r.oid, b.oid, 'MEMBER')
   AND NOT pg_has_role(r.oid, (SELECT o.oid FROM pg_catalog.pg_roles o WHERE o.rolname = 'kosmos_owner'), 'MEMBER')
 ORDER BY 1

-- name: limit_lock_waits
-- Whoever asks for a table waits behind a statement that waits for it.
SET LOCAL lock_timeout = '2s'

-- name: set_owner_role
-- Migrations run as the owner until their transaction ends: the owner owns what they create.
SET LOCAL ROLE kosmos_owner

-- name: set_sequential_mode
-- For migrations of distributed tables: one connection to a node after the other. Without Citus it has no effect.
SET LOCAL citus.multi_shard_modify_mode = 'sequential'

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

-- name: existing_tables
-- Reads the catalogue: a role without USAGE on the schema may not call to_regclass().
SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'kosmos' AND c.relname = ANY (%(names)s)
 ORDER BY c.relname

-- name: count_tenants
-- For an administrator: to see whether a database is empty.
SELECT count(*) FROM kosmos.tenants

-- name: sample_tenants
-- For an administrator, after a restore. Ids are hashes of names, so the first ones are any.
SELECT t.name FROM kosmos.tenants t ORDER BY t.tenant_id LIMIT %(count)s

-- name: analyze
-- After a restore: a dump holds no statistics of the planner.
ANALYZE

-- name: text_search_languages
-- Text search configurations that are visible without a schema name.
SELECT c.cfgname::text
  FROM pg_catalog.pg_ts_config c
 WHERE pg_ts_config_is_visible(c.oid)

-- name: server
-- State of the server and of the connected role. Row-level security does not bind a superuser or the owner's members.
SELECT current_setting('server_version_num')::integer AS server_version,
       (SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'vector') AS vector_version,
       -- The server reads the files of all extensions for this: only where the extension is missing.
       CASE WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'vector')
            THEN (SELECT default_version FROM pg_catalog.pg_available_extensions WHERE name = 'vector') END
           AS vector_available,
       current_user::text AS role,
       session_user::text AS login,
       (SELECT bool_or(r.rolsuper) FROM pg_catalog.pg_roles r
         WHERE r.rolname IN (current_user, session_user)) AS is_superuser

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

-- name: set_catalog_search_path
-- Expressions and types are then printed with the schema of everything that does not belong to the server itself.
SET LOCAL search_path = pg_catalog

-- name: reset_search_path
SET LOCAL search_path TO DEFAULT

-- name: skip_function_bodies
-- The server then checks the body of a function when it is called, and not when it is created.
SET LOCAL check_function_bodies TO off

-- name: reachable_roles
-- Roles that the connection may act as, by membership or SET ROLE, with their attributes.
SELECT r.rolname::text, r.rolsuper, r.rolbypassrls, r.rolcreaterole, r.rolreplication
  FROM pg_catalog.pg_roles r
 WHERE pg_has_role(session_user, r.oid, 'MEMBER') OR pg_has_role(current_user, r.oid, 'MEMBER')
 ORDER BY 1

-- name: foreign_owners
-- Objects that do not belong to kosmos_owner: the owner of a table may drop its policies.
SELECT c.relname::text, CASE c.relkind WHEN 'S' THEN 'sequence' WHEN 'v' THEN 'view' ELSE 'table' END,
       pg_get_userbyid(c.relowner)::text
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'kosmos' AND c.relkind IN ('r', 'p', 'f', 'v', 'S') AND pg_get_userbyid(c.relowner) <> 'kosmos_owner'
 UNION ALL
SELECT p.proname::text, 'function', pg_get_userbyid(p.proowner)::text
  FROM pg_catalog.pg_proc p
  JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = 'kosmos' AND pg_get_userbyid(p.proowner) <> 'kosmos_owner'
 ORDER BY 1, 2

-- name: schema_creators
-- Roles other than the owner that may create objects in the schema.
SELECT r.rolname::text
  FROM pg_catalog.pg_roles r
 WHERE r.rolname IN ('kosmos_app', 'kosmos_worker', session_user)
   AND (has_schema_privilege(r.oid, 'kosmos', 'CREATE')
        OR EXISTS (SELECT FROM pg_catalog.pg_namespace n WHERE n.nspname = 'kosmos' AND n.nspowner = r.oid))
 ORDER BY 1

-- name: policies
-- Tables with their policies; a table without one has one row.
SELECT c.relname::text, c.relispartition, p.polname::text, p.polcmd::text,
       (SELECT string_agg(CASE WHEN o = 0 THEN 'PUBLIC' ELSE pg_get_userbyid(o)::text END, ', ')
          FROM unnest(p.polroles) AS o),
       pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid), p.polpermissive
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_policy p ON p.polrelid = c.oid
 WHERE n.nspname = 'kosmos' AND c.relkind IN ('r', 'p', 'f')
 ORDER BY 1, 3

-- name: table_privileges
-- Privileges of the serving roles and of the connected login, PUBLIC's and those on single columns among them.
SELECT c.relname::text, r.rolname::text, v.privilege
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_roles r ON r.rolname IN ('kosmos_app', 'kosmos_worker', session_user)
 CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS v (privilege)
 WHERE n.nspname = 'kosmos' AND c.relkind IN ('r', 'p', 'f')
   AND (has_table_privilege(r.oid, c.oid, v.privilege)
        OR CASE WHEN v.privilege IN ('SELECT', 'INSERT', 'UPDATE', 'REFERENCES')
                THEN has_any_column_privilege(r.oid, c.oid, v.privilege) END)
 ORDER BY 1, 2, 3

-- name: schema_functions
-- With the whole definition of each, which an aggregate has none of, and the statement that drops it.
SELECT p.proname::text AS name,
       p.proname || '(' || oidvectortypes(p.proargtypes) || ')' AS signature,
       p.prosecdef AS definer,
       CASE WHEN p.prokind <> 'a' THEN pg_get_functiondef(p.oid) END AS definition,
       'DROP ROUTINE ' || p.oid::regprocedure AS removal
  FROM pg_catalog.pg_proc p
  JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = 'kosmos'
 ORDER BY 2

-- name: definer_functions
-- Functions outside the schema that run with rights which our policies do not bind, and that the login may call.
SELECT quote_ident(n.nspname) || '.' || quote_ident(p.proname), r.rolname::text
  FROM pg_catalog.pg_proc p
  JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
  JOIN pg_catalog.pg_roles r ON r.oid = p.proowner
 WHERE p.prosecdef AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'kosmos')
   AND (r.rolsuper OR r.rolbypassrls OR r.rolname IN ('kosmos_owner', 'kosmos_worker', 'kosmos_backup'))
   AND has_schema_privilege(session_user, n.oid, 'USAGE') AND has_function_privilege(session_user, p.oid, 'EXECUTE')
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
                    WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
 ORDER BY 1

-- name: outside_views
-- Views of other schemas over our tables, with the rights of their owner, that the login may read.
SELECT DISTINCT quote_ident(vn.nspname) || '.' || quote_ident(v.relname)
  FROM pg_catalog.pg_rewrite w
  JOIN pg_catalog.pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid AND d.refclassid = 'pg_class'::regclass
  JOIN pg_catalog.pg_class t ON t.oid = d.refobjid
  JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace
  JOIN pg_catalog.pg_class v ON v.oid = w.ev_class
  JOIN pg_catalog.pg_namespace vn ON vn.oid = v.relnamespace
 WHERE tn.nspname = 'kosmos' AND vn.nspname <> 'kosmos' AND v.relkind IN ('v', 'm')
   AND (v.relkind = 'm' OR NOT coalesce('security_invoker=true' = ANY (v.reloptions), false))
   AND has_any_column_privilege(session_user, v.oid, 'SELECT')
 ORDER BY 1

-- name: leaking_relations
-- Materialised views, and views with the rights of their owner, show the rows of every tenant; must return no row.
SELECT c.relname::text
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'kosmos'
   AND (c.relkind = 'm'
        OR c.relkind = 'v' AND NOT coalesce('security_invoker=true' = ANY (c.reloptions), false))
 ORDER BY 1

-- name: triggers_and_rules
-- The migrations make none: one could change a row that is written, or copy it to where our policies do not bind.
SELECT c.relname::text, 'trigger', t.tgname::text
  FROM pg_catalog.pg_trigger t
  JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'kosmos' AND NOT t.tgisinternal
 UNION ALL
SELECT c.relname::text, 'rule', w.rulename::text
  FROM pg_catalog.pg_rewrite w
  JOIN pg_catalog.pg_class c ON c.oid = w.ev_class
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'kosmos' AND c.relkind IN ('r', 'p')
 ORDER BY 1, 2, 3

-- name: unsafe_settings
-- Settings of roles and of the database that change whose rows a session reads: the context itself, checks that are off,
-- and a search path on which other functions come before those of the server, which our functions call.
SELECT CASE WHEN s.setrole = 0 THEN 'database' ELSE 'role' END, coalesce(r.rolname, current_database())::text,
       split_part(c, '=', 1)
  FROM pg_catalog.pg_db_role_setting s
  LEFT JOIN pg_catalog.pg_roles r ON r.oid = s.setrole
  LEFT JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase
 CROSS JOIN unnest(s.setconfig) AS c
 WHERE (s.setdatabase = 0 OR d.datname = current_database())
   AND (s.setrole = 0 OR r.rolname IN ('kosmos_app', 'kosmos_worker', session_user))
   AND (split_part(c, '=', 1) IN ('row_security', 'session_replication_role') OR c LIKE 'kosmos.%'
        OR c ~ '^search_path=.*[ ,"]pg_(catalog|temp)')
 ORDER BY 1, 2, 3

-- name: foreign_operators
-- The migrations make none: one could take the place of the server's in an expression.
SELECT o.oid::regoperator::text
  FROM pg_catalog.pg_operator o JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
 WHERE n.nspname = 'kosmos'
 ORDER BY 1

-- name: nullable_acls
SELECT c.relname::text
  FROM pg_catalog.pg_attribute a
  JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'kosmos' AND c.relkind IN ('r', 'p') AND a.attname IN ('tenant_id', 'acl') AND NOT a.attnotnull
 ORDER BY 1

-- name: unusual_objects
-- What no policy restricts, and what loses rows: not wrong in every installation, and not made by the migrations.
SELECT format('table kosmos.%s is UNLOGGED, and a crash of the server empties it; ALTER TABLE … SET LOGGED', c.relname)
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'kosmos' AND c.relkind IN ('r', 'p') AND c.relpersistence = 'u'
 UNION ALL
SELECT format('publication %s copies rows of every tenant to its subscribers; DROP PUBLICATION it, unless you made it for that',
              p.pubname)
  FROM pg_catalog.pg_publication p
 WHERE p.puballtables
    OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel pr JOIN pg_catalog.pg_class c ON c.oid = pr.prrelid
                 JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                WHERE pr.prpubid = p.oid AND n.nspname = 'kosmos')
    OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace pn JOIN pg_catalog.pg_namespace n ON n.oid = pn.pnnspid
                WHERE pn.pnpubid = p.oid AND n.nspname = 'kosmos')
 UNION ALL
SELECT format('event trigger %s of %s runs with every migration; drop it, unless you know what it does',
              e.evtname, pg_get_userbyid(e.evtowner))
  FROM pg_catalog.pg_event_trigger e
 WHERE e.evtenabled <> 'D'
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
                    WHERE d.classid = 'pg_event_trigger'::regclass AND d.objid = e.oid AND d.deptype = 'e')
 UNION ALL
SELECT format('table %I.%I has tenants and readers in columns, and no policy binds who may read it; REVOKE SELECT ON it',
              n.nspname, c.relname)
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname NOT IN ('kosmos', 'pg_catalog', 'information_schema') AND c.relkind IN ('r', 'p', 'm', 'f')
   AND NOT c.relrowsecurity AND has_table_privilege(session_user, c.oid, 'SELECT')
   AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped)
   AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'acl' AND NOT a.attisdropped)
 ORDER BY 1

-- name: added_columns
-- Columns that tables have beside those of the migrations: no policy depends on them, and statements do not fill them.
SELECT c.relname::text, a.attname::text
  FROM pg_catalog.pg_attribute a
  JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'kosmos' AND c.relname = ANY (%(tables)s) AND a.attnum > 0 AND NOT a.attisdropped
   AND c.relname || '.' || a.attname <> ALL (%(columns)s)
 ORDER BY 1, 2

-- name: outside_relatives
-- Tables of other schemas that inherit from ours, or that ours inherit from: a query on a parent has the policies of the
-- parent alone.
SELECT CASE pn.nspname WHEN 'kosmos' THEN p.relname ELSE c.relname END::text,
       CASE pn.nspname WHEN 'kosmos' THEN quote_ident(cn.nspname) || '.' || quote_ident(c.relname)
                       ELSE quote_ident(pn.nspname) || '.' || quote_ident(p.relname) END
  FROM pg_catalog.pg_inherits i
  JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
  JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
  JOIN pg_catalog.pg_namespace cn ON cn.oid = c.relnamespace
 WHERE (pn.nspname = 'kosmos') <> (cn.nspname = 'kosmos')
 ORDER BY 1, 2
