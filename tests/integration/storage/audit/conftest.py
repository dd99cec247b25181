"""An engine that keeps a log, and a tenant whose questions are in it."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.engine.tenant import Tenant
from tests.integration.variants import opened


@pytest.fixture
def audited(settings: Settings) -> Iterator[Engine]:
    """An engine that keeps a log and results."""
    with opened(settings, {"rag.audit.enabled": True, "rag.retrieval.result_cache": 10}) as engine:
        yield engine


@pytest.fixture
def acme(audited: Engine) -> Tenant:
    """A tenant with two documents, read by ada."""
    scope = audited.tenant("acme", subject="ada")
    scope.ingest(
        [
            SourceDocument(source="churn.md", data=b"Churn is the share of accounts that left within a month."),
            SourceDocument(source="revenue.md", data=b"Revenue is what accounts paid within a month."),
        ]
    )
    return scope


@pytest.fixture
def admin(database: DatabaseSettings) -> Iterator[psycopg.Connection[Any]]:
    """The administrator's connection: a superuser, whom nothing holds back."""
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        yield connection
