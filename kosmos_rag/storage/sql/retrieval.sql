-- name: search_state
-- In the snapshot of the candidates: each collection that may answer with its statistics, the terms of the texts, and the
-- indexes that are ready, in JSON. A function keeps the plans of the session, and a pooler in
-- transaction mode keeps no prepared statements.
SELECT kosmos.search_state(%(tenant_id)s, %(collection)s, %(texts)s::text[], %(weights)s::float8[])

-- name: search_state_of_reader
-- The same without a transaction, for a search in memory: the function sets tenant and principals for itself.
SELECT kosmos.search_state_of_reader(%(tenant_id)s, %(principals)s::text[], %(collection)s, %(texts)s::text[],
                                     %(weights)s::float8[])

-- name: query_routing
-- Which settings answer queries to a collection, or to all: the preset of the collection, what presets of all that may
-- answer set of the audit log, and the experiment that runs; an index lets no second one run.
SELECT (SELECT json_build_array(e.name, e.content)
          FROM kosmos.collection_presets e
         WHERE e.tenant_id = %(tenant_id)s AND e.collection = %(collection)s),
       ARRAY(SELECT e.content::jsonb -> 'rag' -> 'audit'
               FROM kosmos.collection_presets e
              WHERE e.tenant_id = %(tenant_id)s
                AND (%(collection)s::text IS NULL OR e.collection = %(collection)s)
                AND e.content::jsonb -> 'rag' -> 'audit' IS NOT NULL
              ORDER BY e.collection),
       (SELECT json_build_object('id', x.id, 'name', x.name, 'mode', x.mode, 'share', x.share, 'content', x.content)
          FROM kosmos.experiments x
         WHERE x.tenant_id = %(tenant_id)s AND x.stopped_at IS NULL
           AND x.collection IS NOT DISTINCT FROM %(collection)s::text)

-- name: close_terms
-- Words and variants of them after analysis in the languages of each collection: those that are in chunks that this
-- reader may read, and each word itself; with the languages that have the lexeme. Sent only for words that seem to be in
-- no chunk. The variants of a word are one text, whose positions distinguish them: an analysis of each takes two and a
-- half times as long. All lexemes are looked up by one scan: a search of the index for each of a thousand variants takes
-- twice as long.
WITH analysed AS MATERIALIZED (
     SELECT g.collection, g.language, w.word, w.variants = w.word AS itself, u.lexeme COLLATE "C" AS lexeme, u.positions
       FROM (SELECT DISTINCT s.collection, unnest(s.languages) AS language
               FROM kosmos.acl_statistics s
              WHERE s.tenant_id = %(tenant_id)s
                AND (%(collection)s::text IS NULL OR s.collection = %(collection)s)) g,
            unnest(%(words)b::text[], %(variants)b::text[]) AS w (word, variants),
            unnest(to_tsvector(g.language::regconfig, w.variants)) AS u (lexeme, positions, weights)),
     known AS MATERIALIZED (
     SELECT n.collection, n.lexeme, n.id, sum(n.chunks)::bigint AS chunks
       FROM kosmos.lexemes n
      WHERE n.tenant_id = %(tenant_id)s AND n.collection = ANY (ARRAY(SELECT DISTINCT a.collection FROM analysed a))
        AND n.lexeme = ANY (ARRAY(SELECT DISTINCT a.lexeme FROM analysed a))
      GROUP BY n.collection, n.lexeme, n.id)
SELECT a.collection, a.word, a.lexeme, coalesce(min((string_to_array(w.variants, ' '))[p.position]), a.word), l.id,
       l.chunks, array_agg(DISTINCT a.language)
  FROM analysed a
  LEFT JOIN known l ON l.collection = a.collection AND l.lexeme = a.lexeme
  JOIN unnest(%(words)b::text[], %(variants)b::text[]) AS w (word, variants) ON w.word = a.word
 CROSS JOIN unnest(a.positions) AS p (position)
 WHERE l.id IS NOT NULL OR a.itself
 GROUP BY a.collection, a.word, a.lexeme, l.id, l.chunks
 ORDER BY a.collection, a.word, a.lexeme

-- name: lexemes_by_prefix
-- The most frequent lexemes with a prefix, of chunks that this reader may read: a range of the primary key.
SELECT n.lexeme, n.id, sum(n.chunks)::bigint AS chunks
  FROM kosmos.lexemes n
 WHERE n.tenant_id = %(tenant_id)s AND n.collection = %(collection)s
   AND n.lexeme >= %(prefix)s COLLATE "C" AND n.lexeme < %(above)s COLLATE "C"
 GROUP BY n.lexeme, n.id
 ORDER BY chunks DESC, n.lexeme
 LIMIT 1000

-- name: required_terms
-- Phrases and required and excluded words as one tsquery: each analysed in every language that may answer.
-- Words that one of the languages does not index, its stop words, ask for nothing.
SELECT string_agg(CASE WHEN n.excluded THEN '!(' ELSE '(' END || n.alternatives || ')', ' & ')
  FROM (SELECT w.words, w.excluded,
               string_agg(DISTINCT phraseto_tsquery(g.language::regconfig, w.words)::text, ' | ') AS alternatives,
               bool_or(numnode(phraseto_tsquery(g.language::regconfig, w.words)) = 0) AS unindexed
          FROM unnest(%(phrases)s::text[], %(excluded)s::boolean[]) AS w (words, excluded),
               (SELECT DISTINCT unnest(s.languages) AS language
                  FROM kosmos.acl_statistics s
                 WHERE s.tenant_id = %(tenant_id)s
                   AND (%(collection)s::text IS NULL OR s.collection = %(collection)s)) g
         GROUP BY w.words, w.excluded) n
 WHERE NOT n.unindexed

-- name: unsegmented_scan
-- Here and below: row-level security, and tables that were never analysed, make the planner expect one row where a
-- tenant has many, and a join may then run over the whole tenant for each row. So conditions on other tables are
-- subqueries that it does not turn into joins: OFFSET 0 keeps an EXISTS or a LATERAL looked up by key, where IS TRUE
-- leaves it to the planner to run an EXISTS for the whole tenant once, and hash that.
-- kosmos.matches_filter() is given a row that is built from columns, and not d itself: a shard's own row type is another one.
--
-- BM25 over chunks that no segment holds, terms OR-ed. `terms` holds each term frequency as saturated when the chunk
-- was written, with the average length of that moment (`pivot`) and its own b. The inner product with the query, times the
-- largest ratio that the score of a term can have to its stored weight, is a bound of the score: that of a frequency of
-- one, or 1. The caller scores the best by bound exactly, and asks for more where a chunk beyond them could belong in
-- the result. Only the terms of rows that are returned are converted.
SELECT b.chunk_id, b.length, b.pivot, sparsevec_send(b.terms) AS terms, b.bound
  FROM (SELECT t.chunk_id, t.length, t.pivot, t.terms, t.bound
          FROM (SELECT l.chunk_id, l.length, l.pivot, l.terms,
                       -(l.terms <#> %(weights)s) * greatest(
                           1, (1 + %(k1)s::float8 * (1 - %(stored_b)s::float8 + %(stored_b)s::float8 * l.length / l.pivot))
                              / (1 + %(k1)s::float8 * (1 - %(b)s::float8 + %(b)s::float8 * l.length
                                                       / nullif(%(average)s::float8, 0)))) AS bound
                  FROM kosmos.unsegmented_terms l
                 WHERE l.tenant_id = %(tenant_id)s AND l.collection = %(collection)s
                   AND (NOT %(filtered)s OR EXISTS (
                       SELECT
                         FROM kosmos.documents d
                        WHERE d.tenant_id = %(tenant_id)s AND d.id = l.document_id
                          AND kosmos.matches_filter(ROW(d.*)::kosmos.documents, %(condition)s, %(condition_values)s,
                                             %(sources)s, %(folders)s)
                       OFFSET 0))
                   AND (%(required)s::text IS NULL OR EXISTS (
                       SELECT
                         FROM kosmos.chunks c
                        WHERE c.tenant_id = %(tenant_id)s AND c.id = l.chunk_id AND c.tsv @@ %(required)s::tsquery
                       OFFSET 0))
                OFFSET 0) t
         WHERE t.bound > 0
         ORDER BY t.bound DESC, t.chunk_id
         LIMIT %(pool)s) b
 ORDER BY b.bound DESC, b.chunk_id

-- name: postings
SELECT p.lexeme_id, p.offsets, p.frequencies
  FROM kosmos.postings p
 WHERE p.tenant_id = %(tenant_id)s AND p.index_id = %(index_id)s AND p.lexeme_id = ANY (%(lexeme_ids)b::integer[])

-- name: segment_chunks
SELECT s.sequences, s.lengths FROM kosmos.segments s WHERE s.tenant_id = %(tenant_id)s AND s.index_id = %(index_id)s

-- name: visible_chunks
-- Which candidates of the segments are still there, and may be shown to this reader, under this filter.
SELECT c.sequence, c.id
  FROM unnest(%(sequences)b::integer[]) AS u (sequence)
 CROSS JOIN LATERAL (
       SELECT n.sequence, n.id
         FROM kosmos.chunks n
        WHERE n.tenant_id = %(tenant_id)s AND n.collection = %(collection)s AND n.sequence = u.sequence
          AND (NOT %(filtered)s OR EXISTS (
              SELECT
                FROM kosmos.documents d
               WHERE d.tenant_id = %(tenant_id)s AND d.id = n.document_id
                 AND kosmos.matches_filter(ROW(d.*)::kosmos.documents, %(condition)s, %(condition_values)s, %(sources)s,
                                    %(folders)s)
              OFFSET 0))
          AND (%(required)s::text IS NULL OR n.tsv @@ %(required)s::tsquery)
       OFFSET 0) c

-- name: sequences_of_documents
SELECT c.collection, c.sequence
  FROM kosmos.document_versions v
 CROSS JOIN LATERAL (
       SELECT n.collection, n.sequence
         FROM kosmos.chunks n
        WHERE n.tenant_id = %(tenant_id)s AND n.version_id = v.id
       OFFSET 0) c
 WHERE v.tenant_id = %(tenant_id)s AND v.document_id = ANY (%(document_ids)s::uuid[])

-- name: filtered_documents
-- The documents that a filter, or a reader who may read little, leaves: not more than are worth listing.
SELECT d.id, v.chunks
  FROM kosmos.documents d
 CROSS JOIN LATERAL (
       SELECT n.chunks
         FROM kosmos.document_versions n
        WHERE n.tenant_id = %(tenant_id)s AND n.document_id = d.id AND n.number = d.version
       OFFSET 0) v
 WHERE d.tenant_id = %(tenant_id)s
   AND (%(collection)s::text IS NULL OR d.collection = %(collection)s)
   AND kosmos.matches_filter(ROW(d.*)::kosmos.documents, %(condition)s, %(condition_values)s, %(sources)s,
                      %(folders)s)
 LIMIT %(limit)s

-- name: documents_by_terms
-- The same by the terms of the filter, or of the reader's principals: of several conditions by that which fewest
-- documents satisfy. One row without a document where those are more than are worth listing.
WITH fewest AS MATERIALIZED (
     SELECT g.terms, n.documents
       FROM (SELECT kosmos.hash_fields(u.fields) || 0::bigint AS terms
               FROM jsonb_array_elements(%(term_groups)s::jsonb) AS u (fields)
             OFFSET 0) g
      CROSS JOIN LATERAL (
            SELECT count(*) AS documents
              FROM (SELECT
                      FROM kosmos.filter_terms t
                     WHERE t.tenant_id = %(tenant_id)s AND t.term = ANY (g.terms)
                     LIMIT %(limit)s) t
            OFFSET 0) n
      ORDER BY n.documents
      LIMIT 1)
SELECT f.documents, d.id, d.chunks
  FROM fewest f
  LEFT JOIN LATERAL (
       SELECT d.id, v.chunks
         FROM (SELECT DISTINCT n.document_id
                 FROM kosmos.filter_terms n
                WHERE n.tenant_id = %(tenant_id)s AND n.term = ANY (f.terms) AND f.documents < %(limit)s
               OFFSET 0) t
        CROSS JOIN LATERAL (
              SELECT n.id, n.version
                FROM kosmos.documents n
               WHERE n.tenant_id = %(tenant_id)s AND n.id = t.document_id
                 AND (%(collection)s::text IS NULL OR n.collection = %(collection)s)
                 AND kosmos.matches_filter(ROW(n.*)::kosmos.documents, %(condition)s, %(condition_values)s, %(sources)s,
                                    %(folders)s)
              OFFSET 0) d
        CROSS JOIN LATERAL (
              SELECT n.chunks
                FROM kosmos.document_versions n
               WHERE n.tenant_id = %(tenant_id)s AND n.document_id = d.id AND n.number = d.version
              OFFSET 0) v
       OFFSET 0) d ON true

-- name: dense_exact
-- Exact scan of the tenant's vectors in its live space. Vectors are normalised, so the inner product is the cosine.
-- Ordered by the column: an expression of its own would be computed again for each row.
SELECT e.chunk_id, -(e.embedding <#> %(vector)s) AS score
  FROM kosmos.embeddings e
 WHERE e.tenant_id = %(tenant_id)s AND e.space_id = %(space_id)s
   AND (%(collection)s::text IS NULL OR e.collection = %(collection)s)
   AND (NOT %(filtered)s OR EXISTS (
       SELECT
         FROM kosmos.chunks c
        WHERE c.tenant_id = %(tenant_id)s AND c.id = e.chunk_id
          AND EXISTS (
              SELECT
                FROM kosmos.documents d
               WHERE d.tenant_id = %(tenant_id)s AND d.id = c.document_id
                 AND kosmos.matches_filter(ROW(d.*)::kosmos.documents, %(condition)s, %(condition_values)s, %(sources)s,
                                    %(folders)s)
              ) IS TRUE) IS TRUE)
   AND (%(required)s::text IS NULL OR EXISTS (
       SELECT
         FROM kosmos.chunks c
        WHERE c.tenant_id = %(tenant_id)s AND c.id = e.chunk_id AND c.tsv @@ %(required)s::tsquery) IS TRUE)
 ORDER BY score DESC, e.chunk_id
 LIMIT %(depth)s

-- name: dense_by_documents
-- Exact scan of a few documents' vectors, reached by key. IS NOT DISTINCT FROM is = here, and no condition of an index:
-- nothing is known of how many rows a space has, and an index that begins with it would be read whole for each chunk.
SELECT e.chunk_id, -(e.embedding <#> %(vector)s) AS score
  FROM kosmos.document_versions v
 CROSS JOIN LATERAL (
       SELECT n.id
         FROM kosmos.chunks n
        WHERE n.tenant_id = %(tenant_id)s AND n.version_id = v.id
          AND (%(required)s::text IS NULL OR n.tsv @@ %(required)s::tsquery)
       OFFSET 0) c
 CROSS JOIN LATERAL (
       SELECT n.chunk_id, n.embedding
         FROM kosmos.embeddings n
        WHERE n.tenant_id = %(tenant_id)s AND n.chunk_id = c.id AND n.space_id IS NOT DISTINCT FROM %(space_id)s
       OFFSET 0) e
 WHERE v.tenant_id = %(tenant_id)s AND v.document_id = ANY (%(document_ids)s::uuid[])
 ORDER BY score DESC, e.chunk_id
 LIMIT %(depth)s

-- name: visible_vectors
-- All vectors that this reader may read and that pass the filter, for the memory of the process.
SELECT e.chunk_id, halfvec_send(e.embedding)
  FROM kosmos.embeddings e
 WHERE e.tenant_id = %(tenant_id)s AND e.space_id = %(space_id)s
   AND (%(collection)s::text IS NULL OR e.collection = %(collection)s)
   AND (NOT %(filtered)s OR EXISTS (
       SELECT
         FROM kosmos.chunks c
        WHERE c.tenant_id = %(tenant_id)s AND c.id = e.chunk_id
          AND EXISTS (
              SELECT
                FROM kosmos.documents d
               WHERE d.tenant_id = %(tenant_id)s AND d.id = c.document_id
                 AND kosmos.matches_filter(ROW(d.*)::kosmos.documents, %(condition)s, %(condition_values)s, %(sources)s,
                                    %(folders)s)
              ) IS TRUE) IS TRUE)
 LIMIT %(limit)s

-- name: visible_sequences
-- All chunks that this reader may read and that pass the filter, by collection: their postings are kept in memory.
SELECT c.collection, c.sequence, c.id
  FROM kosmos.chunks c
 WHERE c.tenant_id = %(tenant_id)s
   AND (%(collection)s::text IS NULL OR c.collection = %(collection)s)
   AND (NOT %(filtered)s OR EXISTS (
       SELECT
         FROM kosmos.documents d
        WHERE d.tenant_id = %(tenant_id)s AND d.id = c.document_id
          AND kosmos.matches_filter(ROW(d.*)::kosmos.documents, %(condition)s, %(condition_values)s, %(sources)s,
                             %(folders)s)
       ) IS TRUE)
 LIMIT %(limit)s

-- name: lexemes_of_chunks
SELECT c.sequence, c.tsv
  FROM unnest(%(sequences)b::integer[]) AS u (sequence)
 CROSS JOIN LATERAL (
       SELECT n.sequence, n.tsv
         FROM kosmos.chunks n
        WHERE n.tenant_id = %(tenant_id)s AND n.collection = %(collection)s AND n.sequence = u.sequence
       OFFSET 0) c

-- name: collection_states
-- The last change of each collection that may answer, also of chunks that this reader may not read: blocks in memory
-- follow them.
SELECT s.collection, s.epoch, s.state
  FROM kosmos.collection_statistics s
 WHERE s.tenant_id = %(tenant_id)s AND (%(collection)s::text IS NULL OR s.collection = %(collection)s)

-- name: collection_changes
-- The changes of collections after those that a block has followed, in their order.
SELECT c.collection, c.state, c.previous, c.sequences
  FROM unnest(%(collections)s::text[], %(epochs)s::bigint[]) AS u (collection, epoch)
 CROSS JOIN LATERAL (
       SELECT n.collection, n.epoch, n.state, n.previous, n.sequences
         FROM kosmos.collection_changes n
        WHERE n.tenant_id = %(tenant_id)s AND n.collection = u.collection AND n.epoch > u.epoch
       OFFSET 0) c
 ORDER BY c.collection, c.epoch

-- name: changed_chunks
-- Which of the changed chunks this reader may read and pass the filter, with their lexemes and vectors.
SELECT c.sequence, c.id, c.tsv, e.vector
  FROM unnest(%(sequences)b::integer[]) AS u (sequence)
 CROSS JOIN LATERAL (
       SELECT n.sequence, n.id, n.tsv
         FROM kosmos.chunks n
        WHERE n.tenant_id = %(tenant_id)s AND n.collection = %(collection)s AND n.sequence = u.sequence
          AND (NOT %(filtered)s OR EXISTS (
              SELECT
                FROM kosmos.documents d
               WHERE d.tenant_id = %(tenant_id)s AND d.id = n.document_id
                 AND kosmos.matches_filter(ROW(d.*)::kosmos.documents, %(condition)s, %(condition_values)s, %(sources)s,
                                    %(folders)s)
              OFFSET 0))
       OFFSET 0) c
  LEFT JOIN LATERAL (
       SELECT halfvec_send(n.embedding) AS vector
         FROM kosmos.embeddings n
        WHERE n.tenant_id = %(tenant_id)s AND n.chunk_id = c.id AND n.space_id IS NOT DISTINCT FROM %(space_id)s
       OFFSET 0) e ON true

-- name: unsegmented_terms
SELECT l.sequence, l.length, l.pivot, sparsevec_send(l.terms) AS terms
  FROM kosmos.unsegmented_terms l
 WHERE l.tenant_id = %(tenant_id)s AND l.collection = %(collection)s

-- name: set_vector_search
SELECT kosmos.set_vector_search(%(probes)s, %(ef_search)s)

-- name: disable_sort
-- The columns of tenant and space have no statistics, so that statements look up by key: the planner expects a few
-- vectors of the tenant, and finds it cheaper to read and sort all of them than to take the vector index, whose order
-- needs no sort. A search of 500,000 vectors then takes 1,100 ms, and 3 by the index.
SET LOCAL enable_sort = off

-- name: disable_jit
-- Before version 18 of the server, a sort that cannot be left out makes a plan look expensive enough to be compiled.
SET LOCAL jit = off

-- name: enable_sort
SET LOCAL enable_sort = on

-- name: dense_by_index
-- The tenant's own index, which is partial: the planner takes it because its predicate stands here in bound values. No
-- chunk has the id of an index: that condition tells two indexes over the same vectors apart, an old one and the one
-- that is built to replace it. The scan is iterative, and its order relaxed: the caller sorts.
SELECT e.chunk_id, -(e.embedding <#> %(vector)s) AS score
  FROM kosmos.embeddings e
 WHERE e.tenant_id = %(tenant_id)s AND e.space_id = %(space_id)s AND e.chunk_id <> %(index_id)s
   AND (%(collection)s::text IS NULL OR e.collection = %(collection)s)
   AND (NOT %(filtered)s OR EXISTS (
       SELECT
         FROM kosmos.chunks c
        WHERE c.tenant_id = %(tenant_id)s AND c.id = e.chunk_id
          AND EXISTS (
              SELECT
                FROM kosmos.documents d
               WHERE d.tenant_id = %(tenant_id)s AND d.id = c.document_id
                 AND kosmos.matches_filter(ROW(d.*)::kosmos.documents, %(condition)s, %(condition_values)s, %(sources)s,
                                    %(folders)s)
              OFFSET 0)
       OFFSET 0))
   AND (%(required)s::text IS NULL OR EXISTS (
       SELECT
         FROM kosmos.chunks c
        WHERE c.tenant_id = %(tenant_id)s AND c.id = e.chunk_id AND c.tsv @@ %(required)s::tsquery
       OFFSET 0))
 ORDER BY (e.embedding::halfvec({dimensions})) <#> %(vector)s::halfvec({dimensions})
 LIMIT %(depth)s

-- name: dense_by_bits
-- An index of one bit a dimension: %(pool)s candidates by Hamming distance, scored with their vectors.
SELECT n.chunk_id, -(n.embedding <#> %(vector)s) AS score
  FROM (SELECT e.chunk_id, e.embedding
          FROM kosmos.embeddings e
         WHERE e.tenant_id = %(tenant_id)s AND e.space_id = %(space_id)s AND e.chunk_id <> %(index_id)s
           AND (%(collection)s::text IS NULL OR e.collection = %(collection)s)
           AND (NOT %(filtered)s OR EXISTS (
               SELECT
                 FROM kosmos.chunks c
                WHERE c.tenant_id = %(tenant_id)s AND c.id = e.chunk_id
                  AND EXISTS (
                      SELECT
                        FROM kosmos.documents d
                       WHERE d.tenant_id = %(tenant_id)s AND d.id = c.document_id
                         AND kosmos.matches_filter(ROW(d.*)::kosmos.documents, %(condition)s, %(condition_values)s, %(sources)s,
                                            %(folders)s)
                      OFFSET 0)
               OFFSET 0))
           AND (%(required)s::text IS NULL OR EXISTS (
               SELECT
                 FROM kosmos.chunks c
                WHERE c.tenant_id = %(tenant_id)s AND c.id = e.chunk_id AND c.tsv @@ %(required)s::tsquery
               OFFSET 0))
         ORDER BY binary_quantize(e.embedding::halfvec({dimensions}))::bit({dimensions})
                  <~> binary_quantize(%(vector)s::halfvec({dimensions}))::bit({dimensions})
         LIMIT %(pool)s) n
 ORDER BY score DESC, n.chunk_id
 LIMIT %(depth)s

-- name: pseudo_relevance_feedback
-- Candidates by likeness to the mean of the best of them, whose vectors are of length one.
SELECT e.chunk_id, -(e.embedding <#> m.mean) AS score
  FROM (SELECT avg(b.embedding) AS mean
          FROM unnest(%(best)b::uuid[]) AS u (id)
         CROSS JOIN LATERAL (
               SELECT n.embedding
                 FROM kosmos.embeddings n
                WHERE n.tenant_id = %(tenant_id)s AND n.chunk_id = u.id AND n.space_id IS NOT DISTINCT FROM %(space_id)s
               OFFSET 0) b) m,
       unnest(%(candidates)b::uuid[]) AS u (id)
 CROSS JOIN LATERAL (
       SELECT n.chunk_id, n.embedding
         FROM kosmos.embeddings n
        WHERE n.tenant_id = %(tenant_id)s AND n.chunk_id = u.id AND n.space_id IS NOT DISTINCT FROM %(space_id)s
       OFFSET 0) e

-- name: vectors_of_chunks
SELECT e.chunk_id, e.embedding
  FROM unnest(%(chunk_ids)b::uuid[]) AS u (id)
 CROSS JOIN LATERAL (
       SELECT n.chunk_id, n.embedding
         FROM kosmos.embeddings n
        WHERE n.tenant_id = %(tenant_id)s AND n.chunk_id = u.id AND n.space_id IS NOT DISTINCT FROM %(space_id)s
       OFFSET 0) e

-- name: passages
-- Columns are named like the fields of Passage; `principals` are those of the readers that this reader holds.
SELECT * FROM kosmos.located_passages(%(tenant_id)s, %(chunk_ids)s::uuid[])

-- name: passages_of_reader
-- The same without a transaction, for a search in memory. The last row has the states of the collections that this reader
-- may read, by which the caller sees whether the passages are of the state of the search.
SELECT * FROM kosmos.passages_of_reader(%(tenant_id)s, %(principals)s::text[], %(collection)s, %(chunk_ids)s::uuid[])

-- name: version_text
-- The text between two offsets of a version, and its pages: neighbouring chunks without the overlap twice, or a section.
-- The constant stands between the values: they may be smallints, whose sum is none.
SELECT substr(v.text, %(start)s + 1, %(length)s),
       CASE WHEN cardinality(v.pages) > 0 THEN greatest(1, width_bucket(%(start)s, v.pages)) END,
       CASE WHEN cardinality(v.pages) > 0 THEN greatest(1, width_bucket(%(start)s - 1 + %(length)s, v.pages)) END,
       -- What stands before the second page is of the first.
       ARRAY(SELECT p FROM unnest(v.pages[2:]) AS p WHERE p > %(start)s AND p <= %(start)s - 1 + %(length)s ORDER BY p)
  FROM kosmos.document_versions v
 WHERE v.tenant_id = %(tenant_id)s AND v.id = %(version_id)s
