-- Returns whether a document matches a filter. The object that the condition is evaluated over has only the fields that
-- the condition names: most filters name metadata alone, and building all fields took four fifths of the time. A path
-- of another field is never part of a quoted text: quotes are escaped there. Timestamps are text of one width: their
-- order is the order of time.
CREATE OR REPLACE FUNCTION kosmos.matches_filter(document kosmos.documents, condition text, condition_values jsonb,
                                                 sources text[], folders text[])
    RETURNS boolean
    LANGUAGE sql
    STABLE PARALLEL SAFE
AS $function$
SELECT
    (cardinality(sources) = 0 OR document.source = ANY (sources) OR document.source LIKE ANY (folders))
    AND (condition IS NULL OR coalesce(
        CASE WHEN condition ~ '[$]\."(source|title|media_type|language|acl|created_at|updated_at)"' THEN
            jsonb_path_match(
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
                condition::jsonpath, condition_values)
        WHEN strpos(condition, '$."collection"') > 0 THEN
            jsonb_path_match(
                jsonb_build_object('collection', document.collection, 'metadata', document.metadata),
                condition::jsonpath, condition_values)
        ELSE
            jsonb_path_match(
                document.metadata, replace(condition, '$."metadata"', '$')::jsonpath, condition_values)
        END, false))
$function$
