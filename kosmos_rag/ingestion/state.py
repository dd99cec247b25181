"""State of a collection that the pipeline loads before it processes documents."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import psycopg

from kosmos_rag.core.config.presets import Preset
from kosmos_rag.core.errors import IngestionError
from kosmos_rag.core.types import Space
from kosmos_rag.ingestion.document import document_id
from kosmos_rag.ingestion.sources.parts import name_part, strip_part
from kosmos_rag.parsing import bounds
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


def list_part_ids(tenant: TenantRef, collection: str, source: str, *, after: int = 0) -> list[uuid.UUID]:
    """Return the ids that the parts of a file after one of them may have."""
    numbers = range(after + 1, bounds.MAX_FILE_PARTS + 1)
    return [document_id(tenant.id, collection, name_part(source, number)) for number in numbers]


def find_stale_parts(
    connection: psycopg.Connection, tenant: TenantRef, collection: str, parts: Mapping[str, int]
) -> Iterator[uuid.UUID]:
    """Yield the ids of documents that files had when they were longer or shorter.

    Args:
        connection: a transaction of the tenant.
        parts: number of parts of each file; 0 for a file that is one document.
    """
    whole = [source for source, count in parts.items() if not count]
    # A file with parts has two of them at least, and the first may have failed.
    firsts = {
        document_id(tenant.id, collection, name_part(source, number)): source for source in whole for number in (1, 2)
    }
    stored = StoredDocuments(connection, tenant.id).read_etags(firsts)
    for source in {strip_part(name) for name in stored}:
        yield from list_part_ids(tenant, collection, source)
    for source, count in parts.items():
        if count:
            yield document_id(tenant.id, collection, source)
            yield from list_part_ids(tenant, collection, source, after=count)
