-- name: create_outbox
-- The outbox of changed documents in the database of a source. `key` is the id of a document; null: all may have changed.
-- `emptied`: all documents were deleted on purpose.
CREATE TABLE IF NOT EXISTS {outbox} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE {outbox} ADD COLUMN IF NOT EXISTS emptied boolean NOT NULL DEFAULT false;
GRANT USAGE ON SCHEMA {schema} TO {reader};
GRANT SELECT, DELETE, INSERT (key, emptied) ON {outbox} TO {reader};

-- name: create_triggers
-- The rights of the function are those of its owner, so writers need none on the outbox. Where nobody reads the outbox,
-- it stops at a number of rows, and the next pass compares all documents. A change that is not recorded shares the lock of
-- the outbox until its transaction ends: a pass waits for it, and compares afterwards. Where a pass has the lock, or waits
-- for it, the change is recorded. The second check sees what passes have committed before the transaction shared the
-- lock; the snapshot of a repeatable read is older, and locking the oldest row finds whether a pass has deleted it.
-- TRUNCATE is always recorded: its row lets a comparison remove all documents.
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    IF TG_OP <> 'TRUNCATE' AND (SELECT max(o.id) - min(o.id) FROM {outbox} o) >= {max_rows} THEN
        IF pg_try_advisory_xact_lock_shared({lock_class}, {outbox_name}::regclass::integer) THEN
            BEGIN
                PERFORM FROM {outbox} o
                  WHERE o.id = (SELECT min(f.id) FROM {outbox} f)
                    AND (SELECT max(l.id) FROM {outbox} l) - o.id >= {max_rows}
                    FOR KEY SHARE SKIP LOCKED;
                IF FOUND THEN
                    RETURN NULL;
                END IF;
            EXCEPTION WHEN serialization_failure THEN
                NULL; -- deleted since the snapshot of a repeatable read
            END;
        END IF;
    END IF;
    IF TG_OP = 'TRUNCATE' THEN
        INSERT INTO {outbox} (key, emptied) VALUES (NULL, true);
    ELSIF TG_OP = 'INSERT' THEN
        INSERT INTO {outbox} (key) SELECT DISTINCT format('%s', n.{column}) FROM new_rows n WHERE n.{column} IS NOT NULL;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO {outbox} (key) SELECT DISTINCT format('%s', o.{column}) FROM old_rows o WHERE o.{column} IS NOT NULL;
    ELSE
        INSERT INTO {outbox} (key)
        SELECT format('%s', o.{column}) FROM old_rows o WHERE o.{column} IS NOT NULL
        UNION
        SELECT format('%s', n.{column}) FROM new_rows n WHERE n.{column} IS NOT NULL;
    END IF;
    IF FOUND THEN
        PERFORM pg_notify({channel}, '');
    END IF;
    RETURN NULL;
END
$body$;
REVOKE ALL ON FUNCTION {function}() FROM PUBLIC;
CREATE OR REPLACE TRIGGER {on_insert} AFTER INSERT ON {table}
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION {function}();
CREATE OR REPLACE TRIGGER {on_update} AFTER UPDATE ON {table}
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION {function}();
CREATE OR REPLACE TRIGGER {on_delete} AFTER DELETE ON {table}
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION {function}();
CREATE OR REPLACE TRIGGER {on_truncate} AFTER TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {function}();

-- name: lock_outbox
-- Waits for transactions with changes that are not recorded. The next statement sees their rows.
SELECT pg_advisory_xact_lock({lock_class}, {outbox_name}::regclass::integer)

-- name: try_lock_outbox
SELECT pg_try_advisory_xact_lock({lock_class}, {outbox_name}::regclass::integer)

-- name: limit_waiting
-- A writer may have an open transaction for long: the pass must not be taken for a stuck one.
SET LOCAL lock_timeout = '30s'

-- name: take_changes
-- The oldest changes. A rollback returns them.
DELETE FROM {outbox} o
 WHERE o.id IN (SELECT t.id FROM {outbox} t ORDER BY t.id LIMIT %(limit)s)
RETURNING o.id, o.key, o.emptied

-- name: find_newest_change
SELECT max(o.id) FROM {outbox} o

-- name: take_all_changes
-- Returns whether all documents were deleted on purpose.
WITH taken AS (DELETE FROM {outbox} RETURNING emptied)
SELECT coalesce(bool_or(t.emptied), false) FROM taken t

-- name: mark_comparison
-- Stands for the changes that a comparison of all documents replaces, until it has ended.
INSERT INTO {outbox} (key, emptied) VALUES (NULL, %(emptied)s) RETURNING id

-- name: unmark_comparison
-- A mark stays where changes since then were not recorded: another comparison follows.
DELETE FROM {outbox} o
 WHERE o.id = %(id)s AND (SELECT max(l.id) - min(l.id) FROM {outbox} l) < {max_rows}

-- name: measure_outbox
-- Whether there are changes, whether some were not recorded, and seconds since the oldest.
SELECT count(*) > 0, coalesce(max(o.id) - min(o.id), 0) >= {max_rows},
       coalesce(extract(epoch FROM clock_timestamp() - min(o.changed_at)), 0)::double precision
  FROM (SELECT e.id, e.changed_at FROM {outbox} e WHERE e.id IN ((SELECT min(f.id) FROM {outbox} f),
                                                                 (SELECT max(l.id) FROM {outbox} l))) o

-- name: listen_for_changes
LISTEN {listening}
