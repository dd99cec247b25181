"""Two tenants behind an MCP server, with a document that not everyone may read."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.conftest import shares_database
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


def fill(engine: Engine, name: str = "acme") -> None:
    """Ingest what two tenants have, the second by the name of the first and `-other`."""
    engine.tenant(name).ingest(DOCUMENTS)
    document = SourceDocument(source="theirs.md", data=b"# Theirs\n\nPaid annual leave is 30 days per year.\n")
    engine.tenant(f"{name}-other").ingest(document)


@contextmanager
def patient_server(settings: Settings, signer: Signer) -> Iterator[Running]:
    """Serve vectors made of words, where callers may wait: a busy machine is slow."""
    with (
        Engine(with_tokens(settings, signer, queue_timeout_s=60.0), embedder=HashingEmbedder()) as engine,
        serving(engine, signer) as started,
    ):
        yield started


@pytest.fixture(scope="module")
def shared_server(loaded_settings: Settings, shared_database: DatabaseSettings, signer: Signer) -> Iterator[Running]:
    """A server over the database of this process, for the tests of a module that have a tenant each."""
    with patient_server(loaded_settings.model_copy(update={"database": shared_database}), signer) as started:
        yield started


@pytest.fixture
def running(request: pytest.FixtureRequest, settings: Settings, signer: Signer) -> Iterator[Running]:
    """A server with two tenants.

    A test that asks for `tenant_name` has its tenants in the server of its module; another test has a server.
    """
    if shares_database(request):
        name: str = request.getfixturevalue("tenant_name")
        shared: Running = request.getfixturevalue("shared_server")
        fill(shared.engine, name)
        yield replace(shared, tenant_name=name)
    else:
        with patient_server(settings, signer) as started:
            fill(started.engine)
            yield started
