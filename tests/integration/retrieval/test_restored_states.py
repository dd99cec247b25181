"""A database that goes back in time under a running process: nothing of the lost states is shown."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag import Engine, SearchResult, Settings, SourceDocument, Tenant
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.retrieval.restoring import NEEDS_PROGRAMS, dump, restore
from tests.integration.variants import changed

pytestmark = NEEDS_PROGRAMS
QUESTIONS = ("salary of the director", "leave in December", "salarry", "+salary director", "budget")
SEARCHES_TO_WARM = 25


def _document(source: str, text: str, acl: str = EVERYONE) -> SourceDocument:
    return SourceDocument(source=source, data=text.encode(), acl=(acl,))


SALARIES = "The salary of the director is 190,000 a year."


@pytest.fixture(params=[0, 100], ids=["without results", "with results"])
def engine(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Engine]:
    overrides: dict[str, Any] = {"rag.retrieval.result_cache": request.param}
    with Engine(changed(settings, overrides), embedder=HashingEmbedder()) as engine:
        yield engine


def _warm(tenant: Tenant) -> list[SearchResult]:
    for number in range(SEARCHES_TO_WARM):
        tenant.search(f"{QUESTIONS[0]} {number}")
    assert tenant._parts.background.drain(10)
    return [tenant.search(question) for question in QUESTIONS for _ in range(2)]


@pytest.mark.parametrize("searches", [pytest.param(200, id="quick"), pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.timeout(900)
def test_search__shows_nothing_of_a_lost_state(
    engine: Engine, database: DatabaseSettings, tmp_path: Path, searches: int
) -> None:
    owner, reader = engine.tenant("acme"), engine.tenant("acme", principals=(EVERYONE,))
    handbook = [_document(f"h{number}.md", f"Leave in December, rule {number}: ask early.") for number in range(10)]
    owner.ingest([*handbook, _document("salaries.md", SALARIES, "department:hr")])
    _warm(reader)
    assert database.admin_url is not None
    dump(database.admin_url, tmp_path / "dump")
    owner.ingest([_document("salaries.md", SALARIES)], prune=False)
    assert any(hit.source == "salaries.md" for result in _warm(reader) for hit in result.hits)
    restore(database.admin_url, tmp_path / "dump")
    # As many changes as were lost.
    owner.ingest([_document("news.md", "The budget is agreed.")], prune=False)
    for number in range(searches):
        result = reader.search(QUESTIONS[number % len(QUESTIONS)])
        assert "salaries.md" not in {hit.source for hit in result.hits}, number
        assert "'salary'" not in " ".join(result.warnings)
    assert any(hit.source == "news.md" for hit in reader.search("budget").hits)
