"""Hits carry the department of their document, in collections that have departments."""

from kosmos_rag import Engine, SourceDocument


def test_hits__carry_the_department_of_their_document(engine: Engine, tenant_name: str) -> None:
    tenant = engine.tenant(tenant_name)
    documents = [
        SourceDocument(source=f"kb/{name}/leave.txt", data=f"Annual leave in {name} is twenty days a year.".encode())
        for name in ("hr", "general")
    ]
    for preset in ("corporate", "corporate-enforced"):
        tenant.collections.create(preset, preset=preset)
        engine.tenant(tenant_name, collection=preset).ingest(documents)
    tenant.ingest(documents)
    reader = ("everyone", "department:hr")
    for collection in ("corporate", "corporate-enforced"):
        scope = engine.tenant(tenant_name, collection=collection, principals=reader)
        assert {hit.source: hit.department for hit in scope.search("annual leave", 9).hits} == {
            "kb/hr/leave.txt": "hr",
            "kb/general/leave.txt": "general",
        }
        assert {hit["department"] for hit in scope.search("annual leave", 9).to_dict(explain=False)["hits"]} == {
            "hr",
            "general",
        }
    everywhere = engine.tenant(tenant_name, principals=reader).search("annual leave", 9).hits
    places = [place for hit in everywhere for place in hit.places]
    assert {(place.collection, place.source.split("/")[1], place.department) for place in places} == {
        ("corporate", "hr", "hr"),
        ("corporate", "general", "general"),
        ("corporate-enforced", "hr", "hr"),
        ("corporate-enforced", "general", "general"),
        ("default", "hr", None),
        ("default", "general", None),
    }
