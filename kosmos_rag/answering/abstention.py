"""Estimate whether the evidence answers the question.

The estimate is a logistic regression on four features.
"""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from kosmos_rag.answering.evidence import Evidence, cosines, heading
from kosmos_rag.answering.question_type import subject
from kosmos_rag.core.protocols import Embedder, Vectors
from kosmos_rag.core.text.words import coverage, inverse_document_frequencies, stems, words
from kosmos_rag.core.types import Context, ContextPassage

REFUSAL = "I don't have information about that in the approved knowledge base."

# Printed by `make bench-answers`: fitted on two documentation trees and on half of two samples with all-MiniLM-L6-v2.
INTERCEPT = 0.073
COEFFICIENTS: Mapping[str, float] = {"unrelated": -19.11, "missing": -18.99, "coverage": 2.291, "moment": -0.597}

# Cosine similarity of a question and a unit on its subject.
RELATED = 0.35
# Each ablated word costs two more embeddings of the question.
_MAX_ABLATED_WORDS = 12
# An identifier, a date or a number is one word here.
_WORD = re.compile(r"[^\W_]+(?:[._-][^\W_]+)*")
_MOMENT = re.compile(
    r"\b(last|this|next|previous|current|currently|latest|today|yesterday|so far|january|february|march|april|june|"
    r"july|august|september|october|november|december)\b",
    re.IGNORECASE,
)


def features(context: Context, evidence: Sequence[Evidence], embedder: Embedder) -> dict[str, float]:
    """Return the features that separate answerable from unanswerable questions.

    `unrelated` is how far the cosine similarity of the best unit is below `RELATED`. Above it the similarity says
    nothing: a question that the documents do not answer can have all their other words. `missing` is the largest
    increase of that similarity when one word or two adjacent words of the question are removed; it is negative where
    every word has support (occlusion, Zeiler and Fergus 2014). `coverage` is the largest share of the question's words
    in one passage, weighted by IDF; words that ask for a formula or SQL do not count where a unit is one. `moment` is 1
    where the question names a relative time (`last week`), which documents seldom state.

    Args:
        context: The question and all of its passages; they give the IDF weights.
        evidence: The scored units of the best passages; not empty.
        embedder: The model that embedded the evidence.

    Raises ModelUnavailable.
    """
    read = {item.passage.citation.index: item.passage for item in evidence}
    weights = inverse_document_frequencies(
        stems(subject(context.question, (item.unit for item in evidence))),
        [frozenset(stems(_text_with_heading(of))) for of in context.passages],
    )
    meaning = max(item.meaning for item in evidence)
    ablated = _generate_ablations(context.question)
    return {
        "unrelated": max(0.0, RELATED - meaning),
        "missing": _max_similarity(embedder.embed(ablated), evidence) - meaning if ablated else 0.0,
        "coverage": max(coverage(weights, stems(_text_with_heading(of))) for of in read.values()),
        "moment": 1.0 if _MOMENT.search(context.question) else 0.0,
    }


def confidence(values: Mapping[str, float]) -> float:
    """Return the probability that evidence with these features answers the question."""
    return 1 / (1 + math.exp(-INTERCEPT - sum(COEFFICIENTS[name] * value for name, value in values.items())))


def _generate_ablations(question: str) -> list[str]:
    """Return the question without each content word or adjacent pair.

    No text occurs twice.
    """
    matches = [match for match in _WORD.finditer(question) if words(match[0])][:_MAX_ABLATED_WORDS]
    spans = [(word.start(), word.end()) for word in matches]
    spans += [(first.start(), second.end()) for first, second in pairwise(matches)]
    ablated = (" ".join(f"{question[:start]} {question[end:]}".split()) for start, end in spans)
    return [text for text in dict.fromkeys(ablated) if words(text)]


def _max_similarity(questions: Vectors, evidence: Sequence[Evidence]) -> float:
    units = np.stack([item.vector for item in evidence])
    return max(float(cosines(units, question).max()) for question in questions)


def _text_with_heading(passage: ContextPassage) -> str:
    return f"{heading(passage)} {passage.text}"
