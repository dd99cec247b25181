"""Two tenants with data, for tests that move a database."""

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.variants import opened


def fill(settings: Settings) -> None:
    """Store what two tenants have: documents of two readers, indexes, a recorded question, a job that waits."""
    values = {"rag.audit.enabled": True, "indexes.unsegmented_chunks": 5, "indexes.vector_min_chunks": 10}
    with opened(settings, values) as engine:
        for name, count in (("acme", 30), ("other", 7)):
            scope = engine.tenant(name)
            scope.ingest(
                SourceDocument(
                    source=f"{name}-{number}",
                    data=f"The secret of {name} number {number} is churn.".encode(),
                    acl=("department:board",) if number % 3 == 0 else ("everyone",),
                )
                for number in range(count)
            )
            scope.indexes.build()
            scope.search("churn")
            scope.jobs.enqueue(SourceDocument(source=f"{name}-late", data=b"waits in the queue"))


def read_hits(settings: Settings, *principals: str) -> dict[str, list[str]]:
    """Return the sources that a reader finds in each tenant."""
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        return {
            name: sorted(
                hit.source for hit in engine.tenant(name, principals=principals).search("secret churn", 100).hits
            )
            for name in ("acme", "other")
        }
