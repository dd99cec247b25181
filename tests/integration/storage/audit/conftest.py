"""An engine that keeps a log, and a tenant whose questions are in it."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.engine.tenant import Tenant
from tests.conftest import shares_database
from tests.integration.variants import opened

AUDITED = {"rag.audit.enabled": True, "rag.retrieval.result_cache": 10}


@pytest.fixture(scope="module")
def shared_audited(loaded_settings: Settings, shared_database: DatabaseSettings) -> Iterator[Engine]:
    """An engine that keeps a log and results over the database of this process."""
    with opened(loaded_settings.model_copy(update={"database": shared_database}), AUDITED) as engine:
        yield engine


@pytest.fixture
def audited(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Engine]:
    """An engine that keeps a log and results; that of the module for a test that asks for `tenant_name`."""
    if shares_database(request):
        yield request.getfixturevalue("shared_audited")
    else:
        with opened(settings, AUDITED) as engine:
            yield engine


@pytest.fixture
def acme(request: pytest.FixtureRequest, audited: Engine) -> Tenant:
    """A tenant with two documents, read by ada."""
    name = request.getfixturevalue("tenant_name") if shares_database(request) else "acme"
    scope = audited.tenant(name, subject="ada")
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
