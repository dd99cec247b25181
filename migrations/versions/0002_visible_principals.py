"""Show a filter only those principals of a document that the reader holds.

A filter on the acl found a document by principals of others: comparisons could read out their names, one by one.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# A function of its own, called for a filter on the acl only: a function with a subquery is not inlined, and the planner
# must go on inlining the one that calls it.
VISIBLE_PRINCIPALS = """
CREATE FUNCTION kosmos.visible_principals(acl text[]) RETURNS text[] LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT ARRAY(SELECT p FROM unnest(acl) AS p WHERE p = ANY (kosmos.current_principals())) $$;
"""

FILTER_FUNCTION = """
CREATE OR REPLACE FUNCTION kosmos.matches_filter(document kosmos.documents, condition text, condition_values jsonb,
                                                 sources text[], folders text[])
    RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT
        (cardinality(sources) = 0 OR document.source = ANY (sources) OR document.source LIKE ANY (folders))
        AND (condition IS NULL OR coalesce(jsonb_path_match(
            jsonb_build_object(
                'source', document.source, 'title', document.title, 'media_type', document.media_type,
                'language', document.language, 'collection', document.collection,
                'acl', CASE WHEN strpos(condition, '"acl"') > 0 THEN
                    to_jsonb(kosmos.visible_principals(document.acl)) END,
                'created_at', CASE WHEN strpos(condition, '"created_at"') > 0 THEN
                    to_char(document.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') END,
                'updated_at', CASE WHEN strpos(condition, '"updated_at"') > 0 THEN
                    to_char(document.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') END,
                'metadata', document.metadata),
            condition::jsonpath, condition_values), false)) $$;
"""

PREVIOUS_FILTER_FUNCTION = """
CREATE OR REPLACE FUNCTION kosmos.matches_filter(document kosmos.documents, condition text, condition_values jsonb,
                                                 sources text[], folders text[])
    RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT
        (cardinality(sources) = 0 OR document.source = ANY (sources) OR document.source LIKE ANY (folders))
        AND (condition IS NULL OR coalesce(jsonb_path_match(
            jsonb_build_object(
                'source', document.source, 'title', document.title, 'media_type', document.media_type,
                'language', document.language, 'collection', document.collection, 'acl', to_jsonb(document.acl),
                'created_at', CASE WHEN strpos(condition, '"created_at"') > 0 THEN
                    to_char(document.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') END,
                'updated_at', CASE WHEN strpos(condition, '"updated_at"') > 0 THEN
                    to_char(document.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') END,
                'metadata', document.metadata),
            condition::jsonpath, condition_values), false)) $$;
"""


def upgrade() -> None:
    """Create the function, and have the filter call it."""
    op.execute(VISIBLE_PRINCIPALS)
    op.execute(FILTER_FUNCTION)


def downgrade() -> None:
    """Have filters see all principals of a document again. No data is lost."""
    op.execute(PREVIOUS_FILTER_FUNCTION)
    op.execute("DROP FUNCTION kosmos.visible_principals(text[])")
