"""Which questions share a kept result, and which results are kept."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from kosmos_rag.core.types import Expansion, Filter, QuerySyntax
from kosmos_rag.retrieval.cache import ResultCache, result_key
from kosmos_rag.retrieval.query import QueryRequest, parse_query
from kosmos_rag.retrieval.snapshot import NO_ROUTING, CollectionStats, Segment, Snapshot, VectorIndex
from kosmos_rag.storage.audit.log import AuditContext
from kosmos_rag.storage.tenants import tenant
from tests.results import build_result

STATS = CollectionStats(
    collection="default",
    chunks=10,
    average=5.0,
    next_sequence=11,
    state="s1",
    weights={1: 0.5},
    total_weight=1.0,
    segments=(Segment(id=uuid.UUID(int=1), last=6),),
)
SPACE = uuid.UUID(int=3)
NOON = datetime(2026, 1, 31, 12)
INDEX = VectorIndex(
    id=uuid.UUID(int=2), kind="ivfflat", oversampling=None, probes=3, lists=10, ef_search=40, rows=10, acl={}
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question with all that its result follows from."""

    tenant: str = "acme"
    principals: tuple[str, ...] = ("everyone", "board")
    collection: str | None = None
    question: str = "churn +rate"
    syntax: QuerySyntax = "auto"
    k: int = 5
    filter: Filter = field(default_factory=Filter)
    expansion: Expansion = field(default_factory=Expansion)
    space: uuid.UUID = SPACE
    collections: tuple[CollectionStats, ...] = (STATS,)
    index: VectorIndex | None = INDEX
    explain: bool = True

    @property
    def key(self) -> Any:
        """The key that its result is kept under."""
        reader = AuditContext(
            tenant=tenant(self.tenant), principals=self.principals, subject=None, collection=self.collection
        )
        request = QueryRequest(text=self.question, k=self.k, filter=self.filter, syntax=self.syntax)
        query = parse_query(request, reader, max_chars=1000)
        snapshot = Snapshot(
            space_id=self.space,
            collections=self.collections,
            chunks=sum(stats.chunks for stats in self.collections),
            terms=frozenset(["churn", "rate"]),
            warnings=(),
            required="'rate'",
            vector_index=self.index,
            total_chunks_unfiltered=sum(stats.chunks for stats in self.collections),
            enforced=False,
            routing=NO_ROUTING,
        )
        return result_key(query, self.k, self.expansion, snapshot, explain=self.explain)


def _where(**conditions: Any) -> Filter:
    return Filter(where={f"metadata.{name}": value for name, value in conditions.items()})


OTHERS: dict[str, Callable[[Asked], Asked]] = {
    "tenant": lambda key_parts: replace(key_parts, tenant="other"),
    "fewer principals": lambda key_parts: replace(key_parts, principals=("everyone",)),
    "other principals": lambda key_parts: replace(key_parts, principals=("everyone", "sales")),
    "the collection asked for": lambda key_parts: replace(key_parts, collection="default"),
    "question": lambda key_parts: replace(key_parts, question="churn rate"),
    "case of the question": lambda key_parts: replace(key_parts, question="Churn +rate"),
    "syntax": lambda key_parts: replace(key_parts, syntax="plain"),
    "k": lambda key_parts: replace(key_parts, k=6),
    "sources": lambda key_parts: replace(key_parts, filter=Filter(sources=("/kb",))),
    "where": lambda key_parts: replace(key_parts, filter=_where(year=2025)),
    "synonyms": lambda key_parts: replace(key_parts, expansion=Expansion(synonyms=("attrition",))),
    "wordings": lambda key_parts: replace(key_parts, expansion=Expansion(wordings=("attrition",))),
    "passage": lambda key_parts: replace(key_parts, expansion=Expansion(passage="attrition")),
    "space": lambda key_parts: replace(key_parts, space=uuid.UUID(int=4)),
    "no corpus": lambda key_parts: replace(key_parts, collections=()),
    "collection": lambda key_parts: replace(key_parts, collections=(replace(STATS, collection="wiki"),)),
    "one collection more": lambda key_parts: replace(key_parts, collections=(STATS, replace(STATS, collection="wiki"))),
    "state": lambda key_parts: replace(key_parts, collections=(replace(STATS, state="s2"),)),
    "no segment": lambda key_parts: replace(key_parts, collections=(replace(STATS, segments=()),)),
    "segment": lambda key_parts: replace(
        key_parts, collections=(replace(STATS, segments=(Segment(id=INDEX.id, last=6),)),)
    ),
    "no vector index": lambda key_parts: replace(key_parts, index=None),
    "vector index": lambda key_parts: replace(key_parts, index=replace(INDEX, id=uuid.UUID(int=9))),
    "probes": lambda key_parts: replace(key_parts, index=replace(INDEX, probes=4)),
    "ef_search": lambda key_parts: replace(key_parts, index=replace(INDEX, ef_search=80)),
    "what is explain": lambda key_parts: replace(key_parts, explain=False),
}


@pytest.mark.parametrize("changed", OTHERS)
def test_key__is_another_where_the_result_may_be(changed: str) -> None:
    assert hash(Asked().key) == hash(Asked().key)
    assert Asked().key == Asked().key
    assert OTHERS[changed](Asked()).key != Asked().key


def test_key__is_the_same_for_other_segments_where_they_are_not_explain() -> None:
    request = Asked(explain=False)
    assert replace(request, collections=(replace(STATS, segments=()),)).key == request.key


@pytest.mark.parametrize(
    ("item", "other"),
    [
        (_where(year=2025), _where(year="2025")),
        (_where(year=1), _where(year=True)),
        (_where(year=0), _where(year=False)),
        (_where(year=None), _where(year="null")),
        (_where(year={"$gt": 1}), _where(year={"$gte": 1})),
        (_where(a=1), _where(b=1)),
        (_where(a=1), _where(a=1, b=1)),
        (_where(a={"$in": ["1, 2"]}), _where(a={"$in": ["1", "2"]})),
        (Filter(sources=("/a", "/b")), Filter(sources=("/a, /b",))),
        (Filter(sources=("/a",)), Filter(where={"source": "/a"})),
        (_where(at=NOON), _where(at="2026-01-31 12:00:00")),
    ],
)
def test_key__tells_filters_apart(item: Filter, other: Filter) -> None:
    assert Asked(filter=item).key != Asked(filter=other).key


def test_key__is_the_same_for_what_means_the_same() -> None:
    assert Asked(principals=("board", "everyone")).key == Asked().key
    assert Asked(question="  churn \x00 +rate\n").key == Asked().key
    assert Asked(filter=_where(a=1, b=2)).key == Asked(filter=_where(b=2, a=1)).key
    listed = Filter(sources=["/a", "/b"])  # type: ignore[arg-type]  # what callers give
    assert Asked(filter=listed).key == Asked(filter=Filter(sources=("/a", "/b"))).key
    assert Asked(collections=(replace(STATS, weights={1: 0.7}),)).key == Asked().key


@pytest.mark.parametrize("value", [date(2026, 1, 31), datetime(2026, 1, 31, tzinfo=UTC)])
def test_key__is_made_of_dates_too(value: date) -> None:
    assert Asked(filter=_where(due={"$lt": value})).key == Asked(filter=_where(due={"$lt": value})).key
    assert Asked(filter=_where(due={"$lt": value})).key != Asked(filter=_where(due={"$lte": value})).key


RESULT = build_result()


def test_results__least_recently_used_are_dropped() -> None:
    results = ResultCache(size=2)
    stored = {key: replace(RESULT, question=key) for key in "abc"}
    results.put("a", stored["a"])
    results.put("b", stored["b"])
    assert results.get("a") == stored["a"]
    results.put("c", stored["c"])
    assert [results.get(key) for key in "abc"] == [stored["a"], None, stored["c"]]


@pytest.mark.parametrize("skipped", [("rerank",), ("expand",)])
def test_results__without_a_stage_that_they_should_have_are_not_kept(skipped: tuple[str, ...]) -> None:
    results = ResultCache(size=2)
    results.put("a", replace(RESULT, degraded_stages=skipped))
    assert results.get("a") is None


def test_results__none_are_kept_where_none_shall_be() -> None:
    assert not ResultCache(size=0).enabled
    assert ResultCache(size=1).enabled
