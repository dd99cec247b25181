"""Jobs are taken by a function: the server keeps its plan."""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

# Planning takes longer than taking, so the plan is kept, whatever the values are. Of a table of one page any plan is
# good, and a backlog may come the next moment: one taking in a hundred has the plan made anew. The index of running
# jobs is full of those that have ended, until it is vacuumed: a plain scan marks them once and skips them, a bitmap one
# visits the rows of all of them each time. If the server crashes before a taking is on disk, the token is unknown to
# it, and the fence refuses it: nobody has to wait for the disk.
#
# Round robin by construction: tenants with the fewest running jobs come first, and among equals the lot decides, so no
# backlog of one, however long, delays another by more than a round. Each tenant gives its share of the batch. A job
# whose worker was lost is taken alone: if it takes the next worker down too, no other job is blamed.
TAKE = """
CREATE FUNCTION kosmos.take_jobs(most integer, wanted text[], by text, lease_s double precision)
RETURNS TABLE (tenant_id uuid, id bigint, tenant text, collection text, kind text, key text, payload jsonb, token uuid,
               attempt integer, lost integer, runs uuid[], waited_s double precision)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_bitmapscan = off AS $$
#variable_conflict use_column
BEGIN
    IF random() < 0.01 THEN
        DISCARD PLANS;
    END IF;
    SET LOCAL synchronous_commit TO OFF;
    RETURN QUERY
    WITH RECURSIVE lanes AS (
        (SELECT j.tenant_id FROM kosmos.jobs j WHERE j.state = 'queued' ORDER BY j.tenant_id LIMIT 1)
        UNION ALL
        SELECT (SELECT j.tenant_id FROM kosmos.jobs j
                 WHERE j.state = 'queued' AND j.tenant_id > l.tenant_id
                 ORDER BY j.tenant_id LIMIT 1)
          FROM lanes l
         WHERE l.tenant_id IS NOT NULL
    ), running AS (
        SELECT r.tenant_id, count(*) AS jobs FROM kosmos.jobs r WHERE r.state = 'running' GROUP BY r.tenant_id
    ), turns AS (
        SELECT l.tenant_id, k.kind, greatest(1, most / count(*) OVER ()) AS share
          FROM lanes l
         CROSS JOIN unnest(wanted) AS k (kind)
          LEFT JOIN running r ON r.tenant_id = l.tenant_id
         WHERE l.tenant_id IS NOT NULL
           AND EXISTS (SELECT FROM kosmos.jobs j
                        WHERE j.tenant_id = l.tenant_id AND j.kind = k.kind AND j.state = 'queued' OFFSET 0)
         ORDER BY coalesce(r.jobs, 0), random()
    ), candidates AS MATERIALIZED (
        SELECT c.tenant_id, c.id, c.lost
          FROM turns t
         CROSS JOIN LATERAL (
               SELECT j.tenant_id, j.id, j.lost
                 FROM kosmos.jobs j
                WHERE j.tenant_id = t.tenant_id AND j.kind = t.kind AND j.state = 'queued'
                ORDER BY j.priority DESC, j.id
                LIMIT t.share
                  FOR UPDATE SKIP LOCKED) c
         LIMIT most
    ), taken AS (
        SELECT n.tenant_id, n.id
          FROM (SELECT c.tenant_id, c.id, row_number() OVER (ROWS UNBOUNDED PRECEDING) AS number,
                       bool_or(c.lost > 0) OVER (ROWS UNBOUNDED PRECEDING) AS suspect
                  FROM candidates c) n
         WHERE n.number = 1 OR NOT n.suspect
    )
    UPDATE kosmos.jobs j
       SET state = 'running', token = gen_random_uuid(), lease_until = now() + make_interval(secs => take_jobs.lease_s),
           attempt = j.attempt + 1, worker = by, started_at = now(), finished_at = NULL
      FROM taken t
     WHERE j.tenant_id = t.tenant_id AND j.id = t.id
    RETURNING j.tenant_id, j.id, j.tenant, j.collection, j.kind, j.key, j.payload, j.token, j.attempt, j.lost, j.runs,
              extract(epoch FROM now() - j.run_at)::double precision;
END
$$
"""


def upgrade() -> None:
    """Create the function; it runs with its caller's rights, and only workers have rights to the queue."""
    op.execute(TAKE)


def downgrade() -> None:
    """Drop it."""
    op.execute("DROP FUNCTION kosmos.take_jobs(integer, text[], text, double precision)")
