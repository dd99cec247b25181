"""Whether the evidence carries the question: four features, and a probability by logistic regression."""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from kosmos_rag.answering.evidence import Evidence, heading
from kosmos_rag.answering.words import held, rarity, stems, words
from kosmos_rag.ports import Embedder
from kosmos_rag.records import Context, ContextPassage

REFUSAL = "I don't have information about that in the approved knowledge base."

# Printed by `make bench-answers`: fitted on two thirds of examples/questions.yaml with all-MiniLM-L6-v2.
INTERCEPT = -9.355
COEFFICIENTS: Mapping[str, float] = {"meaning": 5.974, "matched": 0.613, "weakest": 7.251, "moment": -2.416}

# By how much the weakest word of an answered question falls with each word more, in the questions fitted on.
_FALL = 0.04
_MOST_WORDS = 10
_MOMENT = re.compile(
    r"\b(last|this|next|previous|current|currently|latest|today|yesterday|so far|january|february|march|april|june|"
    r"july|august|september|october|november|december)\b",
    re.IGNORECASE,
)


def features(context: Context, evidence: Sequence[Evidence], embedder: Embedder) -> dict[str, float]:
    """Return what tells an answered question from another one; `evidence`, not empty, is that of the best passages.

    `meaning` is the cosine similarity of the best unit. `matched` is how much of the question one passage has: the sum
    of its words' weights, by rarity among all passages of the context. `weakest` is about the word of the question that
    has no counterpart: its similarity to the closest word, in the passage where that is highest, corrected for the
    number of words. `moment` is 1 where the question is about a moment (`last week`), which documents seldom tell.
    Raises ModelUnavailable.
    """
    read = {item.passage.citation.index: item.passage for item in evidence}
    asked = list(dict.fromkeys(words(context.question)))
    weights = rarity(stems(context.question), [frozenset(stems(_whole(of))) for of in context.passages])
    return {
        "meaning": max(item.meaning for item in evidence),
        "matched": max(held(weights, stems(_whole(of))) for of in read.values()),
        "weakest": _weakest(asked, [set(words(_whole(of))) for of in read.values()], embedder)
        + _FALL * min(len(asked), _MOST_WORDS),
        "moment": 1.0 if _MOMENT.search(context.question) else 0.0,
    }


def confidence(values: Mapping[str, float]) -> float:
    """Return the probability that the question is answered by evidence with these features."""
    return 1 / (1 + math.exp(-INTERCEPT - sum(COEFFICIENTS[name] * value for name, value in values.items())))


def _whole(passage: ContextPassage) -> str:
    return f"{heading(passage)} {passage.text}"


def _weakest(asked: Sequence[str], passages: Sequence[set[str]], embedder: Embedder) -> float:
    vocabulary = sorted(set(asked).union(*passages))
    if not asked:
        return 0.0
    vectors = embedder.embed(vocabulary)
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    place = {word: row for row, word in enumerate(vocabulary)}
    questions = vectors[[place[word] for word in asked]]
    return max(
        (
            float((questions @ vectors[[place[word] for word in found]].T).max(axis=1).min())
            for found in passages
            if found
        ),
        default=0.0,
    )
