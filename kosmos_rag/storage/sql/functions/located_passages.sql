-- Reads passages by chunk. The columns are named like the fields of Passage; `principals` are those of the readers of
-- the document that this reader holds.
CREATE OR REPLACE FUNCTION kosmos.located_passages(tenant uuid, ids uuid[])
    RETURNS TABLE(chunk_id uuid, document_id uuid, version_id uuid, version integer, source text, title text,
                  media_type text, metadata jsonb, chunk_index integer, section text[], start integer, "end" integer,
                  line_start integer, line_end integer, page_start integer, page_end integer, text text, chunker text,
                  collection text, parent_start integer, parent_end integer, notes jsonb, principals text[],
                  table_context text[], place_spans jsonb)
    LANGUAGE plpgsql
    STABLE
    SET plan_cache_mode TO 'auto'
AS $function$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT c.id, c.document_id, c.version_id, d.version, d.source, d.title, d.media_type, d.metadata,
           c.chunk_index, c.section, c.start_offset, c.end_offset, c.line_start, c.line_end, c.page_start,
           c.page_end, c.text, c.chunker, d.collection, c.parent_start, c.parent_end, d.notes,
           d.principals, c.table_context, c.place_spans
      FROM unnest(ids) AS u (id)
     CROSS JOIN LATERAL (
           SELECT n.id, n.document_id, n.version_id, n.chunk_index, n.section, n.start_offset, n.end_offset,
                  n.line_start, n.line_end, n.page_start, n.page_end, n.text, n.chunker, n.parent_start,
                  n.parent_end, n.table_context, n.place_spans
             FROM kosmos.chunks n
            WHERE n.tenant_id = tenant AND n.id = u.id
           OFFSET 0) c
     CROSS JOIN LATERAL (
           SELECT n.version, n.source, n.title, n.media_type, n.collection, n.notes,
                  n.metadata - 'kosmos:source_updated' AS metadata,
                  ARRAY(SELECT p.name FROM unnest(n.acl) AS p (name)
                         WHERE p.name = ANY (kosmos.current_principals()) ORDER BY p.name) AS principals
             FROM kosmos.documents n
            WHERE n.tenant_id = tenant AND n.id = c.document_id
           OFFSET 0) d;
END
$function$
