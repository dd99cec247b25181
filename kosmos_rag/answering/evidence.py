"""Score text units of passages by how well each answers the question."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.answering.codes import find_codes, has_other_code
from kosmos_rag.answering.question_type import is_requested_sql, subject
from kosmos_rag.answering.scorers import EvidenceScorer
from kosmos_rag.answering.units import Unit, cells, units
from kosmos_rag.answering.words import coverage, find_language, inverse_document_frequencies, stems
from kosmos_rag.core.types import ContextPassage

_FIELD = re.compile(r"[^\W\d_][\w ./-]{0,40}: \S[^\n]*")
"""A line of a header block: `Document ID: 7`, `From: ann@example.org`."""
_SALUTATION = re.compile(
    r"""
    (?:hello|hi|hey|dear|hallo|liebe[rs]?|sehr\ geehrte[rs]?|guten\ tag)\b[^.?\n]{0,40}[,!]?
    | (?:(?:kind|best|warm)\ (?:regards|wishes)|regards|cheers|yours?\ (?:sincerely|faithfully)|sincerely(?:\ yours)?
        |(?:mit\ )?(?:freundlich|best|herzlich|lieb|viel)en?\ gr(?:ü|ue)(?:ß|ss)en?)
        (?:,\ [^.?\n]{1,40})?[,!]?(?:\s*\n[^\W\d_]+(?:(?:\.?\ |['-])[^\W\d_]+){0,3})?
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""The words before a letter, and those after it with one name: a signature of more lines has facts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """A text unit of a passage with its scores."""

    passage: ContextPassage
    unit: Unit
    parts: Mapping[str, float]
    """The parts of the score by name."""
    words: float
    """Share of the question's words in the unit and the title of its section, weighted by IDF, 0 to 1."""
    support: float = 0.0
    """The score with the words of the whole passage: it says whether the best unit answers."""
    title_similarity: float = 0.0
    """Dice coefficient of the words of question and section title, 0 to 1; 0 without a title."""
    is_requested_sql: bool = False
    """Whether the unit is SQL, and the question asks for a formula or SQL."""
    previous: Unit | None = None
    """The unit before it in the passage."""

    @property
    def score(self) -> float:
        """The sum of the parts, 0 or more."""
        return _sum(self.parts)


def score_evidence(question: str, passages: Sequence[ContextPassage], scorer: EvidenceScorer) -> list[Evidence]:
    """Score every text unit of the passages, in document order. Raises ModelError.

    Args:
        question: the question, rewritten if it is a follow-up.
        passages: the best passages of a context.
        scorer: compares units with the question.
    """
    (evidence,) = score_questions([question], passages, scorer)
    return evidence


def score_questions(
    questions: Sequence[str], passages: Sequence[ContextPassage], scorer: EvidenceScorer
) -> list[list[Evidence]]:
    """Score every text unit of the passages for each question, in document order.

    Words are compared in the language of the passages. A unit about building C has a score of 0 where the question asks
    about building B. Raises ModelError.

    Args:
        questions: the questions, or the parts of one.
        passages: the best passages of a context.
        scorer: compares units with the questions.
    """
    candidates = [
        (passage, unit, previous)
        for passage in passages
        for previous, unit in _with_previous(passage_units(passage))
        if not _is_header(passage, unit)
    ]
    if not candidates:
        return [[] for _ in questions]
    texts = [_text_with_heading(passage, unit) for passage, unit, _ in candidates]
    language = find_language(passage.text for passage in passages)
    text_stems = [stems(text, language) for text in texts]
    title_stems = {heading(passage): frozenset(stems(subject(heading(passage)), language)) for passage in passages}
    passage_stems = [frozenset(stems(f"{heading(passage)} {passage.text}", language)) for passage in passages]

    weights = [
        inverse_document_frequencies(stems(subject(question), language), passage_stems) for question in questions
    ]
    # The title names what a unit is about: "Building C", and then "It opens at 8."
    titled_texts = [
        " ".join((passage.citation.title, *passage.citation.section, unit.text)) for passage, unit, _ in candidates
    ]
    codes = [find_codes(question, language) for question in questions]
    others = [[has_other_code(question_codes, text, language) for text in titled_texts] for question_codes in codes]
    shares = [
        [0.0 if is_other else coverage(terms, unit_stems) for unit_stems, is_other in zip(text_stems, row, strict=True)]
        for terms, row in zip(weights, others, strict=True)
    ]

    def score(
        question: str,
        terms: Mapping[str, float],
        words: Sequence[float],
        is_other: Sequence[bool],
        similarities: NDArray[np.float32],
    ) -> list[Evidence]:
        similarities = np.where(is_other, 0.0, similarities)
        passage_shares = {
            passage.citation.index: coverage(terms, present)
            for passage, present in zip(passages, passage_stems, strict=True)
        }
        indexes = [passage.citation.index for passage, *_ in candidates]
        # What is about another thing has a score of 0.
        whole = [0.0 if other else passage_shares[index] for index, other in zip(indexes, is_other, strict=True)]
        return [
            Evidence(
                passage=passage,
                unit=unit,
                parts=scorer.build_parts(float(similarity), share, index),
                words=share,
                support=_sum(scorer.build_parts(float(similarity), passage_share, index)),
                title_similarity=_dice(frozenset(terms), title_stems[heading(passage)]),
                is_requested_sql=is_requested_sql(question, unit),
                previous=previous,
            )
            for (passage, unit, previous), index, share, passage_share, similarity in zip(
                candidates, indexes, words, whole, similarities, strict=True
            )
        ]

    return list(map(score, questions, weights, shares, others, scorer.compare(questions, texts, shares)))


def _sum(parts: Mapping[str, float]) -> float:
    return max(0.0, sum(parts.values()))


def passage_units(passage: ContextPassage) -> Iterator[Unit]:
    """Yield the units of a passage.

    Its citation names the headings and the table around it.
    """
    return units(passage.text, headings=passage.citation.section, columns=table_columns(passage))


def table_columns(passage: ContextPassage) -> tuple[str, ...]:
    """Return the columns of the table that the passage begins within."""
    context = passage.citation.table_context
    return cells(context[-1]) if context else ()


def heading(passage: ContextPassage) -> str:
    """Return the title of the passage's innermost section, or an empty text."""
    return " ".join(passage.citation.section[-1:])


def _with_previous(text_units: Iterable[Unit]) -> Iterator[tuple[Unit | None, Unit]]:
    previous: Unit | None = None
    for unit in text_units:
        yield previous, unit
        previous = unit


def _is_header(passage: ContextPassage, unit: Unit) -> bool:
    """Return whether a unit is a header block, or begins or ends a letter."""
    if _SALUTATION.fullmatch(unit.text):
        return True
    lines = unit.text.split("\n")
    return passage.start == 0 and unit.kind == "sentence" and len(lines) > 1 and all(map(_FIELD.fullmatch, lines))


def _read_aloud(unit: Unit) -> str:
    """Return the text of a unit; a row of Markdown with the names of its columns."""
    if not unit.columns:
        return unit.text
    pairs = zip(unit.columns, cells(unit.text), strict=False)
    return "; ".join(f"{name}: {cell}" if name else cell for name, cell in pairs if cell)


def _text_with_heading(passage: ContextPassage, unit: Unit) -> str:
    """Return the text of a unit after the title above it or of its section."""
    title, text = unit.heading or heading(passage), _read_aloud(unit)
    return f"{title}: {text}" if title else text


def _dice(first: frozenset[str], second: frozenset[str]) -> float:
    """Source: Dice, "Measures of the Amount of Ecologic Association Between Species" (1945)."""
    return 2 * len(first & second) / (len(first) + len(second)) if second else 0.0
