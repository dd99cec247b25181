"""A database of each release, upgraded: what it had is found by the same readers, and work goes on."""

import gzip
import json
from collections.abc import Callable, Iterator

import psycopg
import pytest

from kosmos_rag import Engine, Filter, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.migrate import REVISION
from kosmos_rag.storage.setup import set_up
from tests.releases import keep

RELEASES = sorted(path.name.removesuffix(".sql.gz") for path in keep.RELEASES.glob("*.sql.gz"))


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """The revision of a release."""
    return str(request.param)


@pytest.fixture
def database(empty_database: DatabaseSettings, template: str, release: str) -> DatabaseSettings:
    """A database of the release, upgraded."""
    script = gzip.decompress((keep.RELEASES / f"{release}.sql.gz").read_bytes())
    with psycopg.connect(empty_database.admin_url or "", autocommit=True) as connection:
        connection.execute(script)
    upgrade = set_up(empty_database)
    assert (upgrade.before, upgrade.after) == (release, REVISION)
    return empty_database


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    with Engine(keep.indexed(settings), embedder=HashingEmbedder()) as engine:
        yield engine


def test_release__finds_after_the_upgrade_what_it_found_before(engine: Engine, release: str) -> None:
    assert keep.find_sources(engine) == json.loads((keep.RELEASES / f"{release}.json").read_text())


def test_release__goes_on_after_the_upgrade(engine: Engine, work: Callable[[], None]) -> None:
    scope = engine.tenant("acme")
    work()
    assert scope.search("waiting document", filter=Filter(sources=("waiting",))).hits
    assert [hit.metadata["year"] for hit in scope.search("w1", filter=Filter(sources=("d6",))).hits] == [1999]
    scope.ingest([SourceDocument(source="d6", data=b"replaced"), SourceDocument(source="new", data=b"all is new")])
    scope.indexes.build()
    assert scope.search("all is new").hits[0].source == "new"
    scope.delete("new")
    assert "new" not in scope.sources()
    assert engine.tenant("other").sources() == ["d1"]
    assert scope.erase_all().erased["documents"] == 21
