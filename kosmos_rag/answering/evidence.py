"""Score text units of passages by how well each answers the question."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.answering.question_type import fit
from kosmos_rag.core.protocols import Embedder, Vectors
from kosmos_rag.core.text.units import Unit, cells, units
from kosmos_rag.core.text.words import coverage, inverse_document_frequencies, stems
from kosmos_rag.core.types import ContextPassage

# Weights of the three parts of a score; they sum to 1. Set by hand: similarity finds paraphrases, overlap finds names.
SIMILARITY_WEIGHT = 0.6
OVERLAP_WEIGHT = 0.25
KIND_WEIGHT = 0.15
# A heading names the subject of its units, but only once for the whole section: its words count less.
HEADING_WEIGHT = 0.5
# A sentence often answers what the one before or after it names.
NEIGHBOUR_WEIGHT = 0.2
# Loss for each passage before its own: retrieval has seen more of a passage than one unit.
RANK_LOSS = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """A text unit of a passage with its scores."""

    passage: ContextPassage
    unit: Unit
    score: float
    """Weighted sum of the three scores below and of its neighbours' words, less a loss by the rank of its passage."""
    meaning: float
    """Cosine similarity of section title and unit to the question, -1 to 1."""
    words: float
    """Share of the question's words in the unit, weighted by IDF, 0 to 1."""
    kind: float
    """How well the unit matches the kind of answer that the question asks for, 0 to 1."""
    vector: NDArray[np.float32] = field(compare=False, repr=False)
    """Embedding of section title and unit. Shape (dimensions,)."""


def score_evidence(question: str, passages: Sequence[ContextPassage], embedder: Embedder) -> list[Evidence]:
    """Score every text unit of the passages, in document order.

    The score is a weighted sum of embedding similarity, question coverage, kind of answer, and the question's words
    that only the unit before or after it has, less a loss by the rank of the passage. Raises ModelUnavailable.

    Args:
        question: the question, rewritten if it is a follow-up.
        passages: the passages of the context.
        embedder: the model of the embedding similarity.
    """
    candidates = [(passage, unit) for passage in passages for unit in passage_units(passage)]
    if not candidates:
        return []
    vectors = embedder.embed([_text_with_section(passage, unit.text) for passage, unit in candidates])
    meanings = cosines(vectors, embedder.embed_query(question))
    weights = inverse_document_frequencies(stems(question), [_stem_passage(passage) for passage in passages])
    unit_stems = [frozenset(stems(unit.text)) for _, unit in candidates]
    fits = fit(question)
    evidence = []
    for number, (passage, unit) in enumerate(candidates):
        meaning, kind = float(meanings[number]), fits(unit)
        heading_stems = frozenset(stems(heading(passage)))
        word_coverage = _question_coverage(weights, unit_stems[number], heading_stems)
        neighbours = [
            unit_stems[other] - unit_stems[number] - heading_stems
            for other in (number - 1, number + 1)
            if 0 <= other < len(candidates) and candidates[other][0] is passage
        ]
        score = (
            SIMILARITY_WEIGHT * max(0.0, meaning)
            + OVERLAP_WEIGHT * word_coverage
            + KIND_WEIGHT * kind
            + NEIGHBOUR_WEIGHT * max((coverage(weights, new) for new in neighbours), default=0.0)
            - RANK_LOSS * (passage.citation.index - 1)
        )
        evidence.append(
            Evidence(
                passage=passage,
                unit=unit,
                score=max(0.0, score),
                meaning=meaning,
                words=word_coverage,
                kind=kind,
                vector=vectors[number],
            )
        )
    return evidence


def passage_units(passage: ContextPassage) -> Iterator[Unit]:
    """Yield the units of a passage.

    Its citation names the headings and the table around it.
    """
    return units(passage.text, headings=passage.citation.section, columns=table_columns(passage))


def table_columns(passage: ContextPassage) -> tuple[str, ...]:
    """Return the columns of the table that the passage begins within."""
    context = passage.citation.table_context
    return cells(context[-1]) if context else ()


def cosines(vectors: Vectors, vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the cosine similarity of each row to a vector.

    0 where a norm is 0.
    """
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(vector)
    return (vectors @ vector / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _stem_passage(passage: ContextPassage) -> frozenset[str]:
    return frozenset(stems(f"{heading(passage)} {passage.text}"))


def heading(passage: ContextPassage) -> str:
    """Return the title of the passage's innermost section, or an empty text."""
    return " ".join(passage.citation.section[-1:])


def _text_with_section(passage: ContextPassage, text: str) -> str:
    """Return a text of the passage after the title of its section."""
    title = heading(passage)
    return f"{title}: {text}" if title else text


def _question_coverage(weights: dict[str, float], unit_stems: frozenset[str], heading_stems: frozenset[str]) -> float:
    return coverage(weights, unit_stems) + HEADING_WEIGHT * coverage(weights, heading_stems - unit_stems)
