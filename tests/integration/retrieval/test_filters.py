"""Filters through both retrievers: each field and operator of docs/filters.md, whatever the plan of the retrievers.

What a condition means is compared with an evaluator in test_filters_sql.py; here it is that the retrievers heed it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from kosmos_rag import Engine, Filter, Settings, SourceDocument
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import EVERYONE, SearchResult
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.conftest import clone

PRINCIPALS = (EVERYONE, "department:sales", "department:legal")
QUESTION = "churn"


def _document(source: str, title: str, collection: str = "default", **options: Any) -> tuple[str, SourceDocument]:
    suffix = f"about churn, {source.rsplit('/', 1)[-1].partition('.')[0]}"
    data = f"# {title}\n\nWords {suffix}." if source.endswith(".md") else f"churn = 1  # words {suffix}"
    return collection, SourceDocument(source=source, data=data.encode(), title=title, **options)


DOCUMENTS = [
    _document("/kb/a.md", "Alpha", metadata={"year": 2024, "tags": ["kpi", "finance"], "owner": None, "score": 0.5}),
    _document("/kb/deep/b.md", "Beta", metadata={"year": 2025, "draft": True, "a": {"b": {"c": "x"}}}),
    _document("/kb2/c.py", "Gamma", metadata={"year": "2025", "tags": [], "due": "2026-01-31"}),
    _document("/kb/d.md", "Delta", acl=("department:sales", "department:legal"), metadata={"year": 2026}),
    _document("/kb/e.md", "Epsilon", "wiki", acl=("department:legal",), metadata={"draft": False}),
    _document("/kb_x/f.md", "Zeta", "wiki", language="german"),
]
ALL = frozenset("abcdef")


@dataclass(frozen=True, kw_only=True)
class Library:
    """A tenant with the documents above. After `moment`, `f` was published, and `a` and `d` were once more."""

    engine: Engine
    moment: datetime
    plan: str
    """Of the lexical retriever, without a filter."""

    def letters(self, where: Filter | None, *, principals: tuple[str, ...] = PRINCIPALS, **scope: Any) -> set[str]:
        """Which documents come; each retriever must bring all of them."""
        result = self.search(where, principals=principals, **scope)
        letters = {_letter(hit.source) for hit in result.hits}
        for retriever in ("dense_rank", "lexical_rank"):
            assert {_letter(hit.source) for hit in result.hits if getattr(hit, retriever)} == letters, retriever
        assert result.returned == len(letters)
        return letters

    def search(
        self, where: Filter | None, *, principals: tuple[str, ...] = PRINCIPALS, k: Any = 20, **scope: Any
    ) -> SearchResult:
        return self.engine.tenant("acme", principals=principals, **scope).search(QUESTION, k, where)


def _letter(source: str) -> str:
    return source.rsplit("/", 1)[-1][0]


def _publish(engine: Engine, letters: str, **changes: Any) -> None:
    for collection, document in DOCUMENTS:
        if _letter(document.source) in letters:
            again = {name: getattr(document, name) for name in document.__slots__} | changes
            report = engine.tenant("acme", collection=collection).ingest(SourceDocument(**again))
            assert report.new + report.changed == 1


@pytest.fixture(scope="module", params=["scanned", "packed", "in part"])
def library(request: pytest.FixtureRequest, server: Any, template: str) -> Iterator[Library]:
    """The library without indexes, with all of it in them, and with what came later beside them."""
    settings = Settings.load(
        overrides={
            "rag.reranking.enabled": False,
            "rag.retrieval.similarity_threshold": -1.0,
            "indexes.unsegmented_chunks": 1,
            "indexes.vector_min_chunks": 1,
        }
    )
    with (
        clone(server, template) as database,
        Engine(settings.model_copy(update={"database": database}), embedder=HashingEmbedder()) as engine,
    ):
        _publish(engine, "bce")
        _publish(engine, "ad", title="Before", acl=(EVERYONE,), metadata={"year": 2025, "draft": True})
        if request.param != "scanned":
            engine.tenant("acme").indexes.build()
        moment = datetime.now(UTC)
        _publish(engine, "adf")
        if request.param == "packed":
            engine.tenant("acme").indexes.build()
        plans = {"scanned": "exact scan", "packed": "segments", "in part": "segments, exact scan of the rest"}
        yield Library(engine=engine, moment=moment, plan=plans[request.param])


def test_library__is_what_these_tests_need(library: Library) -> None:
    result = library.search(None)
    assert {_letter(hit.source) for hit in result.hits} == ALL
    assert result.retrievers["lexical"].plan == library.plan
    assert (result.retrievers["dense"].plan == "exact scan") == (library.plan == "exact scan")


WHERE: list[tuple[dict[str, Any], str]] = [
    ({}, "abcdef"),
    ({"source": "/kb/a.md"}, "a"),
    ({"source": {"$gt": "/kb/e.md"}}, "cf"),
    ({"title": "Alpha"}, "a"),
    ({"title": {"$gte": "Epsilon", "$lt": "Zeta"}}, "ce"),
    ({"title": "Before"}, ""),
    ({"media_type": "text/markdown"}, "abdef"),
    ({"language": "german"}, "f"),
    ({"language": {"$in": ["simple", "german"]}}, "cf"),
    ({"collection": "wiki"}, "ef"),
    ({"collection": {"$ne": "wiki"}}, "abcd"),
    ({"acl": "department:legal"}, "de"),
    ({"acl": {"$in": ["everyone"]}}, "abcf"),
    ({"department": "sales"}, "d"),
    ({"department": {"$ne": "sales"}}, "abcef"),
    ({"department": {"$in": ["sales", "legal"]}}, "de"),
    ({"department": {"$nin": ["sales", "legal"]}}, "abcf"),
    ({"metadata.year": 2025}, "b"),
    ({"metadata.year": {"$eq": "2025"}}, "c"),
    ({"metadata.year": {"$ne": 2025}}, "acdef"),
    ({"metadata.year": {"$in": [2024, 2026]}}, "ad"),
    ({"metadata.year": {"$in": []}}, ""),
    ({"metadata.year": {"$nin": [2024, "2025"]}}, "bdef"),
    ({"metadata.year": {"$gt": 2024}}, "bd"),
    ({"metadata.year": {"$gte": 2024, "$lt": 2026}}, "ab"),
    ({"metadata.year": {"$lte": 2024}}, "a"),
    ({"metadata.score": {"$gt": 0.4}}, "a"),
    ({"metadata.draft": True}, "b"),
    ({"metadata.draft": {"$exists": True}}, "be"),
    ({"metadata.draft": {"$exists": False}}, "acdf"),
    ({"metadata.owner": None}, "a"),
    ({"metadata.tags": "kpi"}, "a"),
    ({"metadata.tags": {"$exists": True}}, "ac"),
    ({"metadata.a.b.c": "x"}, "b"),
    ({"metadata.due": {"$gte": date(2026, 1, 1)}}, "c"),
    ({"$or": [{"title": "Alpha"}, {"metadata.tags": "finance"}, {"metadata.year": "2025"}]}, "ac"),
    ({"$and": [{"collection": "default"}, {"metadata.year": {"$gte": 2025}}]}, "bd"),
    ({"$not": {"metadata.year": {"$gt": 2024}}}, "acef"),
    ({"$not": {"$or": [{"department": "legal"}, {"language": "simple"}]}, "metadata.draft": {"$ne": True}}, "af"),
]


@pytest.mark.parametrize(("where", "letters"), WHERE, ids=lambda value: value if isinstance(value, str) else None)
def test_where__holds_in_both_legs(where: dict[str, Any], letters: str, library: Library) -> None:
    assert library.letters(Filter(where=where)) == set(letters)


def test_where__compares_times(library: Library) -> None:
    moment = library.moment
    elsewhere = moment.astimezone(timezone(timedelta(hours=5, minutes=45)))
    for condition, letters in (
        ({"created_at": {"$gte": moment}}, "f"),
        ({"created_at": {"$lt": elsewhere}}, "abcde"),
        ({"updated_at": {"$gte": elsewhere}}, "adf"),
        ({"updated_at": {"$lt": moment.isoformat()}}, "bce"),
        ({"updated_at": {"$gte": moment.replace(tzinfo=None)}}, "adf"),  # without a zone: in UTC
        ({"created_at": {"$lt": moment}, "updated_at": {"$gt": moment}}, "ad"),
        ({"created_at": {"$gte": date(2020, 1, 1)}}, "abcdef"),
        ({"created_at": {"$gte": "2020-01-01"}}, "abcdef"),
        ({"updated_at": {"$lte": date(2020, 1, 1)}}, ""),
        ({"created_at": {"$exists": True}}, "abcdef"),
    ):
        assert library.letters(Filter(where=condition)) == set(letters), condition


@pytest.mark.parametrize(
    ("sources", "letters"),
    [
        (("/kb",), "abde"),
        (("/kb/deep/",), "b"),
        (("/kb/a.md", "/kb2"), "ac"),
        (("/kb_x",), "f"),
        (("/kb%",), ""),
        (("/k",), ""),
    ],
)
def test_sources__hold_in_both_legs(sources: tuple[str, ...], letters: str, library: Library) -> None:
    assert library.letters(Filter(sources=sources)) == set(letters)


def test_sources__match_composed_and_decomposed_names(engine: Engine, tenant_name: str) -> None:
    tenant = engine.tenant(tenant_name)
    decomposed = "Bu\u0308ro/U\u0308bersicht.md"
    tenant.ingest([SourceDocument(source=source, data=b"Words about churn.") for source in (decomposed, "other.md")])
    for source in ("Büro/Übersicht.md", "Büro", decomposed):
        hits = tenant.search(QUESTION, filter=Filter(sources=(source,))).hits
        assert [hit.source for hit in hits] == [decomposed]


def test_sources_conditions_collection_and_readers__must_all_hold(library: Library) -> None:
    where = Filter(sources=("/kb",), where={"department": "legal", "updated_at": {"$gte": library.moment}})
    assert library.letters(where) == {"d"}
    assert library.letters(where, collection="wiki") == set()
    assert library.letters(Filter(sources=("/kb",)), collection="wiki") == {"e"}
    # A filter narrows what a reader may read, and never widens it.
    assert library.letters(Filter(where={"department": "legal"}), principals=(EVERYONE,)) == set()
    assert library.letters(Filter(where={"department": "sales"}), principals=("department:sales",)) == {"d"}
    assert library.letters(Filter(sources=("/kb",)), principals=(EVERYONE,)) == {"a", "b"}


@pytest.mark.parametrize(
    "where",
    [
        {"department": "legal"},
        {"department": {"$in": ["legal", "hr"]}},
        {"acl": "department:legal"},
        {"acl": {"$gte": "department:l", "$lt": "department:m"}},
        {"acl": {"$gt": "a", "$lt": "department:sales"}},
        {"$not": {"acl": {"$nin": ["department:legal"]}}},
    ],
)
def test_filter__sees_no_principal_that_the_reader_does_not_hold(where: dict[str, Any], library: Library) -> None:
    """A filter on `acl` or `department` sees only principals that the reader holds.

    `d` may be read by sales and by legal; a reader of sales must not find out about legal.
    """
    assert "d" in library.letters(Filter(where=where))
    assert library.letters(Filter(where=where), principals=("department:sales",)) == set()


def test_filter__that_leaves_nothing_says_so(library: Library) -> None:
    result = library.search(Filter(where={"title": "Nobody's"}))
    assert result.returned == 0
    assert result.incomplete_reason == "no passage that the reader may read matches the question and the filter"
    assert {name: stats.reason for name, stats in result.retrievers.items()} == {
        "dense": "chunks found: 0",
        "lexical": "visible chunks with a term of the question: 0",
    }
    assert all(retriever.returned == 0 for retriever in result.retrievers.values())


def test_tenant__without_chunks_answers_a_filter_with_nothing(library: Library) -> None:
    where = Filter(sources=("/kb",), where={"metadata.year": 2025})
    assert library.engine.tenant("nobody").search(QUESTION, 5, where).incomplete_reason == "the tenant has no documents"
    left = library.engine.tenant("left")
    left.ingest(SourceDocument(source="a", data=b"churn"))
    left.delete("a")
    assert left.search(QUESTION, 5, where).incomplete_reason == "the tenant has no documents"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"year": 2025}, r"filter at where\['year'\] names no field; use source, title, "),
        ({"title": {"$regex": "A"}}, r"where\['title'\]\['\$regex'\] has no such operator; use one of \$eq"),
        ({"title": 5}, r"where\['title'\].* is 5; give text"),
        ({"created_at": "yesterday"}, r"is 'yesterday'; give a date, a datetime, or text as in ISO 8601"),
        ({"department": {"$gt": "a"}}, r"\['\$gt'\] has no such operator; use one of \$eq, \$ne, \$in, \$nin"),
        ({"$or": []}, r"where\['\$or'\] is \[\]; give a list of at least one mapping"),
        ({"metadata.year": {"$in": 2025}}, r"is 2025; give a list of values"),
        ({"metadata.year": float("nan")}, r"is nan; give text, a finite number"),
        ([("title", "A")], r"filter at where is \[\('title', 'A'\)\]; give a mapping"),
    ],
)
def test_where__that_is_malformed_is_refused(where: Any, message: str, library: Library) -> None:
    with pytest.raises(RequestError, match=message):
        library.search(Filter(where=where))


def test_filter__of_another_type_is_refused(library: Library) -> None:
    with pytest.raises(RequestError, match=r"give Filter\(sources="):
        library.search({"title": "Alpha"})  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="give a tuple of names"):
        library.search(Filter(sources="/kb"))  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [0, -1, 1001, 10_000, True, 2.0, "3"])
def test_k__out_of_bounds_is_refused(k: Any, library: Library) -> None:
    with pytest.raises(RequestError, match="ask for 1 to 1000 hits"):
        library.search(Filter(where={"title": "Alpha"}), k=k)


def test_k__is_met_under_a_filter_where_so_many_are_left(library: Library) -> None:
    where = Filter(where={"collection": "default"})
    assert [library.search(where, k=k).returned for k in (1, 3, 4, 1000)] == [1, 3, 4, 4]
    assert library.search(where, k=4).incomplete_reason is None
    assert library.search(where, k=5).incomplete_reason
