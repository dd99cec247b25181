"""Questions that bring their own vector or weights, and documents that are listed by a filter or read whole."""

import pytest

from kosmos_rag import Engine, Filter, SourceDocument
from kosmos_rag.core.errors import ModelUnavailable, RequestError
from tests.integration.variants import opened

LEAVE = "Employees receive 20 days of paid annual leave per year."
TRAVEL = "Travel expenses are paid back within 14 days of the receipt."
MARKUP = "<p>No <b>markup</b> is lost,</p>\n\n  and no indentation."


@pytest.fixture
def stored(engine: Engine, tenant_name: str) -> str:
    engine.tenant(tenant_name, collection="notes").ingest(
        [
            SourceDocument(source="leave", data=LEAVE.encode(), metadata={"year": 2026}, media_type="text/plain"),
            SourceDocument(source="travel", data=TRAVEL.encode(), metadata={"year": 2025}, media_type="text/plain"),
            SourceDocument(source="markup", data=MARKUP.encode(), media_type="text/plain"),
            SourceDocument(source="secret", data=b"Annual leave of the board: 90 days.", acl=("department:hr",)),
        ]
    )
    return tenant_name


def test_search__by_vector_needs_no_text(engine: Engine, stored: str) -> None:
    notes = engine.tenant(stored, collection="notes")
    result = notes.search("", 3, vector=[10 * value for value in notes.embed_query(TRAVEL)])
    assert result.hits[0].source == "travel"
    assert result.hits[0].dense_score == pytest.approx(1, abs=0.01)
    assert set(result.retrievers) == {"dense"}
    assert "secret" not in {hit.source for hit in result}
    # The text is for the lexical retriever, the vector for the dense one.
    both = notes.search("annual leave", 3, vector=notes.embed_query(TRAVEL))
    assert set(both.retrievers) == {"dense", "lexical"}
    ranks = {hit.source: (hit.dense_rank, hit.lexical_rank) for hit in both}
    assert (ranks["travel"][0], ranks["leave"][1]) == (1, 1)


def test_search__by_weights_of_the_question(engine: Engine, stored: str) -> None:
    notes = engine.tenant(stored, collection="notes")
    assert set(notes.search("annual leave", semantic_weight=0).retrievers) == {"lexical"}
    assert set(notes.search("annual leave", keyword_weight=0).retrievers) == {"dense"}
    assert set(notes.search("annual leave").retrievers) == {"dense", "lexical"}


def test_search__by_words_alone_needs_no_model(engine: Engine, stored: str) -> None:
    # That of the settings is not on this machine.
    with Engine(engine.settings) as without_model:
        notes = without_model.tenant(stored, collection="notes")
        assert notes.search("annual leave", semantic_weight=0).hits[0].source == "leave"
        with pytest.raises(ModelUnavailable):
            notes.search("annual leave")


def test_search__caches_no_result_of_another_vector(engine: Engine, stored: str) -> None:
    with opened(engine.settings, {"rag.retrieval.result_cache": 10}) as caching:
        notes = caching.tenant(stored, collection="notes")
        first, second = notes.embed_query(TRAVEL), notes.embed_query(LEAVE)
        assert [notes.search("", 1, vector=item).hits[0].source for item in (first, second)] == ["travel", "leave"]
        again = notes.search("", 1, vector=first)
        assert (again.cached, again.hits[0].source) == (True, "travel")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vector": [1.0, 0.0]}, "the vector has 2 dimensions, and those of .* by hashing-64, which has 64"),
        ({"vector": [0.0] * 64}, "not of finite numbers, or has length 0"),
        ({"vector": [float("nan")] * 64}, "not of finite numbers"),
        ({"vector": ["a"] * 64}, "not of finite numbers"),
        ({"vector": [1.0] * 64, "semantic_weight": 0}, "only the dense retriever searches by it"),
        ({"semantic_weight": 0, "keyword_weight": 0}, "one of the retrievers must run"),
        ({"keyword_weight": -1}, "keyword_weight is -1; give a number from 0"),
        ({}, "the question is empty"),
    ],
)
def test_search__refuses_unusable_vectors(engine: Engine, stored: str, arguments: dict, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        engine.tenant(stored, collection="notes").search("", **arguments)


def test_documents__are_listed_and_counted_by_a_filter(engine: Engine, stored: str) -> None:
    notes = engine.tenant(stored, collection="notes")
    recent = Filter(where={"metadata.year": {"$gte": 2026}})
    assert [info.source for info in notes.documents(filter=recent)] == ["leave"]
    assert (notes.count_documents(recent), notes.count_documents()) == (1, 3)
    assert notes.count_documents(Filter(sources=("secret",))) == 0
    with pytest.raises(RequestError, match="names no field"):
        notes.documents(filter=Filter(where={"year": 2026}))


@pytest.mark.parametrize("audited", [False, True])
def test_document_texts__are_whole_and_of_this_reader(engine: Engine, stored: str, audited: bool) -> None:
    with opened(engine.settings, {"rag.audit.enabled": audited}) as reading:
        notes = reading.tenant(stored, collection="notes", subject="ada")
        ids = notes.document_ids(["markup", "leave", "secret", "nothing"])
        assert notes.document_texts(ids) == {ids[0]: MARKUP, ids[1]: LEAVE}
        assert [info.media_type for info in notes.documents(ids=ids[:1])] == ["text/plain"]
        accesses = list(notes.audit.find(limit=10)) if audited else []
        assert len(accesses) == (2 if audited else 0)


def test_ingest__refuses_an_unknown_media_type(engine: Engine, tenant_name: str) -> None:
    report = engine.tenant(tenant_name).ingest(SourceDocument(source="a", data=b"text", media_type="text/unknown"))
    assert [failure.code for failure in report.failed] == ["unreadable"]
    assert "give one that can be parsed" in report.failed[0].message
