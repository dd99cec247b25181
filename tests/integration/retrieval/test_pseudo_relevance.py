"""Pseudo-relevance feedback against a real database: candidates by similarity to the best, as NumPy computes it."""

import random
import uuid
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.types import Passage, SearchResult
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.variants import opened

RRF = {"rag.retrieval.fusion": "rrf"}
WEIGHT = {**RRF, "rag.retrieval.prf_weight": 0.4}
ALL = 1000
K = 5
"""Of reciprocal rank fusion, by default."""


def _ingest(engine: Engine, name: str) -> None:
    dice = random.Random(17)
    words = [f"w{number}" for number in range(20)]
    engine.tenant(name).ingest(
        SourceDocument(source=f"d{n}", title="-", data=" ".join(dice.choices(words, k=6)).encode()) for n in range(40)
    )


def _ask(engine: Engine, name: str, question: str = "w1 w2 w3", k: int = ALL) -> SearchResult:
    return engine.tenant(name).search(question, k)


def _likeness(fused: Sequence[Passage]) -> dict[uuid.UUID, float]:
    """The inner product of each passage's vector with the mean of the first five."""
    vectors = HashingEmbedder().embed([f"-\n{hit.text}" for hit in fused]).astype(np.float16).astype(np.float64)
    scores = vectors @ vectors[:5].mean(axis=0)
    return {hit.chunk_id: float(score) for hit, score in zip(fused, scores, strict=True)}


def _assert_fused_with_feedback(result: SearchResult, before: SearchResult) -> None:
    """Every score is that of before and a share by the rank of the likeness, where likenesses are not too near."""
    likeness = _likeness(before.hits)
    rank = {hit.chunk_id: round(0.4 / hit.score_contributions["prf"]) - K for hit in result.hits}
    # Equal likenesses share a rank.
    assert all(number == 1 + sum(other < number for other in rank.values()) for number in rank.values())
    similarities = [likeness[chunk_id] for chunk_id in sorted(rank, key=lambda chunk_id: rank[chunk_id])]
    assert all(better >= worse - 2e-3 for better, worse in pairwise(similarities))
    fused = {hit.chunk_id: hit.fused_score for hit in before.hits}
    for hit in result.hits:
        assert hit.fused_score == pytest.approx(fused[hit.chunk_id] + 0.4 / (K + rank[hit.chunk_id]))


def test_prf__ranks_the_candidates_by_likeness_to_the_first_five(settings: Settings, tenant_name: str) -> None:
    with opened(settings, RRF) as plain, opened(settings, WEIGHT) as engine:
        _ingest(plain, tenant_name)
        for question in ("w1 w2 w3", "w4", "w5 -w6"):
            before, result = _ask(plain, tenant_name, question), _ask(engine, tenant_name, question)
            assert "prf" not in before.retrievers
            assert set(result.retrievers) == {"dense", "lexical", "prf"}
            assert {hit.chunk_id for hit in result.hits} == {hit.chunk_id for hit in before.hits}
            _assert_fused_with_feedback(result, before)
        assert [hit.chunk_id for hit in result.hits] != [hit.chunk_id for hit in before.hits]
        account = result.retrievers["prf"]
        assert (account.requested, account.returned) == (result.returned, result.returned)
        assert (account.plan, account.read) == ("similarity to the best 5", {"rows": result.returned})
        assert "prf" in result.stages


def test_prf__takes_all_candidates_into_account_and_not_only_those_asked_for(
    settings: Settings, tenant_name: str
) -> None:
    with opened(settings, WEIGHT) as engine:
        _ingest(engine, tenant_name)
        whole, some = _ask(engine, tenant_name), _ask(engine, tenant_name, k=3)
    assert [hit.chunk_id for hit in some.hits] == [hit.chunk_id for hit in whole.hits[:3]]
    assert some.retrievers["prf"].returned == whole.returned


def test_prf__counts_in_the_fusion_of_scores_too(settings: Settings, tenant_name: str) -> None:
    scores = {"rag.retrieval.fusion": "score"}
    with opened(settings, scores) as plain, opened(settings, WEIGHT | scores) as engine:
        _ingest(plain, tenant_name)
        before, result = _ask(plain, tenant_name), _ask(engine, tenant_name)
    likeness = _likeness(before.hits)
    values = np.array(list(likeness.values()))
    low, reach = values.mean() - 3 * values.std(), 6 * values.std()
    fused = {hit.chunk_id: hit.fused_score for hit in before.hits}
    for hit in result.hits:
        share = 0.4 * max(0.0, (likeness[hit.chunk_id] - low) / reach)
        assert hit.score_contributions["prf"] == pytest.approx(share, abs=5e-3)
        assert hit.fused_score == pytest.approx(fused[hit.chunk_id] + hit.score_contributions["prf"])


@pytest.mark.parametrize("retriever", ["semantic_weight", "keyword_weight"])
def test_prf__follows_one_retriever_alone(retriever: str, settings: Settings, tenant_name: str) -> None:
    item = {**RRF, f"rag.retrieval.{retriever}": 0.0}
    with opened(settings, item) as plain, opened(settings, item | WEIGHT) as engine:
        _ingest(plain, tenant_name)
        before, result = _ask(plain, tenant_name), _ask(engine, tenant_name)
    assert len(result.retrievers) == 2
    _assert_fused_with_feedback(result, before)


def test_prf__of_few_candidates_takes_these(settings: Settings, tenant_name: str) -> None:
    with opened(settings, WEIGHT) as engine:
        engine.tenant(tenant_name).ingest(SourceDocument(source=f"d{n}", data=f"churn {n}".encode()) for n in range(2))
        assert _ask(engine, tenant_name, "churn").retrievers["prf"].plan == "similarity to the best 2"
        nothing = _ask(engine, f"{tenant_name}-nobody", "churn")
    assert (nothing.hits, set(nothing.retrievers)) == ((), {"dense", "lexical"})


def test_prf__comes_of_what_the_reader_may_read_alone(settings: Settings, tenant_name: str) -> None:
    """Documents of another tenant, and such that this reader may not read, leave no trace in it."""
    with opened(settings, WEIGHT) as engine:
        _ingest(engine, tenant_name)
        before = _ask(engine, tenant_name)
        _ingest(engine, f"{tenant_name}-other")
        engine.tenant(tenant_name, collection="secret").ingest(
            SourceDocument(source=f"d{n}", title="-", data=f"w1 w2 w3 w{n}".encode(), acl=("board",)) for n in range(10)
        )
        result = engine.tenant(tenant_name, collection="default").search("w1 w2 w3", ALL)
        all_found = _ask(engine, tenant_name)
    assert result.hits == before.hits
    feedback = {hit.chunk_id: hit.score_contributions["prf"] for hit in before.hits}
    assert {hit.chunk_id: hit.score_contributions["prf"] for hit in all_found.hits} == feedback
