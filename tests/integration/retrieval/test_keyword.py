"""The keyword context over the documents of a tenant."""

import pytest

from kosmos_rag import Engine, SourceDocument
from kosmos_rag.core.errors import ParseError
from kosmos_rag.retrieval.keyword.context import KeywordContext, Ranking

both = pytest.mark.parametrize("ranking", ["bm25", "classic"])


def _document(source: str, text: str, *readers: str) -> SourceDocument:
    return SourceDocument(source=source, data=text.encode(), acl=readers or ("everyone",))


@both
def test_from_tenant__finds_paragraphs_of_documents_with_their_places(
    engine: Engine, ranking: Ranking, tenant_name: str
) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest([_document("b.txt", "one\n\ntotal sales\nby region"), _document("a.txt", "two\r\n \r\nmonthly sales")])
    context = KeywordContext.from_tenant(scope, ranking=ranking)
    assert [(p.source, p.text) for p in context.paragraphs] == [
        ("a.txt", "two"),
        ("a.txt", "monthly sales"),
        ("b.txt", "one"),
        ("b.txt", "total sales\nby region"),
    ]
    [match] = context.search("total region")
    assert (match.source, match.line_start, match.line_end) == ("b.txt", 3, 4)
    assert context.get_context("total region") == "total sales\nby region"


def test_from_tenant__shows_what_the_reader_may_read_in_the_collection(engine: Engine, tenant_name: str) -> None:
    engine.tenant(tenant_name).ingest([_document("open", "open words"), _document("closed", "closed words", "finance")])
    engine.tenant(tenant_name, collection="wiki").ingest(_document("open", "wiki words"))
    engine.tenant(f"{tenant_name}-other").ingest(_document("open", "foreign words"))

    def texts(collection: str | None, *principals: str) -> list[str]:
        scope = engine.tenant(tenant_name, principals=principals, collection=collection)
        return [match.text for match in KeywordContext.from_tenant(scope, fallback="none").search("words")]

    assert texts(None, "everyone") == ["open words", "wiki words"]
    assert texts(None, "everyone", "finance") == ["closed words", "open words", "wiki words"]
    assert texts("default", "finance") == ["closed words"]
    assert texts("wiki", "everyone") == ["wiki words"]
    assert texts("unknown", "everyone") == []
    assert texts(None) == []


def test_texts__are_those_of_the_present_version(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest(_document("a", "first words"))
    scope.ingest(_document("a", "second words"))
    assert scope.texts() == [("a", "second words")]
    scope.delete("a")
    assert scope.texts() == []


def test_from_tenant__without_documents_is_refused_or_gives_the_fallback(engine: Engine, tenant_name: str) -> None:
    with pytest.raises(ParseError, match="no paragraph") as refused:
        KeywordContext.from_tenant(engine.tenant(tenant_name))
    assert refused.value.code == "empty"
    assert (
        KeywordContext.from_tenant(engine.tenant(tenant_name), fallback="Table: sales").get_context("x")
        == "Table: sales"
    )
