"""Read the state of a search, or its passages, in one statement without a transaction.

A search that a process answers from its memory asks the server for the state of the tenant, and for passages that it
has not read before. In a transaction that took BEGIN, the context of the tenant and COMMIT besides, each a message that
both sides handle. These functions set the context for themselves, until the transaction of their statement ends. They
run as their caller, so row-level security decides as before. Older code does not call them.
"""

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

SEARCH_STATE = """
CREATE FUNCTION kosmos.search_state_of_reader(tenant uuid, readers text[], of_collection text, texts text[],
                                              text_weights double precision[])
    RETURNS json LANGUAGE plpgsql SET plan_cache_mode = 'auto'
    AS $$
    BEGIN
        PERFORM kosmos.set_tenant_context(tenant, readers);
        RETURN kosmos.search_state(tenant, of_collection, texts, text_weights);
    END
    $$;
"""

# Columns after the first are those of `located_passages`.
PASSAGES = """
CREATE FUNCTION kosmos.passages_of_reader(tenant uuid, readers text[], of_collection text, ids uuid[])
    RETURNS TABLE (epochs json, chunk_id uuid, document_id uuid, version_id uuid, version integer, source text,
                   title text, media_type text, metadata jsonb, chunk_index integer, section text[], start integer,
                   "end" integer, line_start integer, line_end integer, page_start integer, page_end integer,
                   "text" text, chunker text, collection text, parent_start integer, parent_end integer, notes jsonb,
                   principals text[], table_context text[], place_spans jsonb)
    LANGUAGE plpgsql SET plan_cache_mode = 'auto'
    AS $$
    #variable_conflict use_column
    BEGIN
        PERFORM kosmos.set_tenant_context(tenant, readers);
        -- One statement, so the epochs and the passages are of one snapshot.
        RETURN QUERY
        SELECT e.epochs, p.*
          FROM (SELECT json_object_agg(s.collection, s.epoch) AS epochs
                  FROM (SELECT n.collection, max(n.epoch) AS epoch
                          FROM kosmos.acl_statistics n
                         WHERE n.tenant_id = tenant AND (of_collection IS NULL OR n.collection = of_collection)
                         GROUP BY n.collection) s) e
         CROSS JOIN kosmos.located_passages(tenant, ids) p;
    END
    $$;
"""


def upgrade() -> None:
    """Create both functions."""
    op.execute(SEARCH_STATE)
    op.execute(PASSAGES)


def downgrade() -> None:
    """Drop them. No data is lost."""
    op.execute("DROP FUNCTION kosmos.passages_of_reader(uuid, text[], text, uuid[])")
    op.execute("DROP FUNCTION kosmos.search_state_of_reader(uuid, text[], text, text[], double precision[])")
