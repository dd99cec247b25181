"""A reader over a few documents, one of which is kept from that reader."""

import os

import pytest

from kosmos_rag import Engine, SourceDocument, Tenant

# Before anything imports Haystack: it would tell its makers of each pipeline that is run.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

DOCUMENTS = (
    SourceDocument(
        source="leave.md",
        data=b"# Leave\n\n## Annual\n\nAll full-time employees receive 20 days of paid annual leave per year.\n",
        metadata={"year": 2026, "source": "not this one"},
    ),
    SourceDocument(
        source="expenses.md",
        data=b"# Expenses\n\n## Travel\n\nTravel expenses are paid back within 14 days of the receipt.\n",
        metadata={"year": 2025},
    ),
    SourceDocument(
        source="secret.md",
        data=b"# Secret\n\nAnnual leave of the board is 90 paid days per year.\n",
        acl=("department:hr",),
    ),
)
QUESTION = "How many days of paid annual leave do employees receive per year?"


@pytest.fixture
def tenant(engine: Engine, tenant_name: str) -> Tenant:
    """What everyone may read."""
    engine.tenant(tenant_name).ingest(DOCUMENTS)
    engine.tenant(f"{tenant_name}-globex").ingest(
        SourceDocument(source="theirs.md", data=b"Paid annual leave is 30 days per year.")
    )
    return engine.tenant(tenant_name)
