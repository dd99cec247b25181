"""Files of documents and places on their pages: stored where the settings say so, for the readers of the document."""

import uuid

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import AuditKind
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.files import write_pdf
from tests.integration.variants import changed, opened

PDF = write_pdf("Employees get twenty days of leave.", "Five days may be carried over.")


@pytest.fixture
def keeping(settings: Settings) -> Settings:
    """Settings that keep files of at most a megabyte."""
    return changed(settings, {"ingestion.keep_originals": True, "ingestion.max_original_mb": 1})


def test_file__is_stored_for_the_readers_of_its_document(keeping: Settings, tenant_name: str) -> None:
    data = PDF
    with Engine(keeping, embedder=HashingEmbedder()) as engine:
        tenant = engine.tenant(tenant_name)
        tenant.ingest(SourceDocument(source="hr/leave.pdf", data=data, acl=("department:hr",)))
        reader = engine.tenant(tenant_name, principals=["department:hr"])
        (info,) = reader.documents()
        assert reader.read_original(info.id) == data
        others = [
            engine.tenant(tenant_name, principals=["department:sales"]),
            engine.tenant(f"{tenant_name}-other"),
            engine.tenant(tenant_name, principals=["department:hr"], collection="another"),
        ]
        picture = reader.render_page(info.id, 2)
        assert picture
        assert picture.startswith(b"\x89PNG")
        for other in others:
            assert other.render_page(info.id, 2) is None
            assert other.read_original(info.id) is None
            assert other.rectangles(info.id, 0, 1000) == []
        assert reader.read_original(uuid.uuid4()) is None
        assert reader.render_page(uuid.uuid4(), 1) is None
        with pytest.raises(ParseError, match="page 3 is requested, and the document has 2 pages"):
            reader.render_page(info.id, 3)


def test_page__of_a_deleted_document_is_not_shown_of_the_one_that_has_its_name(
    keeping: Settings, tenant_name: str
) -> None:
    with Engine(keeping, embedder=HashingEmbedder()) as engine:
        tenant, pictures = engine.tenant(tenant_name), []
        for text in ("Salaries of the board.", "Five days may be carried over."):
            tenant.ingest(SourceDocument(source="a.pdf", data=write_pdf(text)))
            (info,) = tenant.documents()
            pictures.append(tenant.render_page(info.id, 1))
            assert (tenant.render_page(info.id, 1), info.version) == (pictures[-1], 1)
            tenant.delete("a.pdf")
            assert tenant.render_page(info.id, 1) is None
        assert pictures[0] != pictures[1]


def test_file__is_dropped_and_stored_as_the_settings_change(
    settings: Settings, keeping: Settings, tenant_name: str
) -> None:
    document = SourceDocument(source="leave.pdf", data=PDF)
    stored = []
    for current in (settings, keeping, settings):
        with Engine(current, embedder=HashingEmbedder()) as engine:
            tenant = engine.tenant(tenant_name)
            tenant.ingest(document)
            (info,) = tenant.documents()
            stored.append(tenant.read_original(info.id) is not None)
            assert (tenant.render_page(info.id, 1) is not None) is stored[-1]
            assert {listed.has_original for listed in tenant.documents(sort="bytes")} == {info.has_original}
            assert info.has_original is stored[-1]
    assert stored == [False, True, False]


def test_file__that_is_too_large_is_not_stored_and_has_a_note(keeping: Settings, tenant_name: str) -> None:
    with Engine(keeping, embedder=HashingEmbedder()) as engine:
        tenant = engine.tenant(tenant_name)
        comment = b"<!--" + bytes(range(97, 113)) * 2**16 + b"-->"
        tenant.ingest(SourceDocument(source="long.html", data=b"<html><p>A line of text.</p>" + comment))
        (info,) = tenant.documents()
        assert [note.code for note in info.notes] == ["original_not_stored"]
        assert tenant.read_original(info.id) is None


def test_file__that_is_read_is_in_the_audit_log(keeping: Settings, tenant_name: str) -> None:
    with opened(keeping, {"rag.audit.enabled": True}) as engine:
        tenant = engine.tenant(tenant_name, subject="ada")
        tenant.ingest(SourceDocument(source="leave.pdf", data=PDF))
        (info,) = tenant.documents()
        assert tenant.read_original(info.id)
        for _ in range(2):  # the second picture is a kept one
            assert tenant.render_page(info.id, 1)
        events = [(event.kind, event.question) for event in tenant.audit.find()]
        page = (AuditKind.SEARCH, "page 1 of leave.pdf")
        assert events == [page, page, (AuditKind.SEARCH, "file of leave.pdf")]


def test_rectangles__are_those_of_the_cited_lines(engine: Engine, tenant_name: str) -> None:
    tenant = engine.tenant(tenant_name)
    tenant.ingest(SourceDocument(source="leave.pdf", data=PDF))
    tenant.ingest(SourceDocument(source="leave.md", data=b"Employees get twenty days of leave."))
    hit = next(hit for hit in tenant.search("How many days may be carried over?").hits if hit.source == "leave.pdf")
    start = hit.start + hit.text.index("Five")
    (result,) = tenant.rectangles(hit.document_id, start, start + 4, version=hit.version)
    assert result.page == 2
    assert 0 < result.left < result.right < 1
    assert 0 < result.top < result.bottom < 0.2
    assert len(tenant.rectangles(hit.document_id, 0, hit.end)) == 2
    assert tenant.rectangles(hit.document_id, start, start + 4, version=hit.version + 1) == []
    (text,) = [document for document in tenant.documents() if document.source == "leave.md"]
    assert tenant.rectangles(text.id, 0, 10) == []
