"""Units of the passages, weighed by how well each answers the question."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.answering.question_type import fit
from kosmos_rag.core.protocols import Embedder, Vectors
from kosmos_rag.core.text.sentences import Unit, units
from kosmos_rag.core.text.words import coverage, inverse_document_frequencies, stems
from kosmos_rag.core.types import ContextPassage

# Weights of the three parts of a score; they add up to 1. Set by hand: meaning finds paraphrases, words find names.
_BY_MEANING = 0.6
_BY_WORDS = 0.25
_BY_KIND = 0.15
# A word of the heading above a unit is the unit's subject, and said once for the whole section.
_IN_HEADING = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """A unit of a passage with its weight."""

    passage: ContextPassage
    unit: Unit
    score: float
    """The three below as one, 0 to 1."""
    meaning: float
    """Cosine similarity to the question, section and all; -1 to 1."""
    words: float
    """Share of the question's words that it has, by rarity."""
    kind: float
    """How well it is of the kind that is asked for."""
    vector: NDArray[np.float32] = field(compare=False, repr=False)
    """Its embedding, section and all."""


def weigh(question: str, passages: Sequence[ContextPassage], embedder: Embedder) -> list[Evidence]:
    """Weigh every unit of the passages, in their order. Raises ModelUnavailable."""
    found = [(passage, unit) for passage in passages for unit in units(passage.text)]
    if not found:
        return []
    vectors = embedder.embed([_in_its_section(passage, unit) for passage, unit in found])
    meanings = cosines(vectors, embedder.embed_query(question))
    weights = inverse_document_frequencies(stems(question), [_words_of(passage) for passage in passages])
    fits = fit(question)
    return [
        Evidence(
            passage=passage,
            unit=unit,
            score=_BY_MEANING * max(0.0, meaning) + _BY_WORDS * share + _BY_KIND * kind,
            meaning=meaning,
            words=share,
            kind=kind,
            vector=vector,
        )
        for (passage, unit), vector, meaning, share, kind in zip(
            found,
            vectors,
            map(float, meanings),
            (_share(weights, passage, unit) for passage, unit in found),
            (fits(unit) for _, unit in found),
            strict=True,
        )
    ]


def cosines(vectors: Vectors, vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the cosine similarity of each row to a vector; 0 for a vector without length."""
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(vector)
    return (vectors @ vector / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _words_of(passage: ContextPassage) -> frozenset[str]:
    return frozenset(stems(f"{heading(passage)} {passage.text}"))


def heading(passage: ContextPassage) -> str:
    """Return the title of the section that a passage stands in; empty where there is none."""
    return " ".join(passage.citation.section[-1:])


def _in_its_section(passage: ContextPassage, unit: Unit) -> str:
    title = heading(passage)
    return f"{title}: {unit.text}" if title else unit.text


def _share(weights: dict[str, float], passage: ContextPassage, unit: Unit) -> float:
    own = set(stems(unit.text))
    above = set(stems(heading(passage))) - own
    return coverage(weights, own) + _IN_HEADING * coverage(weights, above)
