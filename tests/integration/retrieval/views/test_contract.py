"""What every view promises, asked of each of them."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.telemetry.tracing import StageTimer
from kosmos_rag.core.types import EVERYONE, Filter, Operators, ResultOptions
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.retrieval.blocks import cache as block_cache
from kosmos_rag.retrieval.fusion import DENSE, LEXICAL
from kosmos_rag.retrieval.query import Query, QueryRequest, RetrieverOptions, RetrieverQuery, parse_query
from kosmos_rag.retrieval.views.base import SearchView, ViewRequest, ViewSession, ViewUnavailable
from kosmos_rag.storage.audit.log import AuditContext
from kosmos_rag.storage.tenants import tenant
from tests.integration.variants import HAS_MEMORY_VIEW, opened

VIEWS = ("database", *["memory"] * HAS_MEMORY_VIEW)
EMBEDDER = HashingEmbedder()
QUESTION = "churn of revenue"
SETTINGS: dict[str, Any] = {
    "rag.retrieval.candidates": 10,
    "rag.retrieval.result_cache": 0,
    "rag.chunking.min_size": 1,
    "indexes.vector": "none",
}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first search of a state loads its block."""
    monkeypatch.setattr(block_cache, "MISSES", 1)
    monkeypatch.setattr(block_cache, "MISSES_OF_FILTER", 1)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One view of a tenant, warm for the reader `ann`."""

    view: SearchView
    engine: Engine
    tenant_name: str

    def request(self, question: str = QUESTION, *, compares_vectors: bool = False, **options: Any) -> ViewRequest:
        """Return what a search asks of a view, with the wording that the pipeline makes by default."""
        reader = AuditContext(
            tenant=tenant(self.tenant_name), principals=(EVERYONE, "ann"), subject=None, collection=None
        )
        query = parse_query(QueryRequest(text=question, **options), reader, max_chars=1000)
        wording = RetrieverQuery(
            scope=query.scope,
            principals=query.principals,
            parsed=query.parsed,
            texts={query.parsed.text: 1.0},
            vector=EMBEDDER.embed_query(query.parsed.text),
            lexical=True,
            fuzzy=True,
            candidates=10,
            similarity_threshold=-1.0,
            use_vector_index=False,
        )
        return ViewRequest(query=query, wordings=[wording], compares_vectors=compares_vectors)

    def open(self, request: ViewRequest) -> AbstractContextManager[ViewSession]:
        return self.view.open(request, self.engine.database.app, StageTimer())

    def warm(self, request: ViewRequest) -> None:
        """Search until the view has what the search needs."""
        query = request.query
        scope = self.engine.tenant(self.tenant_name, principals=query.principals, collection=query.collection)
        scope.search("load", filter=query.filter)
        assert self.engine.background.drain(10)


def _document(number: int, acl: str = EVERYONE, **more: Any) -> SourceDocument:
    text = f"churn of revenue number {number} {'margin ' * (number % 4)}"
    return SourceDocument(source=f"d{number:02}", data=text.encode(), acl=(acl,), **more)


@pytest.fixture(scope="module")
def views_engine(shared_settings: Settings) -> Iterator[Engine]:
    """The engine of this module, whose tests have a tenant each."""
    with opened(shared_settings, SETTINGS, embedder=EMBEDDER) as engine:
        yield engine


@pytest.fixture(params=VIEWS)
def scenario(request: pytest.FixtureRequest, views_engine: Engine, tenant_name: str) -> Asked:
    acls = (EVERYONE, "ann", "ben")
    documents = [_document(number, acls[number % 3], metadata={"parity": number % 2}) for number in range(30)]
    views_engine.tenant(tenant_name).ingest(documents)
    views = views_engine._components.pipelines.default.search._resources.views
    requests = Asked(view=views[VIEWS[::-1].index(request.param)], engine=views_engine, tenant_name=tenant_name)
    requests.warm(requests.request())
    return requests


def _sources(session: ViewSession, requests: Asked, ids: Sequence[uuid.UUID], request: ViewRequest) -> list[str]:
    rows = session.passages(session.snapshot(request.wordings[0]), ids)
    return [rows[chunk_id.int]["source"] for chunk_id in ids]


def test_snapshot__counts_what_the_reader_may_read(scenario: Asked) -> None:
    request = scenario.request()
    with scenario.open(request) as session:
        snapshot = session.snapshot(request.wordings[0])
    assert (snapshot.chunks, snapshot.total_chunks_unfiltered) == (20, 30)
    assert snapshot.terms == {"churn", "revenu"}
    assert [stats.collection for stats in snapshot.collections] == ["default"]
    assert len(snapshot.collections[0].weights) == 2


def test_snapshot__of_an_unchanged_tenant_has_the_same_state(scenario: Asked) -> None:
    request = scenario.request()
    states = []
    for changes in (False, False, True):
        if changes:
            scenario.engine.tenant(scenario.tenant_name).ingest([_document(40)], prune=False)
        with scenario.open(request) as session:
            states.append(session.snapshot(request.wordings[0]).collections[0].state)
    assert states[0] == states[1] != states[2]


def test_candidates__are_of_each_retriever_and_readable(scenario: Asked) -> None:
    request = scenario.request()
    with scenario.open(request) as session:
        lists = session.candidates(request.wordings[0], session.snapshot(request.wordings[0]))
        assert list(lists) == [DENSE, LEXICAL]
        for entry in lists.values():
            assert len(entry.candidates) == 10
            assert [candidate.rank for candidate in entry.candidates] == list(range(1, 11))
            ids = [candidate.chunk_id for candidate in entry.candidates]
            assert not {int(source[1:]) % 3 for source in _sources(session, scenario, ids, request)} & {2}


def test_candidates__pass_the_filter(scenario: Asked) -> None:
    request = scenario.request(filter=Filter(where={"metadata.parity": 1}))
    scenario.warm(request)
    with scenario.open(request) as session:
        lists = session.candidates(request.wordings[0], session.snapshot(request.wordings[0]))
        for entry in lists.values():
            ids = [candidate.chunk_id for candidate in entry.candidates]
            assert {int(source[1:]) % 2 for source in _sources(session, scenario, ids, request)} == {1}


def test_passages__are_rows_that_the_caller_may_change(scenario: Asked) -> None:
    request = scenario.request()
    for _ in range(2):
        with scenario.open(request) as session:
            snapshot = session.snapshot(request.wordings[0])
            candidates = session.candidates(request.wordings[0], snapshot)[DENSE].candidates
            rows = session.passages(snapshot, [candidate.chunk_id for candidate in candidates])
            assert len(rows) == 10
            for row in rows.values():
                assert row["metadata"].keys() == {"parity"}
                assert EVERYONE in row["principals"] or row["principals"] == ("ann",)
                row["metadata"]["parity"] = "changed"
                row["text"] = ""


def test_session__never_mixes_two_states(scenario: Asked) -> None:
    """The tenant changes within a session: what is read then is of the first state, or the view is unavailable."""
    request = scenario.request()
    with scenario.open(request) as session:
        snapshot = session.snapshot(request.wordings[0])
        candidates = session.candidates(request.wordings[0], snapshot)[LEXICAL].candidates
        scenario.engine.tenant(scenario.tenant_name).update_metadata(
            [f"d{n:02}" for n in range(30)], {"parity": "later"}
        )
        try:
            rows = session.passages(snapshot, [candidate.chunk_id for candidate in candidates])
        except ViewUnavailable:
            return
        assert {row["metadata"]["parity"] for row in rows.values()} <= {0, 1}


def test_vectors__are_the_stored_ones(scenario: Asked) -> None:
    request = scenario.request(compares_vectors=True)
    with scenario.open(request) as session:
        snapshot = session.snapshot(request.wordings[0])
        ids = [candidate.chunk_id for candidate in session.candidates(request.wordings[0], snapshot)[DENSE].candidates]
        vectors = session.vectors(snapshot, ids)
        rows = session.passages(snapshot, ids)
        assert set(vectors) == set(ids)
        for chunk_id in ids:
            expected = EMBEDDER.embed([rows[chunk_id.int]["text"]])[0]
            assert np.allclose(vectors[chunk_id], expected, atol=1e-3)


def test_similarity_to_the_best__is_the_inner_product_with_their_mean(scenario: Asked) -> None:
    request = scenario.request(compares_vectors=True)
    with scenario.open(request) as session:
        snapshot = session.snapshot(request.wordings[0])
        ids = [candidate.chunk_id for candidate in session.candidates(request.wordings[0], snapshot)[DENSE].candidates]
        vectors = session.vectors(snapshot, ids)
        compared = session.compare_with_best(snapshot, ids)
        mean = np.mean([vectors[chunk_id] for chunk_id in ids[:5]], axis=0)
        assert {candidate.chunk_id for candidate in compared.candidates} == set(ids)
        for candidate in compared.candidates:
            assert candidate.score == pytest.approx(float(vectors[candidate.chunk_id] @ mean), abs=1e-3)


def test_result__is_that_of_the_other_views_to_the_last_bit(scenario: Asked) -> None:
    request = scenario.request(compares_vectors=True)
    wording = request.wordings[0]
    read = []
    for view in scenario.engine._components.pipelines.default.search._resources.views:
        with view.open(request, scenario.engine.database.app, StageTimer()) as session:
            snapshot = session.snapshot(wording)
            lists = session.candidates(wording, snapshot)
            ids = [candidate.chunk_id for candidate in lists[LEXICAL].candidates]
            vectors = {key: vector.tolist() for key, vector in session.vectors(snapshot, ids).items()}
            compared = session.compare_with_best(snapshot, ids).candidates
            result = {name: entry.candidates for name, entry in lists.items()}
            read.append((snapshot, result, vectors, compared, session.passages(snapshot, ids)))
    assert all(each == read[0] for each in read)


QUERIES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "phrases": ('what is "churn of revenue"', {}, False),
    "required": ("+churn revenue", {}, False),
    "excluded": ("churn -revenue", {}, False),
    "signed_text": ("is churn a -b?", {}, True),
    "cursor": (QUESTION, {"options": ResultOptions(cursor="*")}, True),
    "group_by": (QUESTION, {"options": ResultOptions(group_by="document")}, True),
    "group_size": (QUESTION, {"options": ResultOptions(group_by="document", group_size=2)}, True),
    "facets": (QUESTION, {"options": ResultOptions(facets=("source",))}, True),
    "mmr": (QUESTION, {"options": ResultOptions(mmr=0.5)}, True),
    "semantic_weight": (QUESTION, {"retrievers": RetrieverOptions(semantic_weight=1.0)}, True),
    "keyword_weight": (QUESTION, {"retrievers": RetrieverOptions(keyword_weight=1.0)}, True),
    "vector": (QUESTION, {"retrievers": RetrieverOptions(vector=(1.0,))}, True),
}
"""A query for each thing that one may ask for, and whether the memory answers it."""


@pytest.mark.parametrize("name", QUERIES)
def test_can_answer__what_a_query_may_ask_for(scenario: Asked, name: str) -> None:
    question, options, in_memory = QUERIES[name]
    request = scenario.request(question, **options)
    is_able = in_memory or scenario.view is scenario.engine._components.pipelines.default.search._resources.views[-1]
    assert scenario.view.can_answer(request) == is_able
    if is_able:
        with scenario.open(request) as session:
            assert session.snapshot(request.wordings[0]).chunks == 20


def test_can_answer__where_vectors_are_compared(scenario: Asked) -> None:
    request = scenario.request(compares_vectors=True)
    by_words = replace(request, wordings=[replace(wording, vector=None) for wording in request.wordings])
    assert scenario.view.can_answer(request)
    is_last = scenario.view is scenario.engine._components.pipelines.default.search._resources.views[-1]
    assert scenario.view.can_answer(by_words) == is_last


def test_queries__are_one_for_each_option() -> None:
    """An option that is new has to be considered here: does each view answer it?"""
    options = {field.name for record in (Operators, ResultOptions, RetrieverOptions) for field in fields(record)}
    assert options == QUERIES.keys()
    of_query = {"text", "parsed", "k", "filter", "tenant", "principals", "collection", "subject", "scope"}
    of_query |= {"read_your_writes"}  # decides which pool the views get
    of_query |= {"today"}  # of conditions on the passages, which both views return
    assert {field.name for field in fields(Query)} == of_query | {"options", "retrievers"}
    of_wording = {"scope", "principals", "parsed", "texts", "vector", "lexical", "fuzzy", "candidates"}
    assert {field.name for field in fields(RetrieverQuery)} == of_wording | {
        "similarity_threshold", "use_vector_index"
    }  # fmt: skip
