"""Pages, groups, facets, diversity and copies of a search, and what each of them must not show."""

import base64
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from kosmos_rag import Engine, Filter, SearchResult, Settings, SourceDocument, Tenant
from kosmos_rag.core.errors import RequestError
from tests.integration.variants import opened

QUESTION = "churn of accounts"
DOCUMENTS = 23


class _CountingReranker:
    """Scores a text by how often it says churn."""

    name = "counting"

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return a score for each text."""
        return [min(1.0, text.count("churn") / DOCUMENTS) for text in texts]


def _document(number: int, text: str = "", **more: Any) -> SourceDocument:
    """A document of one chunk; the lower the number, the more it is about the question."""
    words = "churn accounts " * (DOCUMENTS - number) + "other words " * (1 + number)
    metadata = {"team": ["sales", "legal"][number % 2], "tags": ["all", f"n{number}"], "year": 2020 + number % 3}
    return SourceDocument(source=f"d{number:02}.md", data=f"{words} {text}".encode(), **{"metadata": metadata, **more})


@pytest.fixture
def tenant(engine: Engine, tenant_name: str) -> Tenant:
    """A tenant with documents of one chunk each."""
    scope = engine.tenant(tenant_name)
    assert scope.ingest(_document(number) for number in range(DOCUMENTS)).failed == ()
    return scope


def _pages(
    scope: Tenant, k: int, between: Callable[[int], object] = lambda page: None, **options: Any
) -> list[SearchResult]:
    """Return all pages; `between` is called after each."""
    pages = [scope.search(QUESTION, k, cursor="*", **options)]
    while (cursor := pages[-1].next_cursor) is not None:
        between(len(pages))
        pages.append(scope.search(QUESTION, k, cursor=cursor, **options))
        assert len(pages) < 100
    return pages


def _sources(*results: SearchResult) -> list[str]:
    return [hit.source for result in results for hit in result.hits]


def test_pages__are_the_ranking_in_parts(tenant: Tenant) -> None:
    whole = tenant.search(QUESTION, DOCUMENTS)
    assert len(whole.hits) == DOCUMENTS
    assert whole.next_cursor is None
    pages = _pages(tenant, 5)
    assert _sources(*pages) == _sources(whole)
    assert [len(page.hits) for page in pages] == [5, 5, 5, 5, 3]
    assert [hit.rank for page in pages for hit in page.hits] == [*range(1, DOCUMENTS + 1)]
    assert [hit.score for page in pages for hit in page.hits] == [hit.score for hit in whole.hits]
    assert pages[-1].incomplete_reason == "the ranking ends here: 23 passages, 20 of them on pages before"
    assert all(page.incomplete_reason is None for page in pages[:-1])


def test_pages__repeat_and_lose_nothing_while_documents_change(tenant: Tenant) -> None:
    def change(page: int) -> None:
        tenant.ingest(_document(DOCUMENTS - page, metadata={"page": page}), prune=False)
        tenant.ingest(_document(page, "\n\n" + "A second passage. " * 20), prune=False)  # a version of other chunks
        tenant.ingest(_document(-page), prune=False)  # before all others
        tenant.delete(f"d{DOCUMENTS - page - 10:02}.md")

    before = {hit.text for hit in tenant.search(QUESTION, DOCUMENTS).hits}
    pages = _pages(tenant, 4, change)
    output = [hit.text for page in pages for hit in page.hits]
    deleted = {_document(DOCUMENTS - page - 10).data.decode().strip() for page in range(1, len(pages))}
    assert [text for text, count in Counter(output).items() if count > 1] == []
    assert before - deleted <= set(output)
    assert any("second passage" in text for text in output)
    assert [hit.rank for page in pages for hit in page.hits] == [*range(1, len(output) + 1)]


def test_cursor__is_of_one_reader_and_one_search(engine: Engine, tenant: Tenant) -> None:
    """The cursor of a page belongs to one tenant, reader and search; a forged cursor is refused."""
    cursor = tenant.search(QUESTION, 5, cursor="*").next_cursor
    assert cursor is not None
    # Another size of page is no other search.
    assert len(tenant.search(QUESTION, 7, cursor=cursor).hits) == 7
    others: list[tuple[Tenant, str, dict[str, Any]]] = [
        (engine.tenant("another"), QUESTION, {}),
        (engine.tenant(tenant.name, principals=("everyone", "board")), QUESTION, {}),
        (engine.tenant(tenant.name, collection="default"), QUESTION, {}),
        (tenant, QUESTION + "?!", {}),
        (tenant, QUESTION, {"filter": Filter(sources=("d01.md",))}),
        (tenant, QUESTION, {"group_by": "document"}),
    ]
    engine.tenant("another").ingest(_document(1))
    for scope, question, options in others:
        with pytest.raises(RequestError, match=r"cursor is of another search.*use \* for the first page"):
            scope.search(question, 5, cursor=cursor, **options)
    packed = bytearray(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    packed[9:11] = b"\xff\xff"  # the number of hits so far, which the next cursor adds to
    forged = base64.urlsafe_b64encode(packed).decode().rstrip("=")
    for broken in (cursor[:-1], cursor[5:], "x", "", "Zm9v", "é", "A" * 200_000, forged):
        with pytest.raises(RequestError, match="cursor"):
            tenant.search(QUESTION, 5, cursor=broken)


def test_pages__show_what_the_reader_may_read_when_they_are_read(engine: Engine, tenant: Tenant) -> None:
    """Each page is searched under the permissions at the time of its request."""
    cursor = tenant.search(QUESTION, 5, cursor="*").next_cursor
    tenant.ingest([_document(5, acl=("board",)), _document(6, acl=("board",))], prune=False)
    sources = _sources(tenant.search(QUESTION, 5, cursor=cursor))
    assert not {"d05.md", "d06.md"} & set(sources)
    assert len(sources) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_by": "source"}, "group_by is 'source'; give document"),
        ({"group_by": "document", "group_size": 0}, "group_size is 0; give 1 to 100"),
        ({"group_by": "document", "group_size": True}, "group_size is True"),
        ({"group_size": 2}, "group_size is the size of a group; give group_by too"),
        ({"mmr": 1.5}, "mmr is 1.5; give the weight of relevance"),
        ({"mmr": float("nan")}, "mmr is nan"),
        ({"mmr": True}, "mmr is True"),
        ({"facets": ["acl"]}, "facet 'acl' names no field; use collection, department, media_type, source or metadata"),
        ({"facets": ["metadata."]}, "facet 'metadata.' names no field"),
        ({"facets": [1]}, "facets is "),
        ({"facets": [f"metadata.{n}" for n in range(21)]}, "facets has 21 fields"),
        ({"cursor": 3}, "cursor is 3; give"),
    ],
)
def test_options__that_are_malformed_are_refused(tenant: Tenant, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        tenant.search(QUESTION, **options)


def test_groups__have_a_hit_for_each_document(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    for number in range(6):
        parts = [f"Churn of accounts {'churn ' * (9 - part)}in part {part} of {number}. " * 3 for part in range(5)]
        text = "\n\n".join(f"## Part {part}\n\n{words}" for part, words in enumerate(parts))
        scope.ingest(SourceDocument(source=f"g{number}.md", data=text.encode()), prune=False)
    ranking = scope.search(QUESTION, 30).hits
    grouped = scope.search(QUESTION, 4, group_by="document", group_size=2)
    order = [*dict.fromkeys(hit.source for hit in ranking)]
    assert _sources(grouped) == order[:4]
    for hit in grouped.hits:
        mine = [item.chunk_id for item in ranking if item.source == hit.source]
        assert [hit.chunk_id, *(inner.chunk_id for inner in hit.inner_hits)] == mine[:2]
    pages = _pages(scope, 4, group_by="document")
    assert _sources(*pages) == order
    assert {len(hit.inner_hits) for page in pages for hit in page.hits} == {2}
    # Inner hits show scores to no reader that may not see those of hits.
    output = grouped.to_dict(explain=False)["hits"][0]
    assert "score" not in output
    assert "score" not in output["inner_hits"][0]
    assert output["inner_hits"][0]["text"]
    assert SearchResult.from_dict(grouped.to_dict()) == grouped


def test_facets__count_documents_of_the_ranking_that_the_reader_may_read(engine: Engine, tenant: Tenant) -> None:
    """Facets count only documents that the reader may read; copies that it may not read are not named."""
    tenant.ingest(
        [_document(50 + n, acl=("board",), metadata={"team": "secret", "year": 2020}) for n in range(3)], prune=False
    )
    tenant.ingest(SourceDocument(source="two.md", data=b"churn one\n\n" * 300, metadata={"team": "legal"}), prune=False)
    fields = ("metadata.team", "metadata.tags", "metadata.year", "media_type", "collection", "metadata.none", "source")
    outcome = tenant.search(QUESTION, 3, facets=fields)
    facets = {name: {value.value: value.count for value in values} for name, values in outcome.facets.items()}
    assert facets["metadata.team"] == {"sales": 12, "legal": 12}  # a document with many chunks counts once
    assert next(iter(facets["metadata.tags"].items())) == ("all", DOCUMENTS)
    assert facets["metadata.year"] == {2020: 8, 2021: 8, 2022: 7}
    assert facets["media_type"] == {"text/markdown": DOCUMENTS + 1}
    assert facets["collection"] == {"default": DOCUMENTS + 1}
    assert facets["metadata.none"] == {}
    assert "d50.md" not in facets["source"]
    board = engine.tenant(tenant.name, principals=("everyone", "board")).search(QUESTION, 3, facets=["metadata.team"])
    assert {item.value: item.count for item in board.facets["metadata.team"]}["secret"] == 3
    # A value of a facet is a filter that finds as many documents, and all pages count alike.
    for value in outcome.facets["metadata.year"]:
        where = Filter(where={"metadata.year": value.value})
        assert len({hit.document_id for hit in tenant.search(QUESTION, 100, where).hits}) == value.count
    assert [page.facets for page in _pages(tenant, 10, facets=fields)] == [outcome.facets] * 3


def test_facets__tell_true_from_one(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    values = [True, 1, 1, 1.0, "1", None, {"a": 2}, [True, 1]]
    scope.ingest(
        SourceDocument(source=f"v{n}.md", data=f"churn {n}".encode(), metadata={"x": value})
        for n, value in enumerate(values)
    )
    outcome = scope.search("churn", facets=["metadata.x", "metadata.x.a"])
    counts = {(type(item.value).__name__, item.value): item.count for item in outcome.facets["metadata.x"]}
    assert counts == {("int", 1): 4, ("bool", True): 2, ("str", "1"): 1}
    assert [(item.value, item.count) for item in outcome.facets["metadata.x.a"]] == [(2, 1)]


@pytest.mark.parametrize("semantic_weight", [0.5, 0.0])
def test_mmr__puts_what_is_unlike_the_hits_before_it_first(
    settings: Settings, tenant_name: str, semantic_weight: float
) -> None:
    with opened(settings, {"rag.retrieval.semantic_weight": semantic_weight}) as engine:
        scope = engine.tenant(tenant_name)
        likes = [f"Churn of accounts is lost accounts, so churn counts accounts {n}." for n in range(5)]
        other = "Accounts: their churn needs another department, with words nobody else ever wrote anywhere."
        scope.ingest(SourceDocument(source=f"m{n}.md", data=text.encode()) for n, text in enumerate([*likes, other]))
        plain = scope.search(QUESTION)
        assert _sources(plain).index("m5.md") == 5
        diverse = scope.search(QUESTION, mmr=0.2)
        assert _sources(diverse)[:2] == [plain.hits[0].source, "m5.md"]
        assert set(_sources(diverse)) == set(_sources(plain))
        assert _sources(scope.search(QUESTION, mmr=1)) == _sources(plain)
        scores = [hit.score for hit in diverse.hits]
        assert scores == sorted(scores, reverse=True)
        assert diverse.hits[0].score == pytest.approx(0.2)
        assert "0.800 mmr = 0.200" in diverse.explain()
        assert _sources(*_pages(scope, 2, mmr=0.2)) == _sources(diverse)
        quoted = scope.search('churn "nobody else ever"', mmr=0.0)
        assert quoted.hits[0].source == "m5.md"


def test_mmr__takes_the_cosine_of_the_vectors(tenant: Tenant) -> None:
    result = tenant.search(QUESTION, 5, mmr=0.7)
    assert all(-1e-6 <= -hit.signals["mmr"] <= 0.3 * hit.score / 0.7 + 1 for hit in result.hits)
    assert np.isfinite([hit.score for hit in result.hits]).all()


COPY = b"# Returns\n\nGoods may be returned within 30 days of delivery, with the receipt, in their packaging."


@pytest.fixture
def copies(engine: Engine, tenant_name: str) -> Tenant:
    """Documents with one text: three that all may read, one of the board, one under another heading."""
    scope = engine.tenant(tenant_name)
    documents: list[tuple[str, bytes, tuple[str, ...]]] = [
        *((f"copy{n}.md", COPY, ("everyone",)) for n in range(3)),
        ("spaced.md", COPY.replace(b"within 30", b"within\n30"), ("everyone",)),
        ("board.md", COPY, ("board",)),
        ("heading.md", COPY.replace(b"# Returns", b"# Purchases"), ("everyone",)),
        *(
            (f"other{n}.md", f"# Returns\n\nReturned goods number {n} of delivery.".encode(), ("everyone",))
            for n in range(9)
        ),
    ]
    scope.ingest(SourceDocument(source=source, data=data, acl=acl, title="Shop") for source, data, acl in documents)
    return scope


RETURNS = "Within how many days may goods be returned after delivery?"


def test_copies__are_one_hit_with_its_other_places(engine: Engine, copies: Tenant) -> None:
    outcome = copies.search(RETURNS, 5)
    assert len(outcome.hits) == 5  # the places of copies are filled
    first = next(hit for hit in outcome.hits if hit.also_in)
    places = {first.source, *(place.source for place in first.also_in)}
    assert places == {"copy0.md", "copy1.md", "copy2.md", "spaced.md"}
    assert len({hit.text for hit in outcome.hits if hit.section == ("Returns",)}) == len(outcome.hits) - 1
    assert "heading.md" in _sources(outcome)
    assert first.to_dict()["also_in"][0]["location"].startswith("Returns | L1 to L")
    facets = {field: len(values) for field, values in copies.search(RETURNS, 1, facets=["source"]).facets.items()}
    assert facets == {"source": 14}
    board = engine.tenant(copies.name, principals=("everyone", "board")).search(RETURNS, 5)
    assert "board.md" in {place.source for hit in board.hits for place in hit.also_in} | set(_sources(board))


def test_copies__come_on_one_page(copies: Tenant) -> None:
    def delete(page: int) -> None:
        if page == 1:
            copies.delete(first)

    (first, *_) = _sources(copies.search(RETURNS, 1))
    texts = [hit.text for page in _returns(copies, delete) for hit in page.hits if hit.section == ("Returns",)]
    assert len(texts) == len({" ".join(text.split()) for text in texts})


def _returns(scope: Tenant, between: Callable[[int], object]) -> Iterator[SearchResult]:
    page, number = scope.search(RETURNS, 2, cursor="*"), 1
    yield page
    while page.next_cursor is not None:
        between(number)
        page, number = scope.search(RETURNS, 2, cursor=page.next_cursor), number + 1
        yield page


def test_reranked_passages__are_the_first_pages(settings: Settings, tenant_name: str) -> None:
    pool = {"rag.reranking.enabled": True, "rag.retrieval.top_k": 6, "rag.reranking.top_k": 3}
    reranker = _CountingReranker()
    with opened(settings, pool, reranker=reranker) as engine:
        scope = engine.tenant(tenant_name)
        scope.ingest(_document(number) for number in range(DOCUMENTS))
        pages = _pages(scope, 4)
        hits = [hit for page in pages for hit in page.hits]
        assert len({hit.source for hit in hits}) == DOCUMENTS
        assert [hit.rerank_score is not None for hit in hits] == [True] * 6 + [False] * (DOCUMENTS - 6)
        assert [hit.fused_rank for hit in hits[6:]] == [*range(7, DOCUMENTS + 1)]
    # What the threshold leaves out does not come back with what is ranked lower.
    with opened(settings, {**pool, "rag.reranking.threshold": 0.9}, reranker=reranker) as engine:
        strict = _pages(engine.tenant(tenant_name), 4)
        assert 0 < sum(len(page.hits) for page in strict) <= 6
