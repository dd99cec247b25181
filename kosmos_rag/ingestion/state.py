"""State of a collection that the pipeline loads before it processes documents."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import psycopg

from kosmos_rag.core.config.presets import Preset
from kosmos_rag.core.errors import IngestionError
from kosmos_rag.core.types import Space, is_text
from kosmos_rag.ingestion.document import document_id
from kosmos_rag.ingestion.parts import may_have_parts, name_part, name_parts, strip_part
from kosmos_rag.storage.documents import StoredDocuments
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import SpaceStore, TenantRef


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectionState:
    """State of a collection, read in one transaction."""

    preset: Preset | None
    """The settings of the collection; None where it has those of the process."""
    languages: tuple[str, ...]
    """Text search configurations of the server."""
    spaces: Sequence[Space]
    """Embedding spaces that vectors are written to, the live one first; empty for a new tenant."""
    fingerprints: dict[uuid.UUID, str]
    """Of those of the documents that are stored, by id."""

    @property
    def preset_version(self) -> str | None:
        """Version of the preset; None without one."""
        return None if self.preset is None else self.preset.version


def load_state(
    connection: psycopg.Connection, tenant_id: uuid.UUID, collection: str, document_ids: Sequence[uuid.UUID]
) -> CollectionState:
    """Read the state of a collection with fingerprints of documents.

    In the caller's transaction.
    """
    values = {"tenant_id": tenant_id, "document_ids": list(document_ids)}
    return CollectionState(
        preset=load_preset(connection, tenant_id, collection),
        languages=tuple(name for (name,) in connection.execute(statement("text_search_languages")).fetchall()),
        spaces=SpaceStore(connection, tenant_id).list_writable(),
        fingerprints=dict(connection.execute(statement("fingerprints"), values).fetchall()),
    )


def load_preset(connection: psycopg.Connection, tenant_id: uuid.UUID, collection: str) -> Preset | None:
    """Read the preset of a collection in the caller's transaction.

    The result is None where it has none.
    """
    values = {"tenant_id": tenant_id, "collection": collection}
    row = connection.execute(statement("preset_of_collection"), values).fetchone()
    return None if row is None else Preset(name=row[0], content=row[1])


def require_preset(collection: str, job_version: str | None, current: Preset | None) -> None:
    """Require the preset that a job was enqueued under.

    Raises IngestionError if the collection has another one now.

    A document of a collection that restricts its readers must not be ingested under settings that do not.

    Args:
        job_version: version of the preset that the job was enqueued under; None requires none.
        current: preset that the collection has now.
    """
    if job_version is None or (current is not None and current.version == job_version):
        return
    if current is None:
        raise IngestionError(
            "preset_missing",
            f"the preset of the collection {collection} was deleted; create it again, then enqueue again",
        )
    raise IngestionError(
        "preset_changed",
        f"the job was enqueued under another preset than {current.name}, which the collection {collection} has now; "
        "enqueue it again",
    )


def load_sources(
    connection: psycopg.Connection, tenant_id: uuid.UUID, collection: str, *, prefix: str | None = None
) -> dict[str, uuid.UUID]:
    """Read the document ids of a collection by source, in source order.

    In the caller's transaction.

    Args:
        connection: within a transaction of the tenant.
        prefix: only sources that start with it.
    """
    values = {"tenant_id": tenant_id, "collection": collection, "prefix": prefix}
    return {source: key for key, source in connection.execute(statement("sources"), values).fetchall()}


def find_part_ids(
    connection: psycopg.Connection, tenant: TenantRef, collection: str, sources: Iterable[str]
) -> dict[uuid.UUID, str]:
    """Return the names of the stored parts of files, by id.

    In the caller's transaction.
    """
    files = list(filter(may_have_parts, filter(is_text, sources)))
    if not files:
        return {}
    values = {"tenant_id": tenant.id, "collection": collection, "files": files}
    return dict(connection.execute(statement("parts_of_files"), values).fetchall())


def find_unfinished_jobs(
    connection: psycopg.Connection, tenant: TenantRef, collection: str, sources: Iterable[str]
) -> dict[uuid.UUID, str]:
    """Return the names of the documents that unfinished jobs write for files, by id.

    Those of other files than large ones are left out. In the caller's transaction.
    """
    files = list(filter(may_have_parts, filter(is_text, sources)))
    if not files:
        return {}
    values = {"tenant_id": tenant.id, "collection": collection, "files": files}
    rows = connection.execute(statement("unfinished_jobs_of_files"), values).fetchall()
    return {uuid.UUID(key): source for key, source in rows}


def find_replaced_parts(
    connection: psycopg.Connection, tenant: TenantRef, collection: str, parts: Mapping[str, int]
) -> list[uuid.UUID]:
    """Return the stale documents of files whose present documents are all stored, without an unfinished job.

    Args: see `find_stale_parts`.
    """
    stale = find_stale_parts(connection, tenant, collection, parts)
    files = set(stale.values())
    unfinished = set(find_unfinished_jobs(connection, tenant, collection, files).values())
    present = {file: name_parts(file, parts[file]) for file in files}
    ids = {document_id(tenant.id, collection, name) for names in present.values() for name in names}
    stored = StoredDocuments(connection, tenant.id).read_etags(ids).keys()
    replaced = {file for file, names in present.items() if stored >= names and unfinished.isdisjoint(names)}
    return [key for key, file in stale.items() if file in replaced]


def find_stale_parts(
    connection: psycopg.Connection, tenant: TenantRef, collection: str, parts: Mapping[str, int]
) -> dict[uuid.UUID, str]:
    """Return the files of documents that they had when they were longer or shorter, by id.

    Args:
        connection: a transaction of the tenant.
        parts: number of parts of each file; 0 for a file that is one document.
    """
    wholes = {document_id(tenant.id, collection, source): source for source, count in parts.items() if count}
    # A file with parts has two of them at least, and the first may have failed.
    firsts = [name_part(source, number) for source, count in parts.items() if not count for number in (1, 2)]
    ids = [*wholes, *(document_id(tenant.id, collection, part) for part in firsts)]
    stored = StoredDocuments(connection, tenant.id).read_etags(ids).keys()
    stale = {key: source for key, source in wholes.items() if source in stored}
    divided = {*wholes.values(), *(strip_part(part) for part in firsts if part in stored)}
    for key, part in find_part_ids(connection, tenant, collection, divided).items():
        file = strip_part(part)
        if int(part.rpartition("-")[2]) > parts[file]:
            stale[key] = file
    return stale
