-- name: database_health
-- State of the connected database; on a distributed server, of the coordinator alone.
SELECT pg_database_size(d.oid) AS bytes,
       age(d.datfrozenxid) AS xid_age,
       (SELECT coalesce(sum(s.n_live_tup), 0)::bigint FROM pg_catalog.pg_stat_user_tables s
         WHERE s.schemaname = 'kosmos') AS live_rows,
       (SELECT coalesce(sum(s.n_dead_tup), 0)::bigint FROM pg_catalog.pg_stat_user_tables s
         WHERE s.schemaname = 'kosmos') AS dead_rows,
       (SELECT count(*) FROM pg_catalog.pg_index i
          JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
          JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = 'kosmos' AND NOT i.indisvalid) AS invalid_indexes
  FROM pg_catalog.pg_database d
 WHERE d.datname = current_database()

-- name: wal_position
-- Whether the server is a replica, how far its write-ahead log has come (of a replica: how much it has applied), and the
-- number that a server and its replicas have in common.
SELECT pg_is_in_recovery(),
       (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END
        - '0/0'::pg_lsn)::bigint,
       (SELECT s.system_identifier FROM pg_control_system() s)
