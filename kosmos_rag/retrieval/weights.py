"""Weights of the retrievers in the fusion.

Those of the settings, moved by the question and by its collection.

*The question.* Its coverage is the BM25 score of its best candidate, divided by the sum of the idf of its terms. The
odds of the lexical retriever are multiplied by coverage · √terms / 1.25. A paraphrase has hardly a word of its answer,
and its factor is below 1; a question in the words of the documents has 2. Words decide where the question names an
identifier or is one term, and the best candidate covers it (docs/decisions/0056-fusion-by-ranks.md).

*The collection.* Maintenance asks both retrievers for known items. Their questions have words of the text, so words
miss fewer of them even where both retrievers are equally useful to readers: a quarter. Where they miss less than a
quarter, the odds grow by the ratio; where they miss more than vectors do, the odds fall
(docs/decisions/0057-known-items.md).
"""

import math
from collections.abc import Iterable, Mapping

from kosmos_rag.core.text.languages import guess_language
from kosmos_rag.core.types import KnownItems
from kosmos_rag.retrieval.fusion import DENSE, LEXICAL, CandidateList

COVERED = 0.75
"""Smallest coverage of a question whose identifier the best candidate has."""
MAX_SHARE = 0.9
"""Share of the lexical retriever where words decide, and its largest share: vectors may only order near ties. Known
items move the odds by no more than this."""
EVEN_EVIDENCE = 1.25
"""Coverage · √terms of a question for which the weights of the settings hold."""
WORDS_ADVANTAGE = 4.0
"""Ratio of the known items that vectors and words miss, up to which the weights of the settings hold."""


def words_decide(lists: Mapping[str, CandidateList], *, has_identifier: bool) -> bool:
    """Return whether words decide: the best lexical candidate covers an identifier or a single term.

    Args:
        lists: Candidates of each retriever.
        has_identifier: Whether the question names an identifier, by its form.
    """
    stats = lists[LEXICAL].explain if LEXICAL in lists else None
    return stats is not None and (stats.coverage or 0.0) >= COVERED and (has_identifier or stats.terms == 1)


def adapt_weights(
    lists: Mapping[str, CandidateList],
    weights: Mapping[str, float],
    *,
    has_identifier: bool,
    known_items: KnownItems | None = None,
) -> dict[str, float]:
    """Return the weights of a question.

    Args:
        lists: Candidates of each retriever for each wording; those of the question decide.
        weights: Weight of each list by the settings.
        has_identifier: Whether the question names an identifier, by its form.
        known_items: How well the retrievers find known items; None where that is unknown.
    """
    dense, lexical = weights.get(DENSE, 0.0), weights.get(LEXICAL, 0.0)
    if not dense or not lexical:
        return dict(weights)
    prior = lexical / (dense + lexical)
    highest = max(prior, MAX_SHARE)
    if words_decide(lists, has_identifier=has_identifier):
        share = highest
    else:
        stats = lists[LEXICAL].explain
        odds = lexical / dense * (stats.coverage or 0.0) * math.sqrt(stats.terms or 0) / EVEN_EVIDENCE
        odds *= odds_factor(known_items)
        share = min(highest, odds / (1 + odds))
    return {
        name: weight * (share / prior if name.startswith(LEXICAL) else (1 - share) / (1 - prior))
        for name, weight in weights.items()
    }


def odds_factor(known_items: KnownItems | None) -> float:
    """Return the factor of a collection on the odds of the lexical retriever.

    One miss of each is added, so that few questions decide little.
    """
    if known_items is None:
        return 1.0
    missed_by_vectors = 1 + known_items.questions * (1 - known_items.dense)
    missed_by_words = 1 + known_items.questions * (1 - known_items.lexical)
    ratio = missed_by_vectors / missed_by_words
    if ratio > 1:
        ratio = max(1.0, ratio / WORDS_ADVANTAGE)
    bound = MAX_SHARE / (1 - MAX_SHARE)
    return max(1 / bound, min(bound, ratio))


def find_known_items(collections: Iterable[Mapping[str, KnownItems]], question: str) -> KnownItems | None:
    """Return the figures of the language of a question, else those of all languages.

    Args:
        collections: Known items of each collection, by language.
    """
    items = [(language, of_language) for figures in collections for language, of_language in figures.items()]
    language = guess_language(question, {name for name, _ in items})
    of_question = [entry for name, entry in items if language in (None, name)]
    questions = sum(entry.questions for entry in of_question)
    if not questions:
        return None
    return KnownItems(
        questions=questions,
        dense=sum(entry.dense * entry.questions for entry in of_question) / questions,
        lexical=sum(entry.lexical * entry.questions for entry in of_question) / questions,
    )
