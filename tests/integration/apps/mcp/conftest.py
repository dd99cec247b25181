"""Two tenants behind an MCP server, with a document that not everyone may read."""

from collections.abc import Iterator

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.serving import Signer, with_tokens
from tests.integration.apps.mcp.running import Running, serving

DOCUMENTS = (
    SourceDocument(
        source="leave.md",
        data=b"# Leave\n\n## Annual\n\nAll full-time employees receive 20 days of paid annual leave per year.\n\n"
        b"## Sick\n\nTell your manager before ten in the morning.\n",
        metadata={"year": 2026},
    ),
    SourceDocument(
        source="secret.md",
        data=b"# Secret\n\nAnnual leave of the board is 90 paid days per year.\n",
        acl=("department:hr",),
    ),
)


@pytest.fixture(scope="session")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("signer"))


def fill(engine: Engine) -> None:
    """Ingest what two tenants have."""
    engine.tenant("acme").ingest(DOCUMENTS)
    theirs = SourceDocument(source="theirs.md", data=b"# Theirs\n\nPaid annual leave is 30 days per year.\n")
    engine.tenant("globex").ingest(theirs)


@pytest.fixture
def running(settings: Settings, signer: Signer) -> Iterator[Running]:
    """A server whose vectors are made of words, and where callers may wait: a busy machine is slow."""
    with Engine(with_tokens(settings, signer, queue_timeout_s=60.0), embedder=HashingEmbedder()) as engine:
        fill(engine)
        with serving(engine, signer) as started:
            yield started
