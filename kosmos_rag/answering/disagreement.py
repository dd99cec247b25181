"""Quoted sentences of different documents that disagree on a quantity."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from kosmos_rag.answering.claims import find_quantities
from kosmos_rag.answering.words import find_language, stems
from kosmos_rag.core.types import AnswerSentence, Citation

# Sentences about the same thing share at least this part of their words, as a claim and its evidence do.
_MIN_SHARED = 0.5


def find_disagreements(sentences: Sequence[AnswerSentence]) -> tuple[str, ...]:
    """Return a warning for each two sentences with different quantities of the same thing."""
    return tuple(warning for first, second in combinations(sentences, 2) for warning in _compare(first, second))


def _compare(first: AnswerSentence, second: AnswerSentence) -> Iterator[str]:
    language = find_language([first.text, second.text])
    if first.citation.document_id == second.citation.document_id or not _is_same_subject(
        first.text, second.text, language
    ):
        return
    quantities = [find_quantities(sentence.text, language) for sentence in (first, second)]
    for unit in sorted({unit for _, unit in quantities[0]} & {unit for _, unit in quantities[1]}):
        amounts = [{pair: text for pair, text in pairs.items() if pair[1] == unit} for pairs in quantities]
        if amounts[0].keys().isdisjoint(amounts[1]):
            sides = (
                f"{sentence.citation.marker} says {' and '.join(values.values())}{_state(sentence.citation)}"
                for sentence, values in zip((first, second), amounts, strict=True)
            )
            yield f"the documents disagree: {', '.join(sides)}"


def _is_same_subject(first: str, second: str, language: str) -> bool:
    words = [{stem for stem in stems(text, language) if not stem.isdigit()} for text in (first, second)]
    return len(words[0] & words[1]) >= _MIN_SHARED * max(1, min(map(len, words)))


def _state(citation: Citation) -> str:
    """Return date and validity of a document in brackets, if it has them."""
    parts = [str(part) for part in (citation.date, citation.outdated) if part]
    return f" ({', '.join(parts)})" if parts else ""
