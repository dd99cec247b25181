"""Arrange a ranking by the options of a request.

Diversify it, group it, cut it into pages and count facets.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.types import FacetValue, Occurrence, Passage, SearchResult
from kosmos_rag.retrieval.fusion import PHRASE
from kosmos_rag.retrieval.options import GROUP_SIZE, ParsedOptions

Vectors = Mapping[uuid.UUID, NDArray[np.float32]]

_MMR = "mmr"
_MAX_FACET_VALUES = 100


def arrange(
    parsed: ParsedOptions, result: SearchResult, ranking: Sequence[Passage], requested: int, vectors: Vectors
) -> SearchResult:
    """Return a result with the hits of one page.

    It has the cursor of the next page and the facets too.

    Args:
        parsed: Options of the request.
        result: The result without options.
        ranking: All passages of the search, best first.
        requested: Hits of a page.
        vectors: Of the passages, for `mmr`; others are as similar as the words that they share.
    """
    options = parsed.options
    if options.mmr is not None:
        ranking = diversify(ranking, vectors, float(options.mmr))
    facets, warnings = _count_facets(options.facets, ranking)
    groups = (
        _group(ranking, options.group_size or GROUP_SIZE) if options.group_by else [(passage,) for passage in ranking]
    )
    keyed = [(parsed.compute_key(group[0]), group) for group in groups]
    remaining = [(key, group) for key, group in keyed if key not in parsed.previous_keys]
    page = remaining[:requested]
    more = options.cursor is not None and len(remaining) > len(page)
    hits = tuple(
        replace(
            hit,
            rank=rank,
            inner_hits=tuple(replace(inner, rank=place) for place, inner in enumerate(others, start=1)),
        )
        for rank, (_, (hit, *others)) in enumerate(page, start=parsed.hits + 1)
    )
    reason = result.incomplete_reason
    if len(hits) < requested and ranking:
        kind = "documents" if options.group_by else "passages"
        reason = f"the ranking ends here: {len(groups)} {kind}, {len(groups) - len(remaining)} of them on pages before"
    return replace(
        result,
        hits=hits,
        next_cursor=parsed.next_cursor([key for key, _ in page]) if more else None,
        facets=facets,
        warnings=(*result.warnings, *warnings),
        incomplete_reason=reason if len(hits) < requested else None,
    )


def diversify(passages: Sequence[Passage], vectors: Vectors, weight: float) -> list[Passage]:
    """Reorder passages by maximal marginal relevance.

    The next passage has the largest weight · relevance - (1 - weight) · similarity to the most similar one before it.
    Relevance is the score as a share of the best one, similarity is the cosine. Passages with the quoted phrases of the
    question stay before the others. Source: Carbonell and Goldstein, "The Use of MMR" (SIGIR 1998).

    Args:
        passages: Ranked passages, best first.
        vectors: Of the passages, of length one; one without a vector is similar to none.
        weight: Weight of relevance, 0 to 1.
    """
    if not passages:
        return []
    scaled = any(passage.signals for passage in passages)  # signals have divided the scores by the best one
    best = 1.0 if scaled else max(passage.score for passage in passages)
    relevance = np.array([passage.score / best if best > 0 else 0.0 for passage in passages])
    similarity = _similarities(passages, vectors)
    ahead = np.array([PHRASE in passage.score_contributions for passage in passages])
    nearest = np.zeros(len(passages))
    open_ = np.ones(len(passages), dtype=bool)
    selection = []
    for _ in passages:
        choice = open_ & ahead if (open_ & ahead).any() else open_
        value = weight * relevance - (1 - weight) * nearest
        at = int(np.argmax(np.where(choice, value, -np.inf)))
        open_[at] = False
        score = float(value[at])
        signals = {**passages[at].signals, _MMR: score - float(relevance[at])}
        selection.append(replace(passages[at], score=score, signals=signals))
        nearest = np.maximum(nearest, similarity[at])
    return selection


def _similarities(passages: Sequence[Passage], vectors: Vectors) -> NDArray[np.float64]:
    if not vectors:
        words = [frozenset(passage.text.lower().split()) for passage in passages]
        return np.array([[len(a & b) / len(a | b) if a or b else 0.0 for b in words] for a in words])
    nothing = np.zeros(len(next(iter(vectors.values()))), dtype=np.float32)
    matrix = np.stack([vectors.get(passage.chunk_id, nothing) for passage in passages]).astype(np.float64)
    return np.asarray(matrix @ matrix.T)


def _group(ranking: Sequence[Passage], size: int) -> list[tuple[Passage, ...]]:
    """Group passages by document, in the order of the best of each."""
    groups: dict[uuid.UUID, list[Passage]] = defaultdict(list)
    for passage in ranking:
        groups[passage.document_id].append(passage)
    return [tuple(group[:size]) for group in groups.values()]


def _count_facets(
    fields: Sequence[str], ranking: Sequence[Passage]
) -> tuple[dict[str, tuple[FacetValue, ...]], list[str]]:
    """Count the values of fields over the documents of a ranking.

    Each document counts once for each of its values.
    """
    documents: dict[uuid.UUID, Passage | Occurrence] = {}
    for passage in ranking:
        documents[passage.document_id] = passage
        documents.update((place.document_id, place) for place in passage.also_in)
    facets, warnings = {}, []
    for field in fields:
        # 1 and True are equal, and different values of metadata.
        counts = Counter(
            value
            for document in documents.values()
            for value in {(isinstance(value, bool), value) for value in _values(document, field)}
        )
        entries = sorted(counts.items(), key=lambda entry: (-entry[1], str(entry[0][1])))
        if len(entries) > _MAX_FACET_VALUES:
            warnings.append(f"{field} has {len(entries)} values; its facet shows the first {_MAX_FACET_VALUES}")
        facets[field] = tuple(
            FacetValue(value=_plain(value), count=count) for (_, value), count in entries[:_MAX_FACET_VALUES]
        )
    return facets, warnings


def _plain(value: str | bool | int | float) -> str | bool | int | float:
    """Return a whole number as an integer."""
    # 1 and 1.0 are one value: what is shown must not depend on which of them ranks first.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _values(place: Passage | Occurrence, field: str) -> Iterator[str | bool | int | float]:
    """Yield the values of a field, and the elements of lists.

    A filter compares the same values.
    """
    first, *keys = field.split(".")
    values: list[Any] = [getattr(place, first)]
    for key in keys:
        values = [element[key] for element in _elements(values) if isinstance(element, Mapping) and key in element]
    yield from (element for element in _elements(values) if isinstance(element, str | bool | int | float))


def _elements(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from value
        else:
            yield value
