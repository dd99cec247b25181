"""Collections: parts of a tenant that are written and counted apart, and asked together or alone."""

import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, Filter, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.text import bm25
from kosmos_rag.core.types import SearchResult
from kosmos_rag.storage.tenants import tenant
from tests.integration.variants import opened


def _text(source: str, text: str) -> SourceDocument:
    return SourceDocument(source=source, data=text.encode())


def _collect_hits(result: SearchResult) -> set[tuple[str, str]]:
    return {(hit.collection, hit.source) for hit in result.hits}


def _scores(result: SearchResult) -> dict[tuple[str, str], float]:
    return {(hit.collection, hit.source): hit.lexical_score for hit in result.hits if hit.lexical_score is not None}


def _statistics(database: DatabaseSettings, tenant_name: str) -> dict[str, tuple[int, int]]:
    """Chunks and their length as kept, by collection; they equal what counting the chunks gives."""
    owner = [tenant(tenant_name).id]
    with psycopg.connect(database.admin_url or "") as connection:
        stored = connection.execute(
            "SELECT collection, chunks, length FROM kosmos.collection_statistics WHERE tenant_id = %s", owner
        ).fetchall()
        expected = connection.execute(
            "SELECT collection, count(*), sum(length)::bigint FROM kosmos.chunks WHERE tenant_id = %s GROUP BY 1", owner
        ).fetchall()
        lexemes = connection.execute(
            "SELECT collection, lexeme, chunks FROM kosmos.lexemes WHERE tenant_id = %s", owner
        ).fetchall()
        recount = connection.execute(
            "SELECT c.collection, u.lexeme, count(*) FROM kosmos.chunks c, unnest(c.tsv) u WHERE tenant_id = %s "
            "GROUP BY 1, 2",
            owner,
        ).fetchall()
    assert {row for row in stored if row[1]} == set(expected)
    assert set(lexemes) == set(recount)
    return {collection: (chunks, length) for collection, chunks, length in stored}


def test_one_source_in_two_collections__is_two_documents(
    engine: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    plain, wiki = engine.tenant(tenant_name), engine.tenant(tenant_name, collection="wiki")
    assert plain.ingest(_text("a", "first words")).new == 1
    before = [(document.id, document.version, document.updated_at) for document in plain.documents()]
    assert wiki.ingest(_text("a", "second words")).new == 1
    [of_default, of_wiki] = plain.documents()
    assert [(d.source, d.collection, d.version) for d in (of_default, of_wiki)] == [
        ("a", "default", 1),
        ("a", "wiki", 1),
    ]
    assert [(of_default.id, of_default.version, of_default.updated_at)] == before
    assert of_wiki.id != of_default.id
    assert _statistics(database, tenant_name) == {"default": (1, 2), "wiki": (1, 2)}


def test_documents_of_the_default_collection__have_the_ids_of_before_there_were_others(
    engine: Engine, tenant_name: str
) -> None:
    scoped, unscoped = engine.tenant(tenant_name, collection="default"), engine.tenant(tenant_name)
    unscoped.ingest(_text("/kb/a.md", "words"))
    [document] = scoped.documents()
    assert document.id == uuid.uuid5(tenant(tenant_name).id, "/kb/a.md")
    assert scoped.ingest(_text("/kb/a.md", "words")).unchanged == 1


def test_documents__are_listed_for_one_collection_or_all(engine: Engine, tenant_name: str) -> None:
    for collection in ("wiki", "mail", "default"):
        engine.tenant(tenant_name, collection=collection).ingest(_text(f"in-{collection}", "words"))
    assert [d.source for d in engine.tenant(tenant_name, collection="mail").documents()] == ["in-mail"]
    assert [d.collection for d in engine.tenant(tenant_name).documents()] == ["default", "mail", "wiki"]
    assert engine.tenant(tenant_name, collection="unknown").documents() == []
    assert engine.tenant(tenant_name).sources() == ["in-default"]


def test_ingest__prunes_its_own_collection_only(engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    plain, wiki = engine.tenant(tenant_name), engine.tenant(tenant_name, collection="wiki")
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"words of {name}")
    assert plain.ingest(tmp_path).new == wiki.ingest(tmp_path).new == 2
    (tmp_path / "b.txt").unlink()
    assert wiki.ingest(tmp_path).removed == 1
    assert len(plain.sources()) == 2
    assert len(wiki.sources()) == 1
    assert plain.ingest(tmp_path).removed == 1


def test_delete__reaches_its_own_collection_only(engine: Engine, database: DatabaseSettings, tenant_name: str) -> None:
    plain, wiki = engine.tenant(tenant_name), engine.tenant(tenant_name, collection="wiki")
    for scope in (plain, wiki):
        scope.ingest([_text("a", "alpha words"), _text("b", "beta words")])
    assert engine.tenant(tenant_name, collection="unknown").delete(["a", "b"]) == 0
    assert wiki.delete(["a", "b"]) == 2
    assert wiki.delete("a") == 0
    assert _collect_hits(plain.search("words")) == {("default", "a"), ("default", "b")}
    assert _statistics(database, tenant_name) == {"default": (2, 4), "wiki": (0, 0)}


def test_retrieve__spans_all_collections_or_one(engine: Engine, tenant_name: str) -> None:
    for collection in ("wiki", "mail"):
        engine.tenant(tenant_name, collection=collection).ingest(_text("a", f"words from {collection}"))
    engine.tenant(f"{tenant_name}-other", collection="wiki").ingest(_text("a", "words of another tenant"))
    everything = engine.tenant(tenant_name)
    assert _collect_hits(everything.search("words")) == {("wiki", "a"), ("mail", "a")}
    assert _collect_hits(engine.tenant(tenant_name, collection="mail").search("words")) == {("mail", "a")}
    assert _collect_hits(everything.search("words", filter=Filter(where={"collection": "wiki"}))) == {("wiki", "a")}
    other = engine.tenant(tenant_name, collection="mail").search("words", filter=Filter(where={"collection": "wiki"}))
    assert (other.returned, other.incomplete_reason is None) == (0, False)
    assert engine.tenant(tenant_name, collection="default").search("words").returned == 0
    assert [p.citation.source for p in engine.tenant(tenant_name, collection="mail").context("words").passages] == ["a"]


CORPORA = {
    "default": ["churn rate", "churn cohort of the year", "churn", "refund of an invoice"],
    "wiki": ["refund policy", "refund within days of an order", "churn and refund", "outage", "quota"],
}


def _fill(engine: Engine, tenant_name: str) -> None:
    for collection, texts in CORPORA.items():
        engine.tenant(tenant_name, collection=collection).ingest(
            _text(f"{collection}-{number}", text) for number, text in enumerate(texts)
        )


def _expected(database: DatabaseSettings, tenant_name: str, collection: str, word: str) -> dict[tuple[str, str], float]:
    """BM25 of one word, from the statistics of one collection."""
    with psycopg.connect(database.admin_url or "") as connection:
        rows = connection.execute(
            "SELECT d.source, c.length, coalesce((SELECT cardinality(u.positions) FROM unnest(c.tsv) u "
            "WHERE u.lexeme = %s), 0) FROM kosmos.chunks c JOIN kosmos.documents d ON d.id = c.document_id "
            "WHERE c.tenant_id = %s AND c.collection = %s",
            (word, tenant(tenant_name).id, collection),
        ).fetchall()
    average = sum(length for _, length, _ in rows) / len(rows)
    idf = bm25.inverse_document_frequency(len(rows), sum(1 for row in rows if row[2]))
    return {
        (collection, source): frequency * 2.5 / (frequency + 1.5 * (0.5 + 0.5 * length / average)) * idf
        for source, length, frequency in rows
        if frequency
    }


@pytest.mark.parametrize("packed", [False, True])
def test_a_word__weighs_what_its_own_collection_makes_of_it(
    packed: bool, settings: Settings, database: DatabaseSettings, tenant_name: str
) -> None:
    """`churn` is common in one and rare in the other: a question over both merges scores, not statistics."""
    with opened(settings, {"indexes.unsegmented_chunks": 1, "indexes.vector_cache_mb": 0}) as engine:
        _fill(engine, tenant_name)
        if packed:
            engine.tenant(tenant_name).indexes.build()
        for word in ("churn", "refund"):
            of_each = {name: _expected(database, tenant_name, name, word) for name in CORPORA}
            for name, expected in of_each.items():
                result = engine.tenant(tenant_name, collection=name).search(word)
                assert _scores(result) == pytest.approx(expected, rel=1e-6)
            over_both = engine.tenant(tenant_name).search(word)
            assert _scores(over_both) == pytest.approx(of_each["default"] | of_each["wiki"], rel=1e-6)
            by_rank = sorted((hit for hit in over_both.hits if hit.lexical_rank), key=lambda hit: hit.lexical_rank or 0)
            scores = [hit.lexical_score or 0 for hit in by_rank]
            assert scores == sorted(scores, reverse=True)
            assert ("segments" in over_both.retrievers["lexical"].plan) == packed


def test_index_build__packs_each_collection_for_itself(settings: Settings, tenant_name: str) -> None:
    with opened(settings, {"indexes.unsegmented_chunks": 5}) as engine:
        _fill(engine, tenant_name)
        due = {info.collection for info in engine.tenant(tenant_name).indexes.status() if info.due}
        assert due == {"wiki"}, "default has four chunks, and five are worth a segment"
        status = engine.tenant(tenant_name).indexes.build()
    rows = {(info.collection, info.kind): info.rows for info in status if info.collection}
    assert rows == {("default", "unsegmented"): 4, ("wiki", "segment"): 5, ("wiki", "unsegmented"): 0}


def test_collection__with_a_malformed_name_is_refused(engine: Engine, tenant_name: str) -> None:
    for name in ("", "Wiki", "a b", "a" * 64, "-a", "../a", "ä", "a\n", "a\x00", 5, ["wiki"]):
        with pytest.raises(RequestError, match=r"collection name .* is malformed; use 1 to 63 of a-z"):
            engine.tenant(tenant_name, collection=name)  # type: ignore[arg-type]


def test_reading__makes_no_collection(engine: Engine, database: DatabaseSettings, tenant_name: str) -> None:
    engine.tenant(tenant_name).ingest(_text("a", "words"))
    unknown = engine.tenant(tenant_name, collection="unknown")
    assert unknown.search("words").returned == 0
    assert unknown.ingest([]).seen == 0
    assert unknown.delete("a") == 0
    assert set(_statistics(database, tenant_name)) == {"default"}


def test_collection__that_is_deleted_while_it_is_created_says_so(
    engine: Engine, tenant_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    collections = engine.tenant(tenant_name).collections
    execute = psycopg.Cursor.execute

    def delete_before(self: psycopg.Cursor, query: Any, *args: Any, **kwargs: Any) -> psycopg.Cursor:
        if "REPEATABLE READ READ ONLY" in str(query):  # the snapshot that is listed
            collections.delete("policies")
        return execute(self, query, *args, **kwargs)

    monkeypatch.setattr(psycopg.Cursor, "execute", delete_before)
    for write in (collections.create, collections.set_preset):
        with pytest.raises(RequestError, match="policies was deleted meanwhile; create it again"):
            write("policies", preset="corporate")
