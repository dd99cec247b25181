"""Group unanswered questions by their words and vectors, and choose what a group shows.

A group shows words that several readers have used. So what one reader alone has written, such as a name or a number, is
not shown.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.text.languages import LANGUAGES, guess_language
from kosmos_rag.engine.answers import stem, words
from kosmos_rag.evaluation.gaps.records import KnowledgeGap, UnansweredQuestion

MIN_SIMILARITY = 0.35
"""Mean similarity of a question to those of its group. Below it, `Is there a park near the office?` is in the group of
parking permits; above 0.4, `VPN client download` is in none with `VPN connection fails`."""
UNRELATED = (
    "What is the capital of Portugal?",
    "How do I boil an egg?",
    "Who wrote this invoice?",
    "Why is the sky blue?",
    "Which train leaves first?",
    "When does the contract end?",
)
"""Questions without a common subject: the mean of their cosines is the 0 of similarity, which differs by model."""
_MIN_SCALE = 0.01
"""For a model that gives unrelated questions nearly the same vector."""
_RECENT = timedelta(days=7)
_MAX_WORDS = 6
_DEFAULT_LANGUAGE = "english"

Terms = Mapping[str, str]
"""Words of a question by their stems."""


def find_terms(question: str) -> Terms:
    """Return the content words of a question by their stems."""
    language = guess_language(question, LANGUAGES) or _DEFAULT_LANGUAGE
    return {stem(word, language): word for word in words(question, language)}


def normalise(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors of length 1; a zero vector stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths == 0, 1, lengths), dtype=np.float32)


def measure_baseline(unrelated: NDArray[np.float32]) -> float:
    """Return the mean cosine of questions that have nothing in common.

    Args: unrelated: Vectors of length 1.
    """
    cosines = unrelated @ unrelated.T
    return float(cosines[~np.eye(len(cosines), dtype=bool)].mean())


def assign_groups(
    questions: Sequence[UnansweredQuestion], vectors: NDArray[np.float32], baseline: float
) -> dict[uuid.UUID, uuid.UUID]:
    """Return the group of each question without one; the groups that exist stay.

    A question joins the group of its collection with the highest mean similarity: the mean of the cosine, from
    `baseline` to 1, and the Dice coefficient of the words. A new group has the id of its first question.

    Args:
        questions: All questions of a tenant, the oldest first.
        vectors: Their vectors of length 1, in this order.
        baseline: Cosine of unrelated questions.
    """
    assigned: dict[uuid.UUID, uuid.UUID] = {}
    for collection in {question.collection for question in questions}:
        rows = [row for row, question in enumerate(questions) if question.collection == collection]
        assigned |= _assign([questions[row] for row in rows], vectors[rows], baseline)
    return assigned


def _assign(
    questions: Sequence[UnansweredQuestion], vectors: NDArray[np.float32], baseline: float
) -> dict[uuid.UUID, uuid.UUID]:
    scale = max(1 - baseline, _MIN_SCALE)
    terms = [find_terms(question.question) for question in questions]
    lengths, postings = np.array([len(row) for row in terms]), _list_postings(terms)
    groups = list(dict.fromkeys(question.group_id for question in questions if question.group_id is not None))
    numbers = {group: number for number, group in enumerate(groups)}
    labels = np.array([-1 if question.group_id is None else numbers[question.group_id] for question in questions])
    assigned = {}
    for row, question in enumerate(questions):
        if labels[row] >= 0:
            continue
        cosines = (vectors @ vectors[row] - baseline) / scale
        shared = np.zeros(len(questions))
        for term in terms[row]:
            shared[postings[term]] += 1
        similarities = (np.maximum(cosines, 0) + 2 * shared / np.maximum(lengths + lengths[row], 1)) / 2
        labels[row] = _choose_group(similarities, labels, len(groups))
        if labels[row] == len(groups):
            groups.append(question.id)
        assigned[question.id] = groups[labels[row]]
    return assigned


def _choose_group(similarities: NDArray[np.float32], labels: NDArray[np.int64], groups: int) -> int:
    """Return the number of the group with the highest mean similarity.

    It is `groups`, a new one, where that is too low.
    """
    if not groups:
        return 0
    grouped = labels >= 0
    sums = np.bincount(labels[grouped], weights=similarities[grouped], minlength=groups)
    means = sums / np.bincount(labels[grouped], minlength=groups)
    best = int(means.argmax())
    return best if means[best] >= MIN_SIMILARITY else groups


def _list_postings(terms: Sequence[Terms]) -> Mapping[str, list[int]]:
    """Return the numbers of the questions with each stem."""
    postings: defaultdict[str, list[int]] = defaultdict(list)
    for number, row in enumerate(terms):
        for term in row:
            postings[term].append(number)
    return postings


def build_gaps(
    questions: Iterable[UnansweredQuestion], *, min_readers: int, now: datetime
) -> tuple[list[KnowledgeGap], list[int]]:
    """Return the gaps that may be shown, and the number of questions of each other group.

    Args:
        questions: Questions with groups.
        min_readers: Named readers that a gap and each of its words need.
        now: End of the last seven days.
    """
    groups: dict[uuid.UUID, list[UnansweredQuestion]] = defaultdict(list)
    for question in questions:
        if question.group_id is not None:
            groups[question.group_id].append(question)
    gaps, hidden = [], []
    for group_id, members in groups.items():
        gap = _build_gap(group_id, members, min_readers, now)
        if gap is None:
            hidden.append(_count_distinct(members))
        else:
            gaps.append(gap)
    gaps.sort(key=lambda gap: (gap.closed_at is not None, -gap.readers, -gap.times, str(gap.id)))
    return gaps, hidden


def count_recent(questions: Iterable[UnansweredQuestion], now: datetime) -> tuple[int, int]:
    """Return how many questions are new in the last seven days, and in the seven before.

    Readers who ask the same count once.
    """
    first: dict[tuple[str | None, str], datetime] = {}
    for question in questions:
        key = (question.collection, question.question.casefold())
        first[key] = min(first.get(key, question.first_at), question.first_at)
    new = sum(now - at <= _RECENT for at in first.values())
    return new, sum(_RECENT < now - at <= 2 * _RECENT for at in first.values())


def _build_gap(
    group_id: uuid.UUID, members: Sequence[UnansweredQuestion], min_readers: int, now: datetime
) -> KnowledgeGap | None:
    """Return a gap; None where too few readers have asked or share a word."""
    readers = {member.subject for member in members} - {None}
    terms = {member.id: find_terms(member.question) for member in members}
    counts = _count_readers(members, terms.__getitem__)
    shared = [term for term, count in counts.items() if count >= min_readers]
    if len(readers) < min_readers or not shared:
        return None
    shared.sort(key=lambda term: (-counts[term], term))
    surfaces = Counter(pair for member in members for pair in terms[member.id].items())
    new, earlier = count_recent(members, now)
    answered = [member.answered_at for member in members if member.answered_at is not None]
    return KnowledgeGap(
        id=group_id,
        collection=members[0].collection,
        words=tuple(_choose_surface(term, surfaces) for term in shared[:_MAX_WORDS]),
        question=_choose_question(members, terms, frozenset(shared)),
        questions=_count_distinct(members),
        times=sum(member.times for member in members),
        readers=len(readers),
        first_at=min(member.first_at for member in members),
        last_at=max(member.last_at for member in members),
        new=new,
        earlier=earlier,
        entries=len(members),
        answered=len(answered),
        closed_at=max(answered) if len(answered) == len(members) else None,
    )


def _count_readers(members: Sequence[UnansweredQuestion], find: Callable[[uuid.UUID], Terms]) -> dict[str, int]:
    """Return the number of named readers of each term."""
    readers: dict[str, set[str]] = defaultdict(set)
    for member in members:
        if member.subject is not None:
            for term in find(member.id):
                readers[term].add(member.subject)
    return {term: len(subjects) for term, subjects in readers.items()}


def _choose_surface(term: str, surfaces: Mapping[tuple[str, str], int]) -> str:
    """Return the most frequent word of a stem."""
    counts = {word: count for (stem, word), count in surfaces.items() if stem == term}
    return max(counts, key=lambda word: (counts[word], word))


def _choose_question(
    members: Sequence[UnansweredQuestion], terms: Mapping[uuid.UUID, Terms], shared: frozenset[str]
) -> str | None:
    """Return the question with the most shared words, of those without another word."""
    texts = [(member.question, terms[member.id].keys()) for member in members]
    allowed = [(len(stems), -len(text), text) for text, stems in texts if stems and stems <= shared]
    return max(allowed)[2] if allowed else None


def _count_distinct(members: Iterable[UnansweredQuestion]) -> int:
    return len({member.question.casefold() for member in members})
