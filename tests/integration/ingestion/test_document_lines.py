"""Lines of a document, read by their place: the text that citations point into, for those who may read it."""

import uuid
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import AuditKind, AuditOutcome
from kosmos_rag.engine.tenant import Tenant
from tests.integration.variants import opened

TEXT = "# Leave\n\nEmployees get 20 days.\n\n## Carry over\n\nFive days may be carried over.\n"


def _document(scope: Tenant, **more: Any) -> uuid.UUID:
    scope.ingest(SourceDocument(source="leave.md", data=TEXT.encode(), **more))
    (info,) = scope.documents()
    return info.id


def test_lines__are_those_that_a_citation_names(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    document_id = _document(scope)
    hit = scope.search("How many days do employees get?", 1).hits[0]
    whole = scope.read_lines(document_id)
    assert whole is not None
    assert (whole.line_start, whole.line_end, whole.start) == (1, whole.total_lines, 0)
    assert whole.text[hit.start : hit.end] == hit.text
    result = scope.read_lines(document_id, first=hit.line_start, count=hit.line_end - hit.line_start + 1)
    assert result is not None
    assert result.start <= hit.start < hit.end <= result.end
    assert result.text == whole.text[result.start : result.end]
    assert hit.chunk_id in result.chunk_ids
    assert (result.document.id, result.document.version, result.version_id) == (document_id, 1, hit.version_id)


@pytest.mark.parametrize(("first", "count"), [(1, 1), (2, 3), (5, 1), (7, 100)])
def test_lines__are_the_same_as_by_python(engine: Engine, first: int, count: int, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    document_id = _document(scope)
    whole = scope.read_lines(document_id)
    assert whole is not None
    lines = whole.text.split("\n")
    result = scope.read_lines(document_id, first=first, count=count)
    assert result is not None
    assert result.text == "\n".join(lines[first - 1 : first - 1 + count])
    assert result.start == sum(len(line) + 1 for line in lines[: first - 1])
    assert (result.line_end, result.total_lines) == (min(first + count - 1, len(lines)), len(lines))


def test_lines__have_their_pages(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    document_id = _document(scope)
    with psycopg.connect(engine.settings.database.admin_url or "") as admin:
        second = TEXT.index("## Carry")
        query = "UPDATE kosmos.document_versions SET pages = %s WHERE document_id = %s"
        admin.execute(query, [[0, second], document_id])
    for first, count, pages in ((1, 4, (1, 1)), (1, 5, (1, 2)), (5, 2, (2, 2))):
        result = scope.read_lines(document_id, first=first, count=count)
        assert result is not None
        assert (result.page_start, result.page_end) == pages


def test_lines__of_what_is_kept_from_the_reader_are_as_of_nothing(engine: Engine, tenant_name: str) -> None:
    document_id = _document(engine.tenant(tenant_name, principals=["department:hr"]), acl=("department:hr",))
    assert engine.tenant(tenant_name).read_lines(document_id) is None
    assert engine.tenant(f"{tenant_name}-globex", principals=["department:hr"]).read_lines(document_id) is None
    assert engine.tenant(tenant_name, principals=["department:hr"], collection="other").read_lines(document_id) is None
    assert engine.tenant(tenant_name, principals=["department:hr"]).read_lines(uuid.uuid4()) is None


@pytest.mark.parametrize(("first", "count"), [(0, 1), (-1, 5), (1, 0), (1, 10_001), (2**40, 1), (100, 1)])
def test_lines__that_there_cannot_be_are_refused(engine: Engine, first: int, count: int, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    document_id = _document(scope)
    with pytest.raises(RequestError, match="lines"):
        scope.read_lines(document_id, first=first, count=count)


def test_lines__are_in_the_log_before_they_are_given_out(settings: Settings, tenant_name: str) -> None:
    with opened(settings, {"rag.audit.enabled": True}) as engine:
        scope = engine.tenant(tenant_name, subject="ada")
        document_id = _document(scope)
        result = scope.read_lines(document_id, first=3, count=1)
        assert scope.read_lines(uuid.uuid4()) is None
        (record,) = scope.audit.find()
        assert result is not None
        assert (record.kind, record.outcome, record.subject) == (AuditKind.SEARCH, AuditOutcome.HITS, "ada")
        assert record.question == "lines 3 to 3 of leave.md"
        assert [(p.document_id, p.version, p.chunk_ids) for p in record.passages] == [
            (document_id, 1, result.chunk_ids)
        ]
        assert [access.subject for access in scope.audit.list_document_access("leave.md")] == ["ada"]


def test_lines__are_in_the_log_where_the_preset_of_their_collection_keeps_one(engine: Engine, tenant_name: str) -> None:
    engine.tenant(tenant_name).collections.create("policies", preset="corporate")
    document_id = _document(engine.tenant(tenant_name, collection="policies"))
    assert engine.tenant(tenant_name).read_lines(document_id) is not None
    assert len(engine.tenant(tenant_name).audit.find()) == 1
