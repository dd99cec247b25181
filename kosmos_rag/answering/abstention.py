"""Refuse a question whose evidence does not answer it, and give the reason."""

from collections.abc import Collection, Iterable, Sequence

from kosmos_rag.answering.evidence import Evidence, heading
from kosmos_rag.answering.question_type import subject
from kosmos_rag.answering.scorers import EvidenceScorer
from kosmos_rag.answering.words import find_language, stem, stems, words
from kosmos_rag.core.text.dictionary import LANGUAGE_CODES
from kosmos_rag.core.types import ContextPassage

REFUSAL = "I don't have information about that in the approved knowledge base."


def best_evidence(evidence: Sequence[Evidence]) -> Evidence | None:
    """Return the unit with the highest score; None without units."""
    return max(evidence, key=lambda item: item.score, default=None)


def find_confidence(evidence: Sequence[Evidence], scorer: EvidenceScorer) -> float:
    """Return the probability that the best unit answers, 0 without units.

    A passage may have the words of a question in the sentences around the one that answers.
    """
    best = best_evidence(evidence)
    return scorer.confidence(best.support) if best else 0.0


def explain_language(passages: Sequence[ContextPassage], model: str, languages: Collection[str]) -> str | None:
    """Return a warning where the embedding model does not know the language of the passages.

    The result is None where the languages of the model are unknown.

    Args:
        model: Name of the embedding model.
        languages: ISO 639-1 codes of its languages; none where they are unknown.
    """
    if not languages:
        return None
    language = find_language(passage.text for passage in passages)
    code = LANGUAGE_CODES.get(language)
    if code is None or code in languages:
        return None
    return (
        f"the documents are in {language.capitalize()}, which the embedding model {model} does not know; "
        f"`kosmos-rag models recommend --language {code}` lists models that do"
    )


def explain_low_score(
    question: str, best: Evidence, passages: Iterable[ContextPassage], confidence: float, threshold: float
) -> str:
    """Return in one sentence why the best unit does not answer the question.

    Args:
        best: The unit with the highest score.
        passages: Those whose units were scored.
        threshold: Confidence below which an answer is refused.
    """
    language = find_language(passage.text for passage in passages)
    present = frozenset(stems(f"{heading(best.passage)} {best.passage.text}", language))
    terms = dict.fromkeys(words(subject(question), language))
    missing = [word for word in terms if stem(word, language) not in present]
    lacks = f"; its passage lacks {', '.join(repr(word) for word in missing)}" if missing else ""
    return (
        f"The best unit, of {best.passage.citation.marker}, has a score of {best.support:.2f} and so a confidence of "
        f"{confidence:.2f}, below rag.answer.threshold, {threshold:.2f}{lacks}."
    )
