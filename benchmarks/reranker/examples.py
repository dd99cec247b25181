"""Training data of a reranker: rankings of passages with target relevances.

`Made` examples need no judgement: the question is a document's title, and the target is the first stage's own order of
the passages of other documents. Judged examples come from queries whose relevant documents are known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.types import Passage

SHARPNESS = 4.0
"""How much more relevance the first stage's best passage of a ranking gets than its worst, as an exponent of e."""
FIRST_STAGE_SHARE = 0.3
"""Share of a judged ranking's target that the first stage's order keeps: it knows more than few judgements teach."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """A question, passages, and the share of relevance of each; the shares sum to one."""

    question: str
    passages: list[str]
    target: NDArray[np.float64]


def rank_for_title(
    title: str, hits: Sequence[Passage], source: str, length: int, draw: np.random.Generator
) -> Ranking | None:
    """Return a ranking for the title of the document `source`; None where too few passages of others were found.

    Two passages come from the best six and the rest from those after them: else nearly all would be irrelevant.
    """
    others = [hit for hit in hits if hit.source != source]
    if len(others) < 6 + length:
        return None
    best = draw.choice(6, 2, replace=False)
    rest = draw.choice(np.arange(6, len(others)), length - 2, replace=False)
    chosen = [others[at] for at in (*best, *rest)]
    return Ranking(question=title, passages=[hit.text for hit in chosen], target=_first_stage(chosen))


def rank_judged(
    question: str, hits: Sequence[Passage], grades: Mapping[str, int], length: int, draw: np.random.Generator
) -> Ranking | None:
    """Return a ranking of relevant hits and of others, the better placed ones sooner; None where all are of one kind.

    At most half of it is relevant. The target is the grades' shares, mixed with the first stage's order.
    """
    relevant = [hit for hit in hits if grades.get(hit.source, 0) > 0]
    others = [hit for hit in hits if grades.get(hit.source, 0) <= 0]
    if not relevant or not others:
        return None
    take = min(len(relevant), length // 2)
    picked = [relevant[at] for at in draw.choice(len(relevant), take, replace=False)]
    nearness = 1 / (5 + np.arange(len(others)))
    count = min(len(others), length - take)
    picked += [others[at] for at in draw.choice(len(others), count, replace=False, p=nearness / nearness.sum())]
    gains = np.array([max(0, grades.get(hit.source, 0)) for hit in picked], dtype=np.float64)
    target = (1 - FIRST_STAGE_SHARE) * gains / gains.sum() + FIRST_STAGE_SHARE * _first_stage(picked)
    return Ranking(question=question, passages=[hit.text for hit in picked], target=target)


def _first_stage(hits: Sequence[Passage]) -> NDArray[np.float64]:
    """Return shares by fused score: the softmax of the scores, scaled to their own best and worst."""
    scores = np.array([hit.fused_score for hit in hits])
    shares = np.exp(SHARPNESS * (scores - scores.min()) / max(float(np.ptp(scores)), 1e-9))
    return np.asarray(shares / shares.sum())
