-- name: corpus
-- What the tenant has, and which space answers for it: read in the same snapshot as the candidates.
SELECT s.chunks, t.live_space_id
  FROM kosmos.tenants t
  JOIN kosmos.corpus_statistics s ON s.tenant_id = t.tenant_id
 WHERE t.tenant_id = %(tenant_id)s AND s.tenant_id = %(tenant_id)s

-- name: dense_exact
-- Exact scan of the tenant's vectors in its live space. Vectors are normalised, so the inner product is the cosine.
-- A live space of other dimensions matches no row instead of failing: the caller sees it in `corpus` and says why.
SELECT e.chunk_id, -(e.embedding <#> %(vector)s) AS score
  FROM kosmos.embeddings e
 WHERE e.tenant_id = %(tenant_id)s
   AND e.space_id = (SELECT s.id
                       FROM kosmos.tenants t
                       JOIN kosmos.embedding_spaces s ON s.tenant_id = t.tenant_id AND s.id = t.live_space_id
                      WHERE t.tenant_id = %(tenant_id)s AND s.tenant_id = %(tenant_id)s
                        AND s.dimensions = %(dimensions)s)
   AND (NOT %(filtered)s OR e.chunk_id IN (
       SELECT c.id
         FROM kosmos.chunks c
         JOIN kosmos.documents d ON d.tenant_id = c.tenant_id AND d.id = c.document_id
        WHERE c.tenant_id = %(tenant_id)s AND d.tenant_id = %(tenant_id)s
          AND d.metadata @> %(metadata)s
          AND (cardinality(%(sources)s::text[]) = 0 OR d.source = ANY (%(sources)s)
               OR d.source LIKE ANY (%(folders)s::text[]))))
 ORDER BY e.embedding <#> %(vector)s, e.chunk_id
 LIMIT %(depth)s

-- name: lexical_exact
-- BM25 over the tenant's chunks, terms OR-ed, in two steps. `terms` holds each term frequency as saturated when the
-- chunk was written, with the average length of that moment (`pivot`): one inner product ranks all chunks, nearly.
-- The best %(pool)s of them are then scored exactly: the frequency is solved out of the stored weight, and saturated
-- again with today's average. `floor` and `drift` tell the caller whether a chunk outside the pool could belong in
-- the result: no such chunk scores above floor * drift.
WITH corpus AS MATERIALIZED (
    SELECT s.chunks, greatest(s.length, 1)::double precision / greatest(s.chunks, 1) AS average, s.lowest_pivot
      FROM kosmos.corpus_statistics s
     WHERE s.tenant_id = %(tenant_id)s
), query AS MATERIALIZED (
    SELECT l.id,
           ln(1 + (c.chunks - l.chunks + 0.5) / (l.chunks + 0.5))::double precision AS idf,
           format('{%%s:1}/%%s', l.id, %(dimensions)s::integer)::sparsevec AS axis
      FROM kosmos.lexemes l, corpus c
     WHERE l.tenant_id = %(tenant_id)s
       AND l.lexeme = ANY (tsvector_to_array(to_tsvector(%(language)s::regconfig, %(question)s)))
), question AS MATERIALIZED (
    SELECT format('{%%s}/%%s', string_agg(q.id || ':' || q.idf, ',' ORDER BY q.id),
                  %(dimensions)s::integer)::sparsevec AS weights
      FROM query q
    HAVING count(*) > 0
), pool AS MATERIALIZED (
    SELECT c.id, c.length, c.pivot, c.terms, -(c.terms <#> (SELECT weights FROM question)) AS estimate
      FROM kosmos.chunks c
     WHERE c.tenant_id = %(tenant_id)s AND c.terms <#> (SELECT weights FROM question) < 0
       AND (NOT %(filtered)s OR c.document_id IN (
           SELECT d.id
             FROM kosmos.documents d
            WHERE d.tenant_id = %(tenant_id)s
              AND d.metadata @> %(metadata)s
              AND (cardinality(%(sources)s::text[]) = 0 OR d.source = ANY (%(sources)s)
                   OR d.source LIKE ANY (%(folders)s::text[]))))
     ORDER BY c.terms <#> (SELECT weights FROM question), c.id
     LIMIT %(pool)s
), scored AS (
    SELECT p.id, sum(q.idf * f.tf * (%(k1)s + 1) / (f.tf + %(k1)s * (1 - %(b)s + %(b)s * p.length / s.average))) AS score
      FROM corpus s
     CROSS JOIN pool p
     CROSS JOIN query q,
           LATERAL (SELECT -(p.terms <#> q.axis) AS weight,
                           %(k1)s * (1 - %(b)s + %(b)s * p.length / p.pivot) AS norm) w,
           LATERAL (SELECT round(w.weight * w.norm / (%(k1)s + 1 - w.weight)) AS tf) f
     WHERE w.weight > 0
     GROUP BY p.id
)
SELECT r.id AS chunk_id, r.score,
       (SELECT count(*) FROM pool) AS pooled,
       (SELECT min(estimate) FROM pool) AS floor,
       (SELECT greatest(1, average / lowest_pivot) FROM corpus) AS drift
  FROM scored r
 ORDER BY r.score DESC, r.id
 LIMIT %(depth)s

-- name: clock
-- Between two statements of a pipeline: how long each took on the server, without a round trip for the answer.
SELECT clock_timestamp()

-- name: lexemes_of_question
-- The question's terms after analysis: none means that it holds only stop words or signs.
SELECT tsvector_to_array(to_tsvector(%(language)s::regconfig, %(question)s))

-- name: passages
SELECT c.id, c.document_id, c.version_id, d.version, d.source, d.title, d.media_type, d.metadata, c.ordinal,
       c.section, c.start_offset, c.end_offset, c.line_start, c.line_end, c.page_start, c.page_end, c.text, c.splitter
  FROM kosmos.chunks c
  JOIN kosmos.documents d ON d.tenant_id = c.tenant_id AND d.id = c.document_id
 WHERE c.tenant_id = %(tenant_id)s AND d.tenant_id = %(tenant_id)s AND c.id = ANY (%(chunk_ids)s)

-- name: version_text
-- The text between two offsets of a version: what joins neighbouring chunks without the overlap twice.
SELECT substr(v.text, %(start)s + 1, %(length)s)
  FROM kosmos.document_versions v
 WHERE v.tenant_id = %(tenant_id)s AND v.id = %(version_id)s
