"""The fusion of the results of several questions."""

import uuid
from typing import Any

import pytest

from kosmos_rag.core.types import RetrieverStats, SearchResult
from kosmos_rag.retrieval.several import fuse_results
from tests.results import build_passage, build_result

A, B, C, D = (uuid.UUID(int=number) for number in range(1, 5))


def _result(question: str, *hits: tuple[uuid.UUID, float], **fields: Any) -> SearchResult:
    passages = [
        build_passage(
            rank, score, chunk_id=chunk_id, text=str(chunk_id), dense_rank=rank, dense_score=score, rerank_score=score
        )
        for rank, (chunk_id, score) in enumerate(hits, start=1)
    ]
    stats = RetrieverStats(requested=3, returned=len(hits), plan="exact scan", read={}, reason=None)
    stages = {"stages": ("dense", "fetch"), "timings_ms": {"dense": 1.5, "total": 2.0}, "retrievers": {"dense": stats}}
    return build_result(*passages, **{"question": question, "requested": 3, **stages, **fields})


def test_hits__are_fused_by_rank_and_a_passage_of_two_questions_is_one_hit() -> None:
    fused = fuse_results([_result("one", (A, 0.9), (B, 0.8), (C, 0.7)), _result("two", (C, 0.2), (D, 0.1))], rrf_k=60)
    # C has rank 3 and rank 1; A rank 1; B and D rank 2, in the order of their ids.
    assert [hit.chunk_id for hit in fused.hits] == [C, A, B]
    assert [hit.rank for hit in fused.hits] == [1, 2, 3]
    assert [hit.score for hit in fused.hits] == pytest.approx([1 / 63 + 1 / 61, 1 / 61, 1 / 62])
    assert fused.hits[0].rerank_score == 0.2, "of the question where its rank is best"
    assert [(activity.question, activity.returned, activity.ranks) for activity in fused.activity] == [
        ("one", 3, (1, 2, 3)),
        ("two", 2, (1,)),
    ]
    assert fused.question == "one\ntwo"
    assert fused.timings_ms == {"dense": 3.0, "total": 4.0}
    assert fused.retrievers.keys() == {"question 1 dense", "question 2 dense"}
    assert fused.incomplete_reason is None


def test_result__repeats_each_warning_and_reason_once() -> None:
    values: dict[str, Any] = {"warnings": ("late",), "degraded_stages": ("rerank",), "incomplete_reason": "no more"}
    fused = fuse_results([_result("one", (A, 0.9), **values), _result("two", (A, 0.9), cached=True, **values)], rrf_k=1)
    assert (fused.warnings, fused.degraded_stages, fused.incomplete_reason) == (("late",), ("rerank",), "no more")
    assert [activity.cached for activity in fused.activity] == [False, True]
    assert not fused.cached
    assert SearchResult.from_dict(fused.to_dict()) == fused
    assert "one (1 hit; ranks 1)" in fused.explain()
