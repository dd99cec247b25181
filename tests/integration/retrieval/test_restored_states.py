"""A database that goes back in time under a running process: nothing of the lost states is shown."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, SearchResult, Settings, SourceDocument, Tenant
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage import embedded
from tests.integration.variants import changed

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("KOSMOS_TEST_DATABASE_URL") or os.environ.get("KOSMOS_TEST_DOCKER")),
    reason="pg_dump has to be of the server's version: that of the embedded one is at hand",
)
QUESTIONS = ("salary of the director", "leave in December", "salarry", "+salary director", "budget")
SEARCHES_TO_WARM = 25


def _run(program: str, *arguments: str) -> None:
    utils = embedded._package().utils
    binary = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION] / program
    subprocess.run([str(binary), *arguments], capture_output=True, text=True, check=True)


def _restore(admin: str, file: Path) -> None:
    """Put the whole schema back, under the connections of running processes."""
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("DROP SCHEMA kosmos CASCADE")
    _run("pg_restore", f"--dbname={admin}", "--exit-on-error", str(file))


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
    _run("pg_dump", "--format=custom", f"--file={tmp_path / 'dump'}", database.admin_url)
    owner.ingest([_document("salaries.md", SALARIES)], prune=False)
    assert any(hit.source == "salaries.md" for result in _warm(reader) for hit in result.hits)
    _restore(database.admin_url, tmp_path / "dump")
    # As many changes as were lost.
    owner.ingest([_document("news.md", "The budget is agreed.")], prune=False)
    for number in range(searches):
        result = reader.search(QUESTIONS[number % len(QUESTIONS)])
        assert "salaries.md" not in {hit.source for hit in result.hits}, number
        assert "'salary'" not in " ".join(result.warnings)
    assert any(hit.source == "news.md" for hit in reader.search("budget").hits)
