"""Which documents of a tenant are near-duplicates, readable or not, and of no other tenant."""

from kosmos_rag import Engine, SourceDocument
from kosmos_rag.engine.diagnosis import diagnose
from kosmos_rag.engine.near_duplicates import find_near_duplicates
from kosmos_rag.storage.database import Database

WORDS = [f"word{number}" for number in range(400)]


def _document(source: str, words: list[str], *, acl: str = "everyone") -> SourceDocument:
    return SourceDocument(source=source, data=" ".join(words).encode(), acl=(acl,))


def test_near_duplicates__are_named_with_their_resemblance(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    changed = [*WORDS[:100], "another", *WORDS[101:]]
    half = [*WORDS[:200], *(f"other{number}" for number in range(200))]
    scope.ingest([_document("a.md", WORDS), _document("b.md", changed), _document("half.md", half)])
    engine.tenant(tenant_name, collection="board").ingest(_document("c.md", WORDS, acl="board"))
    engine.tenant(f"{tenant_name}-other").ingest(_document("d.md", WORDS))
    database = Database(engine.settings.database)
    try:
        pairs = find_near_duplicates(database.worker, scope.id)
    finally:
        database.close()
    resemblances = {frozenset((pair.first, pair.second)): round(pair.resemblance, 3) for pair in pairs}
    assert resemblances == {
        frozenset(("default/a.md", "board/c.md")): 1.0,
        frozenset(("default/a.md", "default/b.md")): round(395 / 401, 3),
        frozenset(("default/b.md", "board/c.md")): round(395 / 401, 3),
    }
    assert pairs[0].resemblance == 1.0
    (check,) = (check for check in diagnose(engine.settings, tenant_name) if check.name == "near-duplicates")
    assert check.ok
    assert "a.md" in check.detail
    assert "(0.99)" in check.detail
