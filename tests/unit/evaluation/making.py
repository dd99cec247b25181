"""Evaluations made by hand, for the tests of what is done with them."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime

from kosmos_rag.evaluation.offline import Evaluation, QuestionResult
from kosmos_rag.evaluation.offline.types import means


def evaluation(values: Mapping[str, Mapping[str, float]], *, number: int = 1, set_sha256: str = "same") -> Evaluation:
    """An evaluation with these measures by question."""
    results = tuple(
        QuestionResult(
            question_id=key,
            question=f"What is <{key}>?",
            judged={"a": 1},
            ranking=("a", "b"),
            timings_ms={"embed": 1.0 + place, "total": 10.0 + place},
            measures=measures,
        )
        for place, (key, measures) in enumerate(sorted(values.items()))
    )
    return Evaluation(
        id=uuid.UUID(int=number << 96),
        at=datetime(2026, 1, 1, tzinfo=UTC),
        tenant="acme",
        label=f"configuration {number}",
        set_name="set",
        set_sha256=set_sha256,
        collection=None,
        principals=("everyone",),
        depth=30,
        questions=len(results),
        answered=False,
        measures=means(results),
        settings={"retrieval": {"rrf_k": number}},
        settings_hash="v",
        code_version="1",
        index_state={"model": "m", "chunks": 3, "indexes": []},
        seconds=1.0,
        results=results,
    )


def make_evaluation(measure: str, values: list[float], *, number: int = 1) -> Evaluation:
    """An evaluation with one measure of questions q000, q001, …"""
    return evaluation({f"q{place:03}": {measure: value} for place, value in enumerate(values)}, number=number)
