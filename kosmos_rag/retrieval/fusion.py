"""Ranked candidate lists of the retrievers, their weights, and their fusion into one ranking.

The weights are those of the settings, moved by the question and by its collection.

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
import re
import statistics
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.text.counts import count
from kosmos_rag.core.text.languages import guess_language
from kosmos_rag.core.types import KnownItems, RetrieverStats
from kosmos_rag.retrieval.query import RetrieverQuery
from kosmos_rag.retrieval.snapshot import Snapshot


class Candidate(NamedTuple):
    """A chunk with its raw score and rank from one retriever."""

    chunk_id: uuid.UUID
    score: float
    rank: int


Lists: TypeAlias = Mapping[str, Sequence[Candidate]]
"""Candidates by name of their list, each list best first."""

_SPREAD = 3
"""Standard deviations below and above the mean that are scaled to 0 and 1."""

COVERED = 0.75
"""Smallest coverage of a question whose identifier the best candidate has."""
MAX_SHARE = 0.9
"""Share of the lexical retriever where words decide, and its largest share: vectors may only order near ties. Known
items move the odds by no more than this."""
EVEN_EVIDENCE = 1.25
"""Coverage · √terms of a question for which the weights of the settings hold."""
WORDS_ADVANTAGE = 4.0
"""Ratio of the known items that vectors and words miss, up to which the weights of the settings hold."""

IDENTIFIER_FORMS = re.compile(
    r"""
      \w_\w
    | (?<!\S)--?[A-Za-z]                    # an option of a command
    | [a-z][A-Z]                            # camel case
    | [A-Za-z_]{2}(?:\.(?![A-Z][a-z])|::)[A-Za-z_]{2}  # a name with its module, a host
    | (?<!\S)\.[A-Za-z]                     # a file extension
    | \w\(\)
    | [A-Za-z]{2}-?\d | \b[A-Za-z]\d{3}     # a code
    | \w-\w+-\w
    | (?<=[a-z]\ )[A-Z][A-Z\d]{2,}\b | \b[A-Z][A-Z\d]{2,}(?=\ [a-z])  # a constant, in a query that is not all capitals
    """,
    re.VERBOSE,
)
"""Forms of identifiers, which a query means exactly."""
DENSE, LEXICAL = "dense", "lexical"
PHRASE = "phrase"
"""Contribution of passages that contain the quoted phrases, where other passages do not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CandidateList:
    """Candidates of one retriever, best first, and how they were found."""

    candidates: tuple[Candidate, ...]
    explain: RetrieverStats


def rank_candidates(
    scored: Iterable[tuple[uuid.UUID, float]],
    *,
    limit: int,
    plan: str,
    read: Mapping[str, int],
    reason: str | None,
    terms: int | None = None,
    total_weight: float = 0.0,
) -> CandidateList:
    """Rank scored chunks, best first; equal scores are ordered by id.

    Args:
        scored: Chunk ids with scores.
        limit: Candidates to keep.
        plan: How the rows were found, for the explanation.
        read: How much was read to find them, by unit.
        reason: Why fewer than `limit` were found; None if all were.
        terms: Number of query terms; None for no coverage of them by the best candidate.
        total_weight: Sum of the idf of all query terms, those that no chunk contains included.
    """
    # By number, which compares in C, while an id compares in Python: thousands of equal texts may tie.
    ranking = sorted([(-score, chunk_id.int, chunk_id) for chunk_id, score in scored])[:limit]
    coverage = None
    if terms is not None:
        coverage = -ranking[0][0] / total_weight if ranking and total_weight else 0.0
    fields = [(chunk_id, -score, rank) for rank, (score, _, chunk_id) in enumerate(ranking, start=1)]
    return CandidateList(
        # As `Candidate` does it, but in C: there are hundreds.
        candidates=tuple(map(partial(tuple.__new__, Candidate), fields)),
        explain=RetrieverStats(
            requested=limit,
            returned=len(ranking),
            plan=plan,
            read=dict(read),
            reason=reason,
            coverage=coverage,
            terms=terms,
        ),
    )


def rank_vectors(
    rows: Sequence[tuple[uuid.UUID, float]], query: RetrieverQuery, plan: str, read: Mapping[str, int]
) -> CandidateList:
    """Rank the chunks above the similarity threshold.

    Args:
        rows: Chunk ids with inner products, at most `query.candidates`.
        plan: How the rows were found, for the explanation.
        read: How much was read to find them, by unit.
    """
    threshold = query.similarity_threshold
    similar = [(chunk_id, float(score)) for chunk_id, score in rows if score >= threshold]
    reason = None
    if len(similar) < query.candidates:
        dropped = len(rows) - len(similar)
        reason = f"chunks found: {len(rows)}" + (
            f", {dropped} of them below similarity_threshold {threshold}" if dropped else ""
        )
    return rank_candidates(similar, limit=query.candidates, plan=plan, read=read, reason=reason)


def rank_scores(
    scores: Collection[tuple[uuid.UUID, float]], limit: int, snapshot: Snapshot, plan: str, read: Mapping[str, int]
) -> CandidateList:
    """Rank the chunks by BM25.

    Args:
        scores: Chunk ids with scores.
        limit: Candidates to return.
        snapshot: State of the tenant.
        plan: How the chunks were found, for the explanation.
        read: How much was read to find them, by unit.
    """
    reason = None
    if not snapshot.chunks:
        reason = "there are no chunks"
    elif not snapshot.terms:
        reason = "the question has no term to look up: stop words and signs only"
    elif len(scores) < limit:
        reason = f"visible chunks with a term of the question: {len(scores)}"
    return rank_candidates(
        scores,
        limit=limit,
        plan=plan,
        read=read,
        reason=reason,
        terms=len(snapshot.terms),
        total_weight=max((stats.total_weight for stats in snapshot.collections), default=0.0),
    )


def words_decide(lists: Mapping[str, CandidateList], question: str) -> bool:
    """Return whether words decide: the best lexical candidate covers an identifier or a single term.

    Args:
        lists: Candidates of each retriever.
        question: An identifier shows by its form.
    """
    stats = lists[LEXICAL].explain if LEXICAL in lists else None
    if stats is None or (stats.coverage or 0.0) < COVERED:
        return False
    return stats.terms == 1 or IDENTIFIER_FORMS.search(question) is not None


def adapt_weights(
    lists: Mapping[str, CandidateList],
    weights: Mapping[str, float],
    *,
    by_words: bool,
    known_items: KnownItems | None = None,
) -> dict[str, float]:
    """Return the weights of a question.

    Args:
        lists: Candidates of each retriever for each wording; those of the question decide.
        weights: Weight of each list by the settings.
        by_words: Whether `words_decide`.
        known_items: How well the retrievers find known items; None where that is unknown.
    """
    dense, lexical = weights.get(DENSE, 0.0), weights.get(LEXICAL, 0.0)
    if not dense or not lexical:
        return dict(weights)
    prior = lexical / (dense + lexical)
    highest = max(prior, MAX_SHARE)
    if by_words:
        share = highest
    else:
        stats = lists[LEXICAL].explain
        odds = lexical / dense * (stats.coverage or 0.0) * math.sqrt(stats.terms or 0) / EVEN_EVIDENCE
        if known_items is not None:
            odds *= odds_factor(known_items)
        share = min(highest, odds / (1 + odds))
    return {
        name: weight * (share / prior if name.startswith(LEXICAL) else (1 - share) / (1 - prior))
        for name, weight in weights.items()
    }


def odds_factor(known_items: KnownItems) -> float:
    """Return the factor of a collection on the odds of the lexical retriever.

    One miss of each is added, so that few questions decide little.
    """
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
    if not items:
        return None
    # Where all figures are of one language, that of the question changes nothing.
    languages = {name for name, _ in items}
    language = guess_language(question, languages) if len(languages) > 1 else None
    of_question = [entry for name, entry in items if language in (None, name)]
    questions = sum(entry.questions for entry in of_question)
    if not questions:
        return None
    return KnownItems(
        questions=questions,
        dense=sum(entry.dense * entry.questions for entry in of_question) / questions,
        lexical=sum(entry.lexical * entry.questions for entry in of_question) / questions,
    )


class FusedCandidate(NamedTuple):
    """A chunk with its fused score and its candidate in each list."""

    chunk_id: uuid.UUID
    score: float
    by_list: Mapping[str, Candidate]
    score_contributions: Mapping[str, float]
    """Contribution of each list to the score."""


Contribute: TypeAlias = Callable[[Sequence[Candidate], float], Sequence[float]]
"""Returns the contribution of each candidate of a list with a weight."""


def reciprocal_ranks(candidates: Sequence[Candidate], weight: float, *, k: int) -> list[float]:
    """Return weight / (k + rank) of each candidate.

    Ranks count from 1, and candidates with equal scores share the first of their ranks: the other list orders them.
    Source: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning
    Methods" (SIGIR 2009); the weights are ours, and 1 in the paper.

    Args:
        candidates: Best first.
        weight: Of the list.
        k: The larger it is, the less the first ranks dominate.

    Raises ConfigError where `k` is invalid.
    """
    if k < 0:
        raise ConfigError(f"k of the fusion is {k}; give a number, 0 or more")
    contributions, last_score, contribution = [], math.nan, 0.0
    for _, score, rank in candidates:
        if score != last_score:
            last_score, contribution = score, weight / (k + rank)
        contributions.append(contribution)
    return contributions


def standardised_scores(candidates: Sequence[Candidate], weight: float) -> list[float]:
    """Return weight · standardised score of each candidate.

    The scores are scaled linearly so that their mean less three standard deviations is 0 and their mean plus three is
    1; negative values count as 0, and equal scores as 0.5 each. Source: the distribution-based score fusion of
    Mazzeschi (2023), without its upper bound: a score far above all others is the strongest evidence.
    """
    scores = [candidate.score for candidate in candidates]
    if not scores or min(scores) == max(scores):
        return [weight / 2] * len(scores)
    mean = statistics.fmean(scores)
    # `statistics.pstdev` computes in fractions, which takes seventeen times as long.
    reach = _SPREAD * math.dist(scores, [mean] * len(scores)) / math.sqrt(len(scores))
    low, width = mean - reach, 2 * reach
    return [weight * ((score - low) / width) if score > low else 0.0 for score in scores]


def fuse(
    lists: Lists, weights: Mapping[str, float], contribute: Contribute, *, limit: int | None = None
) -> list[FusedCandidate]:
    """Order chunks by the sum of their contributions, best first.

    A list without the chunk adds nothing. Equal sums are ordered by id. Raises ConfigError where a weight is invalid.

    Args:
        lists: Candidates of each retriever, best first.
        weights: Weight of each list.
        contribute: `reciprocal_ranks` or `standardised_scores`.
        limit: Number of fused candidates; None for all.
    """
    for name in lists:
        weight = weights.get(name)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            raise ConfigError(f"the weight of {name} is {weight!r}; give a number, 0 or more")
    if lists and not any(weights[name] for name in lists):
        raise ConfigError(f"the weights of {', '.join(lists)} are all 0; give at least one of them more")
    # By number, which hashes and compares in C, where an id does so in Python: there are hundreds of them.
    by_list = {
        name: {
            candidate.chunk_id.int: (candidate, contribution)
            for candidate, contribution in zip(candidates, contribute(candidates, weights[name]), strict=True)
        }
        for name, candidates in lists.items()
    }
    totals: dict[int, float] = {}
    for records in by_list.values():
        for number, (_, contribution) in records.items():
            totals[number] = totals.get(number, 0.0) + contribution
    if len(by_list) > 2:
        # The sum of two numbers is exact; that of more must not depend on the order of the lists.
        lists_of_records = list(by_list.values())
        totals = {
            number: math.fsum(records[number][1] for records in lists_of_records if number in records)
            for number in totals
        }
    ranking = sorted([(-total, number) for number, total in totals.items()])
    fused: list[FusedCandidate] = []
    # Records of the best only: most candidates are in no result.
    for negated, number in ranking[:limit]:
        entries: dict[str, Candidate] = {}
        shares: dict[str, float] = {}
        for name, records in by_list.items():
            record = records.get(number)
            if record is not None:
                candidate, shares[name] = record
                entries[name] = candidate
        fused.append(FusedCandidate(candidate.chunk_id, -negated, entries, shares))
    return fused


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """Candidates in fused order, and the lists that they come from."""

    retrievers: dict[str, CandidateList]
    fused: list[FusedCandidate]


def backfill_phrase_results(strict: Ranking, relaxed: Ranking, phrases: Sequence[str]) -> tuple[Ranking, str | None]:
    """Append results without the quoted phrases after those with them.

    Args:
        strict: Ranking of the chunks that contain the phrases.
        relaxed: Ranking of the query with its phrases as plain words.
        phrases: The phrases, for the warning.

    Returns the ranking and a warning; no warning if nothing was appended. The best score of the appended results is
    added to the scores of the first ones, so that the ranking is still ordered by score.
    """
    matching = {entry.chunk_id for entry in strict.fused}
    others = [entry for entry in relaxed.fused if entry.chunk_id not in matching]
    if not others:
        return strict, None
    bonus = others[0].score
    first = [
        entry._replace(score=entry.score + bonus, score_contributions={**entry.score_contributions, PHRASE: bonus})
        for entry in strict.fused
    ]
    quoted = ", ".join(f'"{phrase}"' for phrase in phrases)
    matches = f"{count(len(first), 'chunk')} with {quoted} first" if first else f"no chunk contains {quoted}"
    retrievers = {
        **relaxed.retrievers,
        **{f"{name} quoted": candidates for name, candidates in strict.retrievers.items()},
    }
    return (
        Ranking(retrievers=retrievers, fused=[*first, *others]),
        f"{matches}; put + before the quotes to have no others",
    )
