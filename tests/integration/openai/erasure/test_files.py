"""Erasures of stored files and of their uploaders."""

from datetime import timedelta
from typing import Any

import pytest

from kosmos_rag import Engine, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.openai.files import TenantFiles
from kosmos_rag.openai.records import FileInfo
from kosmos_rag.openai.vector_stores import TenantVectorStores
from kosmos_rag.storage.queue.uploads import UploadStore
from tests.integration.engine.test_erasure import DOCUMENT, SECRET, count_rows

pytestmark = pytest.mark.usefixtures("tenant_name")


def attach(tenant: Tenant, filename: str, attributes: dict[str, Any]) -> FileInfo:
    """Store a file about the person, and put it into a vector store; its job waits."""
    data = f"# Salary\n\n{SECRET} is paid 4,711 a month.".encode()
    with tenant.sessions.write() as connection:
        upload_id = UploadStore(connection, tenant.id).store(data)
    stored = TenantFiles(tenant).create(upload_id, filename, size=len(data), purpose="assistants")
    stores = TenantVectorStores(tenant)
    stores.attach(stores.create("pay", description=None, metadata={}).collection, {stored.id: attributes})
    return stored


@pytest.mark.parametrize(
    ("filename", "attributes", "selector"),
    [
        (f"people/{SECRET}.md", {}, {"source": f"people/{SECRET}.md"}),
        ("people/notes.md", {"employee": SECRET}, {"metadata": ("employee", SECRET)}),
    ],
)
def test_stored_files__are_erased_with_their_bytes_jobs_and_documents(
    acme: Tenant,
    logged: Engine,
    database: DatabaseSettings,
    tenant_name: str,
    filename: str,
    attributes: dict[str, Any],
    selector: Any,
) -> None:
    """Stored files are erased with their bytes, jobs and documents in all collections."""
    attached = attach(acme, "rules.md", {})
    stored = attach(acme, filename, attributes)
    # What was made from the file in another collection does not match the selector by itself.
    logged.tenant(tenant_name, collection="copy").ingest(SourceDocument(source=stored.source, data=DOCUMENT.data))
    TenantVectorStores(acme).attach("copy", {stored.id: {}})
    with acme.sessions.write() as connection:
        uploads = UploadStore(connection, acme.id)
        uploads.delete_abandoned(age=timedelta())
        assert all(uploads.read(file.id) for file in (attached, stored))
    report = acme.erase(**selector)
    assert report.erased["files"] == 1
    assert report.erased["documents"] == 3
    assert [info.id for info in TenantFiles(acme).find()] == [attached.id]
    rows = count_rows(database, SECRET, tenant=acme)
    assert rows.keys() == {"audit_passages", "uploads"}
    assert rows["uploads"] == 1  # of the file that is kept
    assert count_rows(database, str(stored.id), tenant=acme) == {}


def test_subject__is_no_longer_the_uploader_of_a_file(acme: Tenant, database: DatabaseSettings) -> None:
    stored = attach(acme, "notes.md", {})
    assert acme.erase(subject="lovelace").erased == {"feedback": 1, "files": 1}
    assert count_rows(database, "lovelace", tenant=acme).keys() == {"audit_events"}
    assert TenantFiles(acme).find() == []
    assert [info.id for info in TenantFiles(acme, administrator=True).find()] == [stored.id]
