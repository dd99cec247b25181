"""Languages: each document is analysed in its own, and one question finds them all."""

import json
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import PERMISSION_FEED, SearchResult
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.tenants import tenant
from tests.integration.variants import changed, opened

ENGLISH = SourceDocument(source="houses.txt", data=b"Houses that were sold in the harbour quarter.")
GERMAN = SourceDocument(source="haeuser.txt", data="Die Häuser am Hafen wurden verkauft.".encode(), language="german")
PYTHON = SourceDocument(source="stock.py", data=b"def is_sold(house):\n    return house in SOLD_HOUSES\n")
SQL = SourceDocument(source="report.SQL", data=b"SELECT sum(total) FROM orders WHERE status IS NOT NULL")


def _lexical(result: SearchResult) -> set[str]:
    return {hit.source for hit in result.hits if hit.lexical_rank is not None}


def _languages(database: DatabaseSettings, tenant_name: str) -> dict[str, list[str]]:
    with psycopg.connect(database.admin_url or "") as connection:
        query = "SELECT collection, languages FROM kosmos.acl_statistics WHERE tenant_id = %s"
        return dict(connection.execute(query, [tenant(tenant_name).id]).fetchall())


@pytest.fixture
def mixed(engine: Engine, tenant_name: str) -> Engine:
    """A tenant with English, German and code."""
    assert engine.tenant(tenant_name).ingest([ENGLISH, GERMAN, PYTHON, SQL]).new == 4
    return engine


def test_documents__say_what_they_were_analysed_as(mixed: Engine, tenant_name: str) -> None:
    assert {document.source: document.language for document in mixed.tenant(tenant_name).documents()} == {
        "houses.txt": "english",
        "haeuser.txt": "german",
        "stock.py": "simple",
        "report.SQL": "simple",
    }


ENGLISH_CHAPTER = """# Houses

The house by the harbour was sold to a company that had been looking for it since the spring. It is to be opened as
a hotel, but the rooms are not ready for guests, and the roof has to be repaired before the winter.
"""
GERMAN_CHAPTER = """# Häuser

Die Häuser am Hafen wurden an eine Gesellschaft verkauft, die seit dem Frühling nach ihnen gesucht hat. Sie werden als
Hotel geöffnet, aber die Zimmer sind nicht fertig, und das Dach ist vor dem Winter zu reparieren. Der Antrag auf einen
Zuschuss für die Hausratversicherung ist bei der Stadt zu stellen.
"""
MANUAL = SourceDocument(source="manual.md", data=f"{ENGLISH_CHAPTER}\n{GERMAN_CHAPTER}".encode())


def test_chunks__are_analysed_in_their_own_language(
    engine: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest(MANUAL)
    assert sorted(_languages(database, tenant_name)["default"]) == ["english", "german"]
    assert [document.language for document in scope.documents()] == ["english"]
    for question in ("Haus", "Versicherung", "Zuschüssen"):
        result = scope.search(question, 5)
        assert [hit.section for hit in result.hits if hit.lexical_rank is not None] == [("Häuser",)]
        assert not result.warnings
    hits = scope.search("companies looked", 5).hits
    assert [hit.section for hit in hits if hit.lexical_rank is not None] == [("Houses",)]


def test_document__in_another_language_than_the_configured_one(
    engine: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    """Its short chunks too, which show no language of their own."""
    sections = [
        "# Urlaub\n\nDer Antrag ist bis zum Ende des Monats zu stellen.",
        "# Dienstreisen\n\nDie Kosten werden von der Abteilung nach der Reise erstattet.",
        "# Schlüssel\n\nEin Verlust ist sofort bei dem Hausmeister zu melden.",
    ]
    scope = engine.tenant(tenant_name)
    scope.ingest(SourceDocument(source="handbuch.md", data="\n\n".join(sections).encode()))
    assert [document.language for document in scope.documents()] == ["german"]
    assert _languages(database, tenant_name) == {"default": ["german"]}


def test_chunks__of_a_document_in_simple_have_no_other_language(
    engine: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    engine.tenant(tenant_name).ingest(replace(MANUAL, language="simple"))
    assert _languages(database, tenant_name) == {"default": ["simple"]}


def test_languages_of_chunks__move_with_their_acl(
    engine: Engine, database: DatabaseSettings, tmp_path: Path, tenant_name: str
) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest([replace(MANUAL, acl=(PERMISSION_FEED,)), replace(ENGLISH, acl=("bo",))])
    rows = [{"container": "space", "principals": ["ann"]}, {"document": "manual.md", "containers": ["space"]}]
    (tmp_path / "feed.jsonl").write_text("\n".join(map(json.dumps, rows)))
    feed = {"kind": "json_lines", "name": "wiki", "path": str(tmp_path / "feed.jsonl")}
    assert scope.sync_permissions(feed).changed == 1
    with psycopg.connect(database.admin_url or "") as connection:
        query = "SELECT acl, languages FROM kosmos.acl_statistics WHERE tenant_id = %s"
        languages = connection.execute(query, [tenant(tenant_name).id]).fetchall()
    assert sorted((acl, sorted(names)) for acl, names in languages) == [
        (["ann"], ["english", "german"]),
        (["bo"], ["english"]),
    ]
    reader = engine.tenant(tenant_name, principals=("ann",))
    assert [hit.section for hit in reader.search("Haus").hits if hit.lexical_rank is not None] == [("Häuser",)]


QUESTIONS = {
    "Haus": {"haeuser.txt"},  # by its German stem; an English one would not lead there
    "a house": {"houses.txt", "stock.py"},
    "Hafen sold": {"houses.txt", "haeuser.txt", "stock.py"},
    "in": {"stock.py"},  # a stop word everywhere but in code
    "is": {"stock.py", "report.SQL"},
    "not null from where": {"report.SQL"},
    "SOLD_HOUSES": {"houses.txt", "stock.py"},
    "orders": {"report.SQL"},
    "the die": set(),  # stop words of the languages whose documents hold them
    "Hafen harbour is_sold": {"houses.txt", "haeuser.txt", "stock.py", "report.SQL"},
}


@pytest.mark.parametrize("packed", [False, True])
def test_question__is_analysed_in_each_language_of_the_collection(
    packed: bool, mixed: Engine, settings: Settings, tenant_name: str
) -> None:
    if packed:
        with opened(settings, {"indexes.unsegmented_chunks": 1}) as other:
            other.tenant(tenant_name).indexes.build()
    results = {question: mixed.tenant(tenant_name).search(question, 10) for question in QUESTIONS}
    assert {question: _lexical(answer) for question, answer in results.items()} == QUESTIONS
    assert results["in"].retrievers["lexical"].plan == ("segments" if packed else "exact scan")


def test_languages__are_recorded_for_each_collection(
    mixed: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    mixed.tenant(tenant_name, collection="wiki").ingest([ENGLISH])
    assert {name: sorted(configurations) for name, configurations in _languages(database, tenant_name).items()} == {
        "default": ["english", "german", "simple"],
        "wiki": ["english"],
    }
    mixed.tenant(tenant_name, collection="wiki").ingest([ENGLISH, GERMAN, PYTHON])
    assert sorted(_languages(database, tenant_name)["wiki"]) == ["english", "german", "simple"]
    assert len(_languages(database, tenant_name)["default"]) == 3


def test_a_question_of_one_collection__is_analysed_in_its_languages_alone(engine: Engine, tenant_name: str) -> None:
    engine.tenant(tenant_name, collection="code").ingest([PYTHON])
    engine.tenant(tenant_name, collection="docs").ingest([ENGLISH])
    assert _lexical(engine.tenant(tenant_name, collection="docs").search("in")) == set()
    assert _lexical(engine.tenant(tenant_name, collection="code").search("in")) == {"stock.py"}
    assert _lexical(engine.tenant(tenant_name).search("in")) == {"stock.py"}


def test_language__given_with_a_document_wins_over_its_name(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest(SourceDocument(source="letter.py", data=b"Houses in the quarter.", language="english"))
    assert _lexical(scope.search("house")) == {"letter.py"}
    assert _lexical(scope.search("in")) == set()


def test_another_language__is_a_change_of_the_document(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)

    def ingest(language: str | None) -> tuple[int, int]:
        report = scope.ingest(SourceDocument(source="a.txt", data="Die Häuser.".encode(), language=language))
        return report.changed, report.unchanged

    scope.ingest(SourceDocument(source="a.txt", data="Die Häuser.".encode()))
    assert ingest("german") == (1, 0)
    assert ingest("german") == (0, 1)
    assert _lexical(scope.search("Haus")) == {"a.txt"}
    assert ingest(None) == (1, 0)
    assert [document.language for document in scope.documents()] == ["english"]


def test_another_configured_language__changes_text_and_leaves_code(
    settings: Settings, tmp_path: Path, tenant_name: str
) -> None:
    (tmp_path / "a.txt").write_text("Die Häuser.")
    (tmp_path / "b.py").write_text("print('houses')")
    german = changed(settings, {"ingestion.language": "german"})
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        engine.tenant(tenant_name).ingest(tmp_path)
    with Engine(german, embedder=HashingEmbedder()) as engine:
        assert engine.tenant(tenant_name).ingest(tmp_path).changed == 2, (
            "settings that shape chunks change all documents"
        )
        assert [d.language for d in engine.tenant(tenant_name).documents()] == ["german", "simple"]


UNKNOWN = ("klingon", "", "German", "pg_catalog.german", "3748", "x'; --", "ä\x00", 5)


def test_an_unknown_language__fails_its_document_alone(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    wrong = [
        SourceDocument(source=f"wrong{number}.txt", data=b"words", language=language)  # type: ignore[arg-type]
        for number, language in enumerate(UNKNOWN)
    ]
    report = scope.ingest([ENGLISH, *wrong, GERMAN])
    assert report.new == 2
    assert {document.source for document in scope.documents()} == {"houses.txt", "haeuser.txt"}
    assert {failure.code for failure in report.failed} == {"unknown_language"}
    for failure, document in zip(report.failed, wrong, strict=True):
        assert failure.source == document.source
        assert f"the language of {document.source} is {str(document.language)!r} (SourceDocument" in failure.message
        assert "\n" not in failure.message


def test_an_unknown_configured_language__fails_what_has_none_of_its_own(settings: Settings, tenant_name: str) -> None:
    klingon = changed(settings, {"ingestion.language": "klingon"})
    with Engine(klingon, embedder=HashingEmbedder()) as engine:
        report = engine.tenant(tenant_name).ingest([ENGLISH, GERMAN, PYTHON])
        assert report.new == 2
        [failure] = report.failed
        assert (failure.source, failure.code) == ("houses.txt", "unknown_language")
        assert "is 'klingon' (ingestion.language)" in failure.message


def test_an_unknown_language__keeps_what_was_stored_before(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest(SourceDocument(source="a.txt", data=b"old words"))
    report = scope.ingest(SourceDocument(source="a.txt", data=b"new words", language="klingon"))
    assert (report.changed, len(report.failed)) == (0, 1)
    assert [hit.text for hit in scope.search("words").hits] == ["old words"]
