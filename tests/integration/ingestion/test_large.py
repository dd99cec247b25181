"""Documents at the limit of size, from end to end: minutes, so they run by `make test-slow`."""

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from tests.integration.variants import opened


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_large_line__of_fifty_megabytes_is_ingested(settings: Settings, tenant_name: str) -> None:
    with opened(settings, {"ingestion.parsing.text_mb": 64, "ingestion.parsing.memory_mb": 4096}) as engine:
        _ingest_and_find(engine, tenant_name)


def _ingest_and_find(engine: Engine, tenant_name: str) -> None:
    line = " ".join(f"word{number % 5000} token{number}" for number in range(2_600_000))
    data = line.encode()[: 50 * 1024 * 1024]
    scope = engine.tenant(tenant_name)
    report = scope.ingest([SourceDocument(source="big.txt", data=data)])
    assert report.failed == ()
    assert report.chunks > 50_000
    [hit] = [hit for hit in scope.search("token1234567", 200).hits if hit.lexical_rank == 1]
    assert "token1234567" in hit.text
    assert data.decode()[hit.start : hit.end] == hit.text
    assert scope.delete("big.txt") == 1
