"""Give jobs ids of their own tenant: a sequence over all tenants showed each how much the others enqueue.

The ids are UUIDs of version 7, in the order of time. Existing jobs keep their number in the last 12 digits.
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# RFC 9562, section 5.7: milliseconds, then the version with the fraction of a millisecond in 12 bits, then random bits.
NEW_JOB_ID = """
CREATE FUNCTION kosmos.new_job_id() RETURNS uuid LANGUAGE sql VOLATILE AS $$
SELECT encode(substring(int8send(t.microseconds / 1000) FROM 3)
              || int2send((x'7000'::integer + t.microseconds % 1000 * 4096 / 1000)::smallint)
              || substring(uuid_send(gen_random_uuid()) FROM 9), 'hex')::uuid
  FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS microseconds) t
$$
"""

# The body of the function stays: it returns the columns of the table.
REPLACE_CLAIM_FUNCTION = """
DO $$
DECLARE
    signature regprocedure := 'kosmos.claim_jobs(integer, text[], text, double precision)';
    definition text := replace(pg_get_functiondef(signature), ' id {before},', ' id {after},');
BEGIN
    DROP FUNCTION kosmos.claim_jobs(integer, text[], text, double precision);
    EXECUTE definition;
END
$$
"""

_NUMBERED = "('00000000-0000-7000-8000-' || lpad(to_hex({column}), 12, '0'))::uuid"


def upgrade() -> None:
    """Rewrite the ids of jobs, and the references to them."""
    op.execute(NEW_JOB_ID)
    op.execute("ALTER TABLE kosmos.jobs ALTER COLUMN id DROP IDENTITY")
    op.execute(f"ALTER TABLE kosmos.jobs ALTER COLUMN id TYPE uuid USING {_NUMBERED.format(column='id')}")
    op.execute(
        f"ALTER TABLE kosmos.idempotency_keys ALTER COLUMN job_id TYPE uuid USING {_NUMBERED.format(column='job_id')}"
    )
    op.execute(REPLACE_CLAIM_FUNCTION.format(before="bigint", after="uuid"))


def downgrade() -> None:
    """Number the jobs anew, and delete the idempotency keys, which name jobs by id."""
    op.execute("TRUNCATE kosmos.idempotency_keys")
    op.execute("ALTER TABLE kosmos.idempotency_keys ALTER COLUMN job_id TYPE bigint USING NULL")
    op.execute("CREATE SEQUENCE kosmos.numbers_of_jobs")
    op.execute("ALTER TABLE kosmos.jobs ALTER COLUMN id TYPE bigint USING nextval('kosmos.numbers_of_jobs')")
    op.execute("ALTER TABLE kosmos.jobs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY")
    op.execute("SELECT setval(pg_get_serial_sequence('kosmos.jobs', 'id'), nextval('kosmos.numbers_of_jobs'), false)")
    op.execute("DROP SEQUENCE kosmos.numbers_of_jobs")
    op.execute(REPLACE_CLAIM_FUNCTION.format(before="uuid", after="bigint"))
    op.execute("DROP FUNCTION kosmos.new_job_id()")
