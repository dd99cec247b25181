-- name: citus_nodes
-- True if the extension exists; pg_dist_node exists only then.
SELECT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'citus'),
       (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user)

-- name: cluster
-- Counts the coordinator among the nodes, and the nodes that hold shards.
SELECT count(*) FILTER (WHERE n.groupid = 0), count(*) FILTER (WHERE n.groupid <> 0 AND n.isactive)
  FROM pg_catalog.pg_dist_node n

-- name: citus_tables
-- Tables of the schema that Citus knows, with the bytes of rows that the coordinator has of its own.
SELECT c.relname::text,
       (SELECT coalesce(sum(pg_relation_size(t.relid)), 0) FROM pg_partition_tree(c.oid) t WHERE t.isleaf)::bigint
  FROM pg_catalog.pg_dist_partition p
  JOIN pg_catalog.pg_class c ON c.oid = p.logicalrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'kosmos'

-- name: shard_count
-- With how many shards the tables were distributed; isolated tenants have more.
SELECT c.shardcount
  FROM pg_catalog.pg_dist_colocation c
  JOIN pg_catalog.pg_dist_partition p ON p.colocationid = c.colocationid
 WHERE p.logicalrelid = %(table)s::regclass

-- name: citus_functions
-- Functions of the schema that are distributed to the workers.
SELECT o.objid::regprocedure::text
  FROM pg_catalog.pg_dist_object o
  JOIN pg_catalog.pg_proc f ON f.oid = o.objid
  JOIN pg_catalog.pg_namespace n ON n.oid = f.pronamespace
 WHERE o.classid = 'pg_catalog.pg_proc'::regclass AND n.nspname = 'kosmos'

-- name: references
-- Foreign keys between the tables of the schema.
SELECT c.conname::text, f.relname::text, t.relname::text, pg_get_constraintdef(c.oid)
  FROM pg_catalog.pg_constraint c
  JOIN pg_catalog.pg_class f ON f.oid = c.conrelid
  JOIN pg_catalog.pg_class t ON t.oid = c.confrelid
 WHERE c.connamespace = 'kosmos'::regnamespace AND c.contype = 'f' AND c.conparentid = 0
 ORDER BY f.relname, c.conname

-- name: prepared_for_citus
-- True if the database setting, and the owner's attribute, are as provisioning sets them, and Citus knows the roles.
SELECT EXISTS (SELECT FROM pg_catalog.pg_db_role_setting s
                 JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase
                WHERE d.datname = current_database() AND s.setrole = 0
                  AND 'citus.propagate_set_commands=local' = ANY (s.setconfig)),
       (SELECT r.rolcanlogin FROM pg_catalog.pg_roles r WHERE r.rolname = 'kosmos_owner'),
       (SELECT count(*) = 3
          FROM pg_catalog.pg_dist_object o
          JOIN pg_catalog.pg_roles r ON r.oid = o.objid
         WHERE o.classid = 'pg_catalog.pg_authid'::regclass
           AND r.rolname IN ('kosmos_owner', 'kosmos_app', 'kosmos_worker'))

-- name: tenant_placement
-- The shard that holds the vectors of a tenant, and its node.
SELECT p.shardid, n.nodename, n.nodeport
  FROM pg_catalog.pg_dist_placement p
  JOIN pg_catalog.pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary'
 WHERE p.shardid = get_shard_id_for_distribution_column('kosmos.embeddings', %(tenant_id)s::uuid)

-- name: metadata_nodes
-- Each of them has the placements of all shards.
SELECT n.nodename, n.nodeport
  FROM pg_catalog.pg_dist_node n
 WHERE n.isactive AND n.noderole = 'primary' AND n.groupid <> 0 AND n.hasmetadata AND n.metadatasynced
 ORDER BY n.nodeid

-- name: run_on_node
-- Runs one statement on one node, outside transactions, as the current role.
SELECT r.success, r.result
  FROM master_run_on_worker(ARRAY[%(host)s::text], ARRAY[%(port)s::integer], ARRAY[%(command)s::text], false) r

-- name: set_node_timeout
-- In milliseconds: how long the coordinator waits for a node that is silent.
SET LOCAL citus.node_connection_timeout = 2000

-- name: node_states
-- The nodes that hold shards, and whether the coordinator can log in there as the current role.
SELECT n.nodeid, n.nodename || ':' || n.nodeport, citus_check_connection_to_node(n.nodename, n.nodeport)
  FROM pg_catalog.pg_dist_node n
 WHERE n.isactive AND n.noderole = 'primary' AND n.shouldhaveshards
 ORDER BY n.nodeid

-- name: shards_by_node
SELECT n.nodeid, count(*)
  FROM pg_catalog.pg_dist_shard s
  JOIN pg_catalog.pg_dist_placement p ON p.shardid = s.shardid
  JOIN pg_catalog.pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary'
 WHERE s.logicalrelid = 'kosmos.tenants'::regclass
 GROUP BY n.nodeid

-- name: bytes_by_node
SELECT n.nodeid, sum(c.shard_size)
  FROM pg_catalog.citus_shards c
  JOIN pg_catalog.pg_dist_node n ON n.nodename = c.nodename AND n.nodeport = c.nodeport
 GROUP BY n.nodeid

-- name: tenant_shard
-- The node of a tenant, its shard of `tenants`, and whether the shard covers the hash of this tenant alone.
SELECT n.nodeid, s.shardid, s.shardminvalue = s.shardmaxvalue
  FROM pg_catalog.pg_dist_shard s
  JOIN pg_catalog.pg_dist_placement p ON p.shardid = s.shardid
  JOIN pg_catalog.pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary'
 WHERE s.shardid = get_shard_id_for_distribution_column('kosmos.tenants', %(tenant_id)s::uuid)

-- name: move_shard
-- With all shards that are colocated with it. Logical replication is refused where row-level security is forced.
SELECT citus_move_shard_placement(%(shard)s, %(source)s, %(target)s, 'block_writes')

-- name: isolate_tenant
-- Splits the shards of all tables.
SELECT isolate_tenant_to_new_shard('kosmos.tenants', %(tenant_id)s::uuid, 'CASCADE', 'block_writes')
