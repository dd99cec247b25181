"""Conditions that a question states, through the library, by each view."""

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.types import Passage, SearchResult
from kosmos_rag.retrieval import pipeline
from kosmos_rag.retrieval.blocks import cache as block_cache
from kosmos_rag.retrieval.hydrate import hydrate
from tests.integration.variants import HAS_MEMORY_VIEW, opened

TODAY = date(2026, 5, 20)
QUESTION = "What did the finance team report about churn since March?"
BASE = {"rag.retrieval.candidates": 50, "rag.chunking.min_size": 1, "rag.reranking.enabled": False}
CACHE_MB = {"database": 0, "memory": 64}


@pytest.fixture(params=("database", *["memory"] * HAS_MEMORY_VIEW))
def engine(request: pytest.FixtureRequest, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(block_cache, "MISSES", 1)
    with opened(settings, BASE | {"indexes.vector_cache_mb": CACHE_MB[request.param]}) as opened_engine:
        yield opened_engine


def _load(engine: Engine, tenant_name: str) -> None:
    engine.tenant(tenant_name).ingest(
        SourceDocument(
            source=f"{team}-{month:02}",
            data=f"The {'finance' if team == 'sales' else ''} report about churn. {'Churn ' * (12 - month)}".encode(),
            metadata={"team": team, "date": f"2026-{month:02}-01"},
        )
        for team in ("finance", "sales")
        for month in range(1, 6)
    )


def _search(engine: Engine, tenant_name: str, question: str = QUESTION) -> SearchResult:
    tenant = engine.tenant(tenant_name)
    tenant.search(question, 3, today=TODAY)
    assert engine.background.drain(10)
    return tenant.search(question, 3, today=TODAY)


def test_search__returns_what_meets_the_conditions(engine: Engine, tenant_name: str) -> None:
    _load(engine, tenant_name)
    result = _search(engine, tenant_name)
    assert sorted(hit.source for hit in result.hits) == ["finance-03", "finance-04", "finance-05"]
    assert [(item.field, item.value, item.matching) for item in result.conditions] == [
        ("date", "2026-03-01/..", 6),
        ("metadata.team", "finance", 5),
    ]
    assert "condition date 2026-03-01/.. by 'since March' (satisfied by 6 found passages)" in result.explain()
    assert result.to_dict()["conditions"][1] == {
        "text": "finance team", "field": "metadata.team", "value": "finance", "matching": 5
    }  # fmt: skip


@pytest.mark.parametrize(("metadata", "loaded"), [({}, 20), ({"topic": "churn"}, 20), ({"author": "Jane Doe"}, 40)])
def test_search__loads_all_candidates_only_where_documents_have_values_of_the_field(
    engine: Engine, tenant_name: str, monkeypatch: pytest.MonkeyPatch, metadata: dict[str, str], loaded: int
) -> None:
    tenant, lengths = engine.tenant(tenant_name), list[int]()
    documents = (
        SourceDocument(source=f"d{number}", data=f"Churn {number}".encode(), metadata=metadata) for number in range(40)
    )
    tenant.ingest(documents)

    def count_passages(*args: Any, **options: Any) -> list[Passage]:
        passages = hydrate(*args, **options)
        lengths.append(len(passages))
        return passages

    monkeypatch.setattr(pipeline, "hydrate", count_passages)
    _search(engine, tenant_name, "churn by region")
    assert lengths == [loaded] * 2


def test_conditions__that_nothing_meets_change_nothing(engine: Engine, tenant_name: str) -> None:
    _load(engine, tenant_name)
    result = _search(engine, tenant_name, "report about churn before 2020")
    assert [item.matching for item in result.conditions] == [0]
    assert not any(hit.signals for hit in result.hits)


def test_the_setting__turns_them_off(settings: Settings, tenant_name: str) -> None:
    with opened(settings, BASE | {"rag.retrieval.prefer_stated": False}) as engine:
        _load(engine, tenant_name)
        result = engine.tenant(tenant_name).search(QUESTION, 3, today=TODAY)
    assert result.conditions == ()
    assert not {hit.source for hit in result.hits} <= {"finance-03", "finance-04", "finance-05"}
