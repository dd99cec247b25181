"""Compare two orders of the same documents, query by query."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import ir_measures
import numpy as np
from ir_measures import MRR, R, nDCG
from numpy.typing import NDArray

MEASURES = (nDCG @ 10, R @ 10, MRR @ 10)
DRAWS = 10_000

Qrels = Mapping[str, Mapping[str, int]]
Run = Mapping[str, Sequence[str]]
"""Documents by query, best first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Means of a run, and the difference of its nDCG@10 from another one's."""

    ndcg_10: float
    recall_10: float
    mrr_10: float
    gain: float
    """Mean difference of nDCG@10."""
    p: float
    """Of the paired sign-flip test on the differences, two-sided."""
    wins: int
    losses: int

    def row(self) -> dict[str, float]:
        """Return the figures, rounded."""
        return {name: round(value, 4) for name, value in asdict(self).items()}


def measure_queries(run: Run, qrels: Qrels) -> dict[str, NDArray[np.float64]]:
    """Return each measure's value for each query of the run, in the run's order."""
    judged = [ir_measures.Qrel(query, document, grade) for query in run for document, grade in qrels[query].items()]
    scored = [
        ir_measures.ScoredDoc(query, document, -rank)
        for query, documents in run.items()
        for rank, document in enumerate(documents)
    ]
    values: dict[str, dict[str, float]] = {str(measure): dict.fromkeys(run, 0.0) for measure in MEASURES}
    for entry in ir_measures.iter_calc(MEASURES, judged, scored):
        values[str(entry.measure)][entry.query_id] = entry.value
    return {name: np.array(list(by_query.values())) for name, by_query in values.items()}


def compare(run: Run, base: Run, qrels: Qrels) -> Comparison:
    """Return the run's means, and its gain over `base`, which answers the same queries."""
    measures = measure_queries(run, qrels)
    base_measures = measure_queries({query: base[query] for query in run}, qrels)
    ndcg, recall, mrr = (measures[str(measure)] for measure in MEASURES)
    differences = ndcg - base_measures[str(MEASURES[0])]
    return Comparison(
        ndcg_10=float(ndcg.mean()),
        recall_10=float(recall.mean()),
        mrr_10=float(mrr.mean()),
        gain=float(differences.mean()),
        p=sign_flip(differences),
        wins=int((differences > 1e-9).sum()),
        losses=int((differences < -1e-9).sum()),
    )


def sign_flip(differences: NDArray[np.float64], draws: int = DRAWS) -> float:
    """Return the share of random flips of the signs whose mean is as far from zero as the one found.

    Source: Smucker, Allan and Carterette, "A Comparison of Statistical Significance Tests for Information Retrieval
    Evaluation" (CIKM 2007), the randomization test; the flips are drawn, and the found one counts among them.
    """
    signs = np.random.default_rng(0).choice((-1.0, 1.0), size=(draws, len(differences)))
    means = np.abs((signs * differences).mean(axis=1))
    return float((1 + (means >= abs(differences.mean()) - 1e-12).sum()) / (draws + 1))
