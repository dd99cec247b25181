"""Whether the evidence carries the question: four features, and a probability by logistic regression."""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from kosmos_rag.answering.evidence import Evidence, cosines, heading
from kosmos_rag.core.protocols import Embedder, Vectors
from kosmos_rag.core.text.words import inverse_document_frequencies, matched_weight, stems, words
from kosmos_rag.core.types import Context, ContextPassage

REFUSAL = "I don't have information about that in the approved knowledge base."

# Printed by `make bench-answers`: fitted on half of the questions of two fields with all-MiniLM-L6-v2.
INTERCEPT = -1.143
COEFFICIENTS: Mapping[str, float] = {"meaning": 2.739, "missing": -14.362, "matched": 0.136, "moment": -0.924}

# Words of a question that are left out in turn, from the start; each costs embedding the question twice more.
_MOST_LEFT_OUT = 12
# An identifier, a date or a number is one word here.
_WORD = re.compile(r"[^\W_]+(?:[._-][^\W_]+)*")
_MOMENT = re.compile(
    r"\b(last|this|next|previous|current|currently|latest|today|yesterday|so far|january|february|march|april|june|"
    r"july|august|september|october|november|december)\b",
    re.IGNORECASE,
)


def features(context: Context, evidence: Sequence[Evidence], embedder: Embedder) -> dict[str, float]:
    """Return what tells an answered question from another one; `evidence`, not empty, is that of the best passages.

    `meaning` is the cosine similarity of the best unit. `missing` is by how much that rises when one word of the
    question, or two in a row, are left out, whichever the evidence lacks most; below 0 where all speak for it; its idea
    is that of occlusion, Zeiler and Fergus (2014). `matched` is how much of the question one passage has: the sum
    of its words' weights, by rarity among all passages of the context. `moment` is 1 where the question is about a
    moment (`last week`), which documents seldom tell. Raises ModelUnavailable.
    """
    read = {item.passage.citation.index: item.passage for item in evidence}
    weights = inverse_document_frequencies(
        stems(context.question), [frozenset(stems(_whole(of))) for of in context.passages]
    )
    meaning = max(item.meaning for item in evidence)
    shorter = _shorter(context.question)
    return {
        "meaning": meaning,
        "missing": _nearest(embedder.embed(shorter), evidence) - meaning if shorter else 0.0,
        "matched": max(matched_weight(weights, stems(_whole(of))) for of in read.values()),
        "moment": 1.0 if _MOMENT.search(context.question) else 0.0,
    }


def confidence(values: Mapping[str, float]) -> float:
    """Return the probability that the question is answered by evidence with these features."""
    return 1 / (1 + math.exp(-INTERCEPT - sum(COEFFICIENTS[name] * value for name, value in values.items())))


def _shorter(question: str) -> list[str]:
    """Return the question without each word that carries meaning, and without each two of them in a row; none twice."""
    found = [match for match in _WORD.finditer(question) if words(match[0])][:_MOST_LEFT_OUT]
    spans = [(word.start(), word.end()) for word in found]
    spans += [(first.start(), second.end()) for first, second in pairwise(found)]
    shorter = (" ".join(f"{question[:start]} {question[end:]}".split()) for start, end in spans)
    return [text for text in dict.fromkeys(shorter) if words(text)]


def _nearest(questions: Vectors, evidence: Sequence[Evidence]) -> float:
    units = np.stack([item.vector for item in evidence])
    return max(float(cosines(units, question).max()) for question in questions)


def _whole(passage: ContextPassage) -> str:
    return f"{heading(passage)} {passage.text}"
