"""Approval: a collection whose settings require it answers from documents that are approved and not superseded."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag import Context, Engine, Filter, Settings, SourceDocument, Tenant
from kosmos_rag.core.errors import RequestError
from kosmos_rag.retrieval import filters
from tests.integration.variants import opened

QUESTION = "How many days of annual leave do employees get?"
STATES: dict[str, dict[str, Any]] = {
    "approved.md": {"approved": True, "year": 2026},
    "replaces.md": {"approved": True, "superseded_by": None},
    "draft.md": {"approved": False},
    "unknown.md": {},
    "text.md": {"approved": "true"},
    "superseded.md": {"approved": True, "superseded_by": "replaces.md"},
    "valid.md": {"approved": True, "valid_until": "2999-12-31"},
    "expired.md": {"approved": True, "valid_until": "2020-12-31"},
}
APPROVED = {"approved.md", "replaces.md", "valid.md"}


@pytest.fixture
def preset(tmp_path: Path) -> Path:
    """A preset that requires approval and nothing else."""
    path = tmp_path / "approved.yaml"
    path.write_text("rag: {retrieval: {require_approved: true}}")
    return path


def _documents() -> list[SourceDocument]:
    return [
        SourceDocument(source=name, data=f"Employees get {20 + n} days of annual leave.".encode(), metadata=metadata)
        for n, (name, metadata) in enumerate(STATES.items())
    ]


def _sources(scope: Tenant, **options: Any) -> set[str]:
    return {hit.source for hit in scope.search(QUESTION, 20, **options).hits}


@pytest.fixture
def policies(engine: Engine, tenant_name: str, preset: Path) -> Tenant:
    """A collection that requires approval, with documents of all states."""
    engine.tenant(tenant_name).collections.create("policies", preset=preset)
    scope = engine.tenant(tenant_name, collection="policies")
    assert scope.ingest(_documents()).new == len(STATES)
    return scope


@pytest.mark.parametrize(
    "mode",
    [
        {},
        {"rag.retrieval.keyword_weight": 0.0},
        {"rag.retrieval.semantic_weight": 0.0},
        {"rag.retrieval.prf_weight": 0.5, "rag.retrieval.fusion": "score"},
    ],
    ids=["fused", "dense", "lexical", "feedback"],
)
def test_question__finds_only_what_is_approved_by_each_leg(
    policies: Tenant, mode: dict[str, Any], settings: Settings
) -> None:
    """Where approval is required, no retriever finds a document that is not approved or is superseded."""
    with opened(settings, mode) as engine:
        scope = engine.tenant(policies.name, collection="policies")
        assert _sources(scope) == APPROVED
        assert _sources(scope, filter=Filter(where={"metadata.year": 2026})) == {"approved.md"}
        assert (
            _sources(scope, filter=Filter(where={"$or": [{"title": "draft"}, {"metadata.approved": False}]})) == set()
        )
        assert {hit.source for hit in scope.search('"days of annual leave" +annual', 20).hits} == APPROVED


def test_context_and_answer__have_only_what_is_approved(policies: Tenant) -> None:
    context = policies.context(QUESTION, 20)
    answer = policies.answer(QUESTION, 20)
    stream = policies.stream_answer(QUESTION, 20)
    for result in (context, answer.context, stream.answer().context):
        assert {citation.source for citation in result.citations} == APPROVED
    assert {sentence.text for sentence in answer.sentences} <= {
        "Employees get 20 days of annual leave.",
        "Employees get 21 days of annual leave.",
        "Employees get 26 days of annual leave.",
    }


def test_question__without_the_setting_finds_all_of_them(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest(_documents())
    assert _sources(scope) == set(STATES)


def test_question__to_all_collections_holds_to_what_each_of_them_requires(
    engine: Engine, policies: Tenant, settings: Settings, preset: Path, tmp_path: Path
) -> None:
    """A question to all collections finds no such document in a collection whose preset requires approval."""
    everything = engine.tenant(policies.name)
    everything.ingest(_documents()[2:3])
    (tmp_path / "open.yaml").write_text("rag: {retrieval: {require_approved: false}}")
    everything.collections.create("open", preset=tmp_path / "open.yaml")
    engine.tenant(policies.name, collection="open").ingest(_documents()[3:4])
    pairs = {(hit.collection, hit.source) for hit in everything.search(QUESTION, 20).hits}
    required = {("policies", name) for name in APPROVED}
    assert pairs == required | {("default", "draft.md"), ("open", "unknown.md")}
    with opened(settings, {"rag.retrieval.require_approved": True}) as strict:
        pairs = {(hit.collection, hit.source) for hit in strict.tenant(policies.name).search(QUESTION, 20).hits}
        assert pairs == required | {("open", "unknown.md")}


def test_indexed_search__finds_only_what_is_approved(policies: Tenant, settings: Settings) -> None:
    indexed = {"indexes.unsegmented_chunks": 1, "indexes.vector": "hnsw", "indexes.vector_min_chunks": 1}
    with opened(settings, indexed) as engine:
        engine.tenant(policies.name).indexes.build()
        assert _sources(engine.tenant(policies.name, collection="policies")) == APPROVED


def test_update_metadata__approves_without_embedding_and_at_once(policies: Tenant, settings: Settings) -> None:
    with opened(settings, {"rag.retrieval.result_cache": 100}) as engine:
        scope = engine.tenant(policies.name, collection="policies")
        assert _sources(scope) == _sources(scope) == APPROVED
        before = {document.source: document.version for document in scope.documents()}
        assert scope.update_metadata(["draft.md", "approved.md"], {"approved": True}) == 1
        assert _sources(scope) == APPROVED | {"draft.md"}
        assert scope.update_metadata("approved.md", {"superseded_by": "draft.md", "year": None}) == 1
        assert _sources(scope) == {"replaces.md", "valid.md", "draft.md"}
        assert {document.source: document.version for document in scope.documents()} == before
        (changed,) = (document for document in scope.documents() if document.source == "approved.md")
        assert changed.metadata == {"approved": True, "superseded_by": "draft.md"}
        # A pass over the same content leaves it; other content is to be approved again.
        assert scope.ingest(_documents()).unchanged == len(STATES)
        assert _sources(scope) == {"replaces.md", "valid.md", "draft.md"}
        draft = SourceDocument(source="draft.md", data=b"Employees get 40 days of annual leave.")
        assert scope.ingest(draft).changed == 1
        assert _sources(scope) == {"replaces.md", "valid.md"}


def test_update_metadata__refuses_what_decides_who_may_read_and_what_is_no_json(
    engine: Engine, tenant_name: str
) -> None:
    """No change of metadata changes who may read a document."""
    engine.tenant(tenant_name).collections.create("policies", preset="corporate-enforced")
    scope = engine.tenant(tenant_name, collection="policies")
    scope.ingest(SourceDocument(source="hr/leave.md", data=b"Employees get 20 days of annual leave."))
    with pytest.raises(RequestError, match="department decides who may read documents of policies"):
        scope.update_metadata("hr/leave.md", {"department": "general"})
    for value in (float("nan"), object(), "a\x00b"):
        with pytest.raises(RequestError, match="the metadata cannot be stored as JSON"):
            scope.update_metadata("hr/leave.md", {"approved": value})
    assert scope.update_metadata(["hr/leave.md", "gone.md"], {"approved": True}) == 1
    assert engine.tenant(tenant_name, collection="none").update_metadata("hr/leave.md", {"approved": True}) == 0
    (document,) = engine.tenant(tenant_name, principals=("department:hr",)).documents()
    assert document.metadata == {"approved": True}


def test_documents_out_of_date__come_after_those_in_force(settings: Settings, tenant_name: str) -> None:
    texts = {
        "old.md": ("Employees get 20 days of annual leave.", {"superseded_by": "new.md", "date": "2020-01-31"}),
        "expired.md": ("Employees had 21 days of holidays.", {"valid_until": "2021-12-31"}),
        "new.md": ("Employees are given 30 days of annual leave.", {"updated": "2026-01-31"}),
        "copy.md": ("Employees are given 30 days of annual leave.", {"superseded_by": "new.md"}),
    }
    with opened(settings, {}) as engine:
        scope = engine.tenant(tenant_name)
        scope.ingest(
            SourceDocument(source=source, data=text.encode(), title="Leave", metadata=metadata)
            for source, (text, metadata) in texts.items()
        )
        result = scope.search(QUESTION)
        assert result.hits[0].source == "new.md"
        assert [place.source for place in result.hits[0].also_in] == ["copy.md"]
        assert all(hit.signals["outdated"] < 0 for hit in result.hits[1:])
        assert "outdated" in result.explain()
        # One hit is enough for it to be the right one.
        assert [hit.source for hit in scope.search(QUESTION, 1).hits] == ["new.md"]
        context = scope.context(QUESTION)
        cited = {citation.source: (str(citation.date), citation.outdated) for citation in context.citations}
        assert cited == {
            "new.md": ("2026-01-31", None),
            "old.md": ("2020-01-31", "superseded by new.md"),
            "expired.md": ("None", "valid until 2021-12-31"),
        }
        assert "| old.md | 2020-01-31 | superseded by new.md\n" in context.text
        assert Context.from_dict(context.to_dict()) == context
    with opened(settings, {"rag.retrieval.prefer_current": False}) as engine:
        plain = engine.tenant(tenant_name).search(QUESTION)
        assert plain.hits[0].source == "old.md"
        assert [hit.signals for hit in plain.hits] == [{}] * 3


def test_latest__is_asked_for(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    for year in range(2019, 2026):
        text = f"The price list of {year}: a licence costs {year - 1900} euros a month."
        scope.ingest(
            SourceDocument(source=f"{year}.md", data=text.encode(), metadata={"date": f"{year}-01-31"}), prune=False
        )
    assert scope.search("What does a licence cost at present?", 1).hits[0].source == "2025.md"
    dated = scope.search("What did the latest licence cost in 2019?")
    assert dated.hits[0].source == "2019.md"  # the year is a condition, and not what is current
    assert {key for hit in dated.hits for key in hit.signals} <= {"condition"}


class _Tomorrow(datetime):
    """A clock that is a day ahead."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.now(tz) + timedelta(days=1)


def test_cached_result__ends_with_the_validity_of_a_document(
    policies: Tenant, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question with a reference date of its own is asked again on the next day."""
    today = datetime.now(UTC).date()
    policies.update_metadata("valid.md", {"valid_until": today.isoformat()})
    with opened(settings, {"rag.retrieval.result_cache": 100}) as engine:
        scope = engine.tenant(policies.name, collection="policies")
        assert _sources(scope, today=date(2026, 1, 1)) == APPROVED
        monkeypatch.setattr(filters, "datetime", _Tomorrow)
        assert _sources(scope, today=date(2026, 1, 1)) == APPROVED - {"valid.md"}
